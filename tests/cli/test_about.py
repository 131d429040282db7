"""Commands about the software itself."""

import json

import pytest
from tests.cli.calls import call, outputs

from marsrec.models import RECIPES
from marsrec.nn.kernels.selective_scan import FORCED, chosen
from marsrec.training import half_precision


@pytest.fixture(autouse=True)
def half_precision_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try it takes a process of its own, which tests of training start."""
    monkeypatch.setattr(half_precision, "works", lambda: True)


def test_models_prints_the_papers_parameter_counts() -> None:
    rows = json.loads(call("models", "--items", "12101", "--length", "50", "--json"))
    found = {row["name"]: row["parameters"] for row in rows}
    expected = {"gru4rec": 856_512, "sasrec": 877_824, "mamba4rec": 846_784, "mars-t": 895_996, "mars-m": 937_084}
    assert expected.items() <= found.items()
    assert set(found) == set(RECIPES)
    rows = json.loads(call("models", "--items", "3416", "--length", "200", "--heads", "8", "--json"))
    found = {row["name"]: row["parameters"] for row in rows}
    expected = {"sasrec": 331_584, "mamba4rec": 290_944, "mars-t": 350_024, "mars-m": 381_512}
    assert expected.items() <= found.items()
    parts = {row["name"]: (row["encoder"], row["readout"], row["causal"]) for row in rows}
    assert parts["mars-m"] == ("mamba", "mars", True)


def test_models_lists_the_parts() -> None:
    shown = " ".join(outputs("models")[1].split())
    assert "Readouts: core, last, mars, narm." in shown
    assert "transformer." in shown.partition("Encoders: ")[2]


def test_doctor_lists_versions() -> None:
    findings = json.loads(call("doctor", "--json"))
    assert findings["versions"]["torch"].startswith("2.")
    assert findings["machine"]["torch threads"] >= 1
    assert findings["machine"]["half precision on the CPU"] == "works"


@pytest.mark.parametrize(
    ("forced", "expected"),
    [
        (None, "numba, compiled for this CPU; MARSREC_SCAN=reference or cpu forces one"),
        ("cuda", "numba, compiled for this CPU; MARSREC_SCAN=cuda is for other devices"),
        ("reference", "torch, a position at a time, forced by MARSREC_SCAN=reference"),
        ("fastest", "error: selective scan 'fastest'"),
    ],
)
def test_doctor_names_the_scan(forced: str | None, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen.cache_clear()
    monkeypatch.delenv(FORCED, raising=False)
    if forced:
        monkeypatch.setenv(FORCED, forced)
    assert json.loads(call("doctor", "--json"))["kernels"]["selective scan"].startswith(expected)
    chosen.cache_clear()
