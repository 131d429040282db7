"""Models are swapped under load, and bad ones are refused."""

import importlib.util
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from fastapi.testclient import TestClient
from numba.core.caching import CacheImpl
from safetensors.torch import load_file, save_file
from tests.serve.conftest import LOG, START, Start, train
from tests.signed import sign

from marsrec import Recommender
from marsrec.errors import DataError
from marsrec.evaluation import ranking
from marsrec.recommender import persistence
from marsrec.serve.app import create_app
from marsrec.serve.models import Models
from marsrec.serve.settings import ServeSettings


@pytest.fixture
def folder(folders: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(folders["mars-t"], tmp_path / "model"))


def cut(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-7])


def config(**changes: object) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**values, **changes}))

    return write


def not_finite(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["items.weight"][3, 2] = float("nan")
    save_file(weights, folder / "model.safetensors")


def array(name: str, change: Callable[[np.ndarray], object]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        values = np.load(folder / "histories" / name)
        changed = change(values)
        np.save(folder / "histories" / name, values if changed is None else changed)

    return write


def set_first(value: int) -> Callable[[np.ndarray], None]:
    return lambda values: values.__setitem__(0, value)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": shutil.rmtree,
    "no config": lambda folder: (folder / "config.json").unlink(),
    "config cut": cut("config.json"),
    "config is a list": lambda folder: (folder / "config.json").write_text("[]"),
    "config is deep": lambda folder: (folder / "config.json").write_text("[" * 100_000),
    "newer format": config(format=99),
    "another model": config(made={"model": "nothing", "encoder": None}),
    "no such unit": config(unit="weeks"),
    "another unit": config(unit="ms"),
    "weights cut": cut("model.safetensors"),
    "weights are text": lambda folder: (folder / "model.safetensors").write_text("weights"),
    "weights not finite": not_finite,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "items cut": cut("items.parquet"),
    "items are text": lambda folder: (folder / "items.parquet").write_text("items"),
    "fewer items": lambda folder: pl.read_parquet(folder / "items.parquet")[:-1].write_parquet(
        folder / "items.parquet"
    ),
    "metrics cut": cut("metrics.json"),
    "items of histories cut": cut("histories/items.npy"),
    "times of histories cut": cut("histories/times.npy"),
    "code out of range": array("items.npy", set_first(21)),
    "code zero": array("items.npy", set_first(0)),
    "time before 1970": array("times.npy", set_first(-5)),
    "offsets fall": array("offsets.npy", set_first(5)),
    "offsets are no numbers": array("offsets.npy", lambda values: values.astype(str)),
    "pickled": array("times.npy", lambda values: np.array([{"a": 1}] * len(values), dtype=object)),
}


@pytest.fixture(scope="module")
def served(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, Path]]:
    """A server, and the folder of its model."""
    folder = Path(shutil.copytree(folders["mars-t"], tmp_path_factory.mktemp("served") / "model"))
    with TestClient(create_app(ServeSettings(models=(folder,))), base_url="http://localhost") as client:
        yield client, folder


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_folder_is_refused_and_the_old_model_stays(
    served: tuple[TestClient, Path], folders: dict[str, Path], damage: str
) -> None:
    client, folder = served
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(folders["mars-t"], folder)
    before, refused = client.get("/v1/users/u1/recommendations").json(), refusals(client)
    DAMAGES[damage](folder)
    sign(folder)
    answer = client.post("/v1/model/reload")
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["code"] == "refused"
    assert answer.json()["error"]["message"]
    assert client.get("/v1/users/u1/recommendations").json() == before
    assert client.get("/readyz").status_code == 200
    assert refusals(client) == refused + 1


def refusals(client: TestClient) -> float:
    """Reloads that the server has counted as refused."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith('marsrec_reloads_total{outcome="refused"}'))


def test_any_changed_byte_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    files = json.loads((folders["mars-t"] / "config.json").read_text())["files"]
    assert {"model.safetensors", "items.parquet", "metrics.json", "histories/items.npy"} <= set(files)
    for number, name in enumerate(files):
        bad = Path(shutil.copytree(folders["mars-t"], tmp_path / f"bad{number}"))
        content = bytearray((bad / name).read_bytes())
        content[rng.integers(len(content))] ^= 1
        (bad / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: differs from what was saved"):
            Recommender.load(bad)


@pytest.mark.parametrize("files", [None, [1], "x", {"items.parquet": 3}])
def test_a_list_of_files_that_is_none_is_refused(folder: Path, files: object) -> None:
    config(files=files)(folder)
    with pytest.raises(
        DataError, match=r"not a readable saved recommender|has no checksum|differs from what was saved"
    ):
        Recommender.load(folder)


@pytest.mark.parametrize(
    "name", ["/dev/zero", "../model/metrics.json", "..\\model\\metrics.json", "C:metrics.json", "missing"]
)
def test_checksums_are_of_files_in_the_folder(folders: dict[str, Path], folder: Path, name: str) -> None:
    listed = json.loads((folders["mars-t"] / "config.json").read_text())["files"]
    config(files=listed | {name: "0" * 32})(folder)
    with pytest.raises(DataError, match="differs from what was saved"):
        Recommender.load(folder)


def test_others_may_read_what_is_saved(folder: Path) -> None:
    modes = {file.stat().st_mode & 0o777 for file in folder.rglob("*") if file.is_file()}
    assert len(modes) == 1  # as the umask says, and no file for its owner alone


def test_a_folder_that_is_not_there_is_called_so(folder: Path) -> None:
    with pytest.raises(DataError, match=r"mod: there is no such folder. Did you mean .*model\?"):
        Recommender.load(folder.with_name("mod"))
    with pytest.raises(DataError, match=r"other: there is no such folder\.$"):
        Recommender.load(folder.with_name("other"))
    with pytest.raises(DataError, match="there is no such folder"):
        Recommender.load(folder.with_name("a**[b"))


def test_bytes_changed_at_random_are_refused_or_answered(folder: Path, tmp_path: Path) -> None:
    """Whatever is in a folder, loading it ends in a model that answers or in a DataError."""
    rng = np.random.default_rng(0)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    refused = 0
    for turn in range(60):
        bad = Path(shutil.copytree(folder, tmp_path / f"bad{turn}"))
        file = bad / files[turn % len(files)]
        content = bytearray(file.read_bytes())
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(min(len(content), 400))] = rng.integers(256)
        file.write_bytes(content)
        try:
            Models(ServeSettings(models=(bad,))).store.close()
        except DataError:
            refused += 1
    assert refused > 20


def test_a_model_of_another_vocabulary_is_refused_and_a_larger_one_taken(folder: Path, start: Start) -> None:
    client = start(folder)
    client.post("/v1/users/ann/events", json={"events": [{"item": "tea", "time": START}]})
    assert client.get("/v1/users/ann/recommendations").json()["source"] == "popularity"
    others = LOG.filter(pl.col("item") != "i7")
    train("mars-t", others).save(folder)
    answer = client.post("/v1/model/reload").json()["error"]
    assert "it lacks 1 items that model knows, such as 'i7'" in answer["message"]
    train("mars-t", LOG.with_columns(pl.col("item").str.slice(1).cast(pl.Int64))).save(folder)
    assert "its ids are Int64" in client.post("/v1/model/reload").json()["error"]["message"]
    train("mars-t", LOG.with_columns(time=pl.col("time") * 1000)).save(folder)
    assert "the unit of its times is ms" in client.post("/v1/model/reload").json()["error"]["message"]
    more = pl.concat([LOG, LOG.with_columns(item=pl.lit("tea"), time=pl.col("time") + 10**6).unique("user")])
    train("mars-m", more).save(folder)  # of another recipe
    assert client.post("/v1/model/reload?model=model").json() == {"reloaded": ["model"]}
    result = client.get("/v1/users/ann/recommendations").json()
    assert result["source"] == "model"  # the item that was unknown counts now
    expected = Recommender.load(folder).start([("tea", START)]).recommend()
    assert [row["item"] for row in result["items"]] == expected["item"].to_list()


def test_swaps_under_load_fail_no_request(folder: Path, start: Start) -> None:
    """Every answer is that of the old model or of the new one, and none fails."""
    client = start(folder)
    models = [train("mars-t", seed=seed) for seed in (0, 1)]
    pairs = [("i3", START), ("i4", START + 60)]
    expected = []
    for model in models:
        model.save(folder)
        expected.append(Recommender.load(folder).recommend(histories=pairs, k=3)["item"].to_list())
    assert expected[0] != expected[1]
    done, wrong, answered = threading.Event(), [], [0, 0]
    body = {"history": [{"item": item, "time": time} for item, time in pairs], "k": 3}
    client.post("/v1/users/ann/events", json={"events": body["history"]})

    def request(stored: bool) -> None:
        while not done.is_set():
            if stored:
                answer = client.get("/v1/users/ann/recommendations?k=3")
            else:
                answer = client.post("/v1/recommend", json=body)
            result = answer.json() if stored else answer.json().get("results", [{}])[0]
            items = [row["item"] for row in result.get("items", [])]
            if answer.status_code != 200 or items not in expected:
                wrong.append(answer.text)
                return
            answered[expected.index(items)] += 1

    client.post("/v1/model/reload")
    threads = [threading.Thread(target=request, args=(bool(number % 2),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for swap in range(8):
        models[swap % 2].save(folder)
        assert client.post("/v1/model/reload").status_code == 200
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert min(answered) > 0


def test_one_reload_at_a_time(folder: Path, start: Start) -> None:
    client = start(folder)
    with client.app.state.service.models._loading:
        answer = client.post("/v1/model/reload")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "loading")
    assert client.post("/v1/model/reload").status_code == 200


def test_models_of_different_kinds_are_not_served_together(folder: Path, tmp_path: Path) -> None:
    train("mars-t", LOG.with_columns(time=pl.col("time") * 1000)).save(tmp_path / "other")
    with pytest.raises(DataError, match="the unit of its times is ms, that of the models served is s"):
        Models(ServeSettings(models=(folder, tmp_path / "other")))


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever file is being opened when it happens: no model is made of the files of two."""
    new, reads = train("mars-t", seed=1), 0
    real = persistence.load_file

    def replaced(path: Path) -> object:
        nonlocal reads
        reads += 1
        weights = real(path)
        if reads == 1:
            new.save(folder)
        return weights

    monkeypatch.setattr("marsrec.recommender.persistence.load_file", replaced)
    assert Recommender.load(folder).fingerprint() == new.fingerprint()
    assert reads == 2
    reads = -100  # between the two renames there is no folder
    aside = folder.rename(folder.with_name("aside"))
    monkeypatch.setattr(
        "marsrec.recommender.persistence.time.sleep", lambda seconds: aside.exists() and aside.rename(folder)
    )
    assert Recommender.load(folder).fingerprint() == new.fingerprint()


def test_a_model_without_histories_does_not_take_the_place_of_one_with_them(tmp_path: Path, start: Start) -> None:
    log = LOG.with_columns(pl.col("user").str.slice(1).cast(pl.Int64))
    model = train("mars-t", log)
    model.save(tmp_path / "model")
    model.save(tmp_path / "bare", histories=False)
    client = start(tmp_path / "bare", tmp_path / "model")
    assert client.get("/v1/users/03/recommendations?model=model").json()["user"] == 3  # the kind of those that have any
    model.save(tmp_path / "model", histories=False)
    assert "was saved without histories" in client.post("/v1/model/reload").json()["error"]["message"]
    assert client.get("/v1/users/3/recommendations?model=model").json()["user"] == 3


def test_kernels_are_compiled_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CacheImpl, "_locator_classes", [])
    spec = importlib.util.spec_from_file_location("marsrec_ranking_again", ranking.__file__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    scores = torch.tensor([[0.0, 3.0, 1.0, 2.0, 2.0]])
    assert again._ranks(scores, torch.tensor([[2.0]])).tolist() == [2.5]
