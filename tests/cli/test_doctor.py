"""The command that shows what this machine has."""

import json

import pytest
from tests.cli.calls import call

from marsrec.nn.kernels.selective_scan import FORCED, chosen
from marsrec.training import half_precision


@pytest.fixture(autouse=True)
def half_precision_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try it takes a process of its own, which tests of training start."""
    monkeypatch.setattr(half_precision, "works", lambda: True)


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
