"""Saved folders that somebody damaged or made up are refused, and nothing outside of them is read."""

import json
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.signed import sign

from marsrec import Recommender, TrainingSettings
from marsrec.errors import DataError, MarsrecError
from marsrec.recommender.persistence import CONFIG, METRICS, WEIGHTS


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = pl.DataFrame(
        [(u, f"i{(u + i) % 5}", 1_600_000_000 + 60 * i) for u in range(8) for i in range(6)], orient="row"
    )
    log.columns = ["user", "item", "time"]
    model = Recommender("mars-t", options={"dim": 8, "length": 8}, training=TrainingSettings(epochs=1))
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.fit(log, progress=False, test=False).save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    for file in saved.rglob("*"):
        if file.is_file():
            copy = tmp_path / "model" / file.relative_to(saved)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    return tmp_path / "model"


def change(folder: Path, name: str, value: Any) -> None:
    """Set what stands under a dotted name in the config; None deletes it."""
    config = json.loads((folder / CONFIG).read_text())
    *parents, leaf = name.split(".")
    place = config
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[leaf]
    else:
        place[leaf] = value
    (folder / CONFIG).write_text(json.dumps(config))


def test_checksums_may_not_be_left_out(folder: Path) -> None:
    data = bytearray((folder / WEIGHTS).read_bytes())
    data[-3] ^= 1
    (folder / WEIGHTS).write_bytes(data)
    change(folder, "files", None)
    with pytest.raises(DataError, match=r"model\.safetensors: has no checksum in config\.json"):
        Recommender.load(folder)


def test_a_link_to_a_file_elsewhere_is_not_read(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.json"
    (folder / METRICS).rename(outside)
    (folder / METRICS).symlink_to(outside)
    with pytest.raises(DataError, match=r"metrics\.json: is a link to a file elsewhere"):
        Recommender.load(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model.encoder.layers", 10**9, "not a readable saved recommender .*less than or equal to 128"),
        ("model.encoder.layers", 100, "are not those of the model that"),
        ("model.dim", 16_384, "are not those of the model that"),
        ("log_end", "soon", "not a readable saved recommender"),
        ("unit", "fortnight", "not a readable saved recommender"),
        ("format", [], "saved in format"),
    ],
)
def test_settings_that_promise_another_model_are_refused_at_once(
    folder: Path, name: str, value: Any, message: str
) -> None:
    change(folder, name, value)
    started = time.monotonic()
    with pytest.raises(DataError, match=message):
        Recommender.load(folder)
    assert time.monotonic() - started < 60  # and not never


def test_damaged_folders_with_right_checksums_load_or_are_refused(folder: Path, saved: Path) -> None:
    files = sorted(file.relative_to(saved) for file in saved.rglob("*") if file.is_file() and file.name != "README.md")
    chance = random.Random(0)
    for _ in range(80):
        name = chance.choice(files)
        whole = (saved / name).read_bytes()
        data = bytearray(whole)
        for _ in range(chance.choice((1, 4, 20))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        (folder / name).write_bytes(data)
        with suppress(MarsrecError):
            if name.name != CONFIG:
                sign(folder)
            Recommender.load(folder)
        (folder / name).write_bytes(whole)
        (folder / CONFIG).write_bytes((saved / CONFIG).read_bytes())
    assert Recommender.load(folder).network is not None
