"""Exported models: asked by onnxruntime alone, they answer what `recommend` answers."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from marsrec import Recommender
from marsrec.data.histories import Vocabulary
from marsrec.errors import SettingsError
from marsrec.models import RECIPES

ITEMS, LENGTH, START = 40, 12, 1_600_000_000
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {} for name in RECIPES},
    "mars-t, request clock": {"readout.clock": "request"},
    "hawkes-m, request clock": {"readout.clock": "request"},
    "mars-m, ages in events": {"readout.real_time": False},
    "tisasrec, raw": {"encoder.scale": "raw"},
}
ELSEWHERE = """
import json, struct, sys
from pathlib import Path
sys.modules["marsrec"] = sys.modules["torch"] = None  # importing either fails
import numpy as np
import onnxruntime

def tensors(file):
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    head, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    head.pop("__metadata__", None)
    return {
        name: np.frombuffer(body[slice(*facts["data_offsets"])], np.float32).reshape(facts["shape"])
        for name, facts in head.items()
    }

def top(folder, session, contract, items, times, now, k):
    given = {"items": np.array(items, np.int64), "times": np.array(times, np.int64)}
    if "now" in contract["inputs"]:
        given["now"] = np.array(now, np.int64)
    (user,) = session.run(None, given)
    parts = tensors(folder / contract["vectors"])
    scores = parts["vectors"] @ user + parts.get("bias", 0)
    codes = 1 + np.argsort(-scores[1:], kind="stable")[:k]
    return codes, scores[codes]

for folder in sorted(Path(".").iterdir()):
    contract = json.loads((folder / "model.json").read_text())
    session = onnxruntime.InferenceSession(folder / contract["graph"])
    assert {one.name for one in session.get_inputs()} >= set(contract["inputs"]) - {"times"}, folder
    example = contract["example"]
    codes, scores = top(folder, session, contract, *(example["inputs"].get(n) for n in ("items", "times", "now")), 5)
    assert codes.tolist() == [row["code"] for row in example["top"]], folder
    np.testing.assert_allclose(scores, [row["score"] for row in example["top"]], rtol=1e-5, atol=1e-5)
    place = {raw: code for code, raw in enumerate(contract["ids"], start=1)}
    for question in json.loads((folder / "questions.json").read_text()):
        events = [(place[item], time) for item, time in question["history"]][-contract["length"] :]
        codes, scores = top(folder, session, contract, *zip(*events), question["at"], len(question["items"]))
        assert [contract["ids"][code - 1] for code in codes] == question["items"], folder
        np.testing.assert_allclose(scores, question["scores"], rtol=1e-5, atol=1e-5)
assert sys.modules["torch"] is None
print("all equal")
"""


def untrained(name: str, **options: Any) -> Recommender:
    """A recommender with random weights that tell events and times apart."""
    recommender = Recommender(name.partition(",")[0], options={"dim": 16, "length": LENGTH, **options})
    recommender.settings = recommender.planned_settings(8.0)
    recommender.item_ids = Vocabulary(pl.Series([f"i{item}" for item in range(ITEMS)]))
    recommender.item_counts = np.arange(ITEMS + 1)
    recommender.unit, recommender.log_end = "s", START + 10**8
    torch.manual_seed(0)
    network = recommender.settings.build(ITEMS).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    recommender.network = network
    return recommender


def questions(recommender: Recommender) -> list[dict[str, Any]]:
    """Histories of one event, of a few, and of more than count, and what `recommend` says to them."""
    rng, asked = np.random.default_rng(0), []
    for count in (1, 5, LENGTH, LENGTH + 9):
        items, times = rng.integers(ITEMS, size=count), START + rng.integers(0, 2 * 10**5, size=count).cumsum()
        history = [(f"i{item}", int(time)) for item, time in zip(items, times, strict=True)]
        at = int(times[-1]) + 7200 if recommender.network.sees_request_time else None
        best = recommender.recommend(histories=history, k=8, at=at, mask_seen=False)
        answer = {"items": best["item"].to_list(), "scores": best["score"].to_list()}
        asked.append({"history": history, "at": at, **answer})
    return asked


def test_onnxruntime_alone_answers_what_recommend_answers(tmp_path: Path) -> None:
    for name, options in OPTIONS.items():
        recommender = untrained(name, **options)
        recommender.export(tmp_path / name)
        (tmp_path / name / "questions.json").write_text(json.dumps(questions(recommender)))
    run = subprocess.run([sys.executable, "-c", dedent(ELSEWHERE)], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == "all equal\n", run.stderr


def test_times_in_nanoseconds_are_exact(tmp_path: Path) -> None:
    """A float of 64 bits would lose the last digits of such times, and with them which events are a unit apart."""
    onnxruntime = pytest.importorskip("onnxruntime")
    recommender = untrained("tisasrec")
    recommender.export(tmp_path / "model")
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model.onnx")
    codes, base = np.arange(1, 6), 1_600_000_000 * 10**9
    users = [
        session.run(None, {"items": codes, "times": start + np.array([0, 1, 2, 5, 9])})[0]
        for start in (0, base, base + 1)
    ]
    np.testing.assert_array_equal(users[0], users[1])
    np.testing.assert_array_equal(users[0], users[2])


def test_what_cannot_be_exported_is_refused_with_the_part_and_nothing_is_written(tmp_path: Path) -> None:
    for name, options, part in (
        ("sigma", {"encoder.published": True}, "encoder Sigma"),
        ("mars-t", {"readout.form": "streaming"}, "readout Mars"),
    ):
        with pytest.raises(SettingsError, match=f"cannot be exported: {part} with these settings"):
            untrained(name, **options).export(tmp_path / "model")
        assert not (tmp_path / "model").exists()


def test_an_export_is_replaced_as_a_whole_and_other_folders_are_not(tmp_path: Path) -> None:
    untrained("sasrec").export(tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_text()
    untrained("gru4rec").export(tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_text() != before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("mine")
    with pytest.raises(Exception, match="other files"):
        untrained("sasrec").export(tmp_path / "other")
    assert (tmp_path / "other" / "precious.txt").read_text() == "mine"
