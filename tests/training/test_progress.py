"""What a training says of itself where there is no terminal: how it went, and how long it will take."""

import logging
import time
from types import SimpleNamespace

import pytest
from lightning.pytorch.callbacks import EarlyStopping

from marsrec.training.progress import Progress


@pytest.mark.parametrize(
    ("seconds", "waited", "expected"),
    [
        ([100.0], 0, "100.0 s/epoch  33:20 to 5:31:40 left"),
        ([100.0, 10.0], 0, "10.0 s/epoch  3:20 to 33:00 left"),  # the first compiled
        ([100.0, 12.0, 10.0, 600.0], 3, "600.0 s/epoch  3:24 to 39:12 left"),  # the last was interrupted
        ([10.0] * 100 + [80.0] * 10, 0, "80.0 s/epoch  26:40 to 2:00:00 left"),  # resumed on a slower machine
        ([10.0] * 190, 0, "10.0 s/epoch  1:40 left"),  # patience would outlast the epochs
        ([10.0] * 200, 0, "10.0 s/epoch"),
    ],
)
def test_time_left_goes_by_the_usual_epoch(
    seconds: list[float], waited: int, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    curve = [
        {"epoch": epoch, "valid/NDCG@10": 0.25, "train/loss": 6.5, "seconds": each}
        for epoch, each in enumerate(seconds, 1)
    ]
    keeper = SimpleNamespace(curve=curve, best_value=0.25, best_epoch=len(curve) - waited, max_minutes=None)
    stopper = EarlyStopping("valid/NDCG@10", patience=20)
    stopper.wait_count = waited
    with caplog.at_level(logging.INFO, "marsrec"):
        Progress(200, 20, keeper, stopper).epoch_done(SimpleNamespace(should_stop=False))
    assert caplog.messages == [
        f"epoch {len(curve):3d}/200  loss 6.500  valid NDCG@10 0.2500  best 0.2500 (epoch {len(curve) - waited})"
        f"  patience {waited}/20  {expected}"
    ]


def test_time_left_ends_at_the_time_limit(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    curve = [{"epoch": 1, "valid/NDCG@10": 0.25, "train/loss": 6.5, "seconds": 10.0}]
    keeper = SimpleNamespace(curve=curve, best_value=0.25, best_epoch=1, max_minutes=5, began=900.0)
    stopper = EarlyStopping("valid/NDCG@10", patience=3)
    for patience, expected in [(3, "0:30 to 3:20 left"), (30, "3:20 left")]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "marsrec"):
            Progress(200, patience, keeper, stopper).epoch_done(SimpleNamespace(should_stop=False))
        assert caplog.messages[0].endswith(f"s/epoch  {expected}")
