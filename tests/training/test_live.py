"""What changes in place while a training runs: in terminals and in notebooks. Elsewhere nothing does."""

import io
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.training import progress
from marsrec.training.live import InNotebook, InTerminal, Status, live

TRAINING = TrainingSettings(epochs=2, targets_per_batch=16)
STATUS = Status(2, 30, 5, 20, "12.5 steps/s  0:41 to 3:20 left", "loss 6.512  valid NDCG@10 0.0421")


def fitted(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")  # which keeps the stdout that it finds when it is imported
    monkeypatch.setattr(progress, "Console", lambda **_: console)
    Recommender("gru4rec", options={"dim": 8}, training=TRAINING).fit(cyclic_log(users=40, events=6, items=5))


def test_which_console_shows_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert live(Console(file=io.StringIO())) is None
    assert isinstance(live(Console(file=io.StringIO(), force_terminal=True)), InTerminal)
    assert isinstance(live(Console(file=io.StringIO(), force_jupyter=True)), InNotebook)
    monkeypatch.setenv("TERM", "dumb")  # takes no lines that change
    assert live(Console(file=io.StringIO(), force_terminal=True)) is None


def test_a_terminal_shows_epoch_rate_loss_validation_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, legacy_windows=False)
    shown = InTerminal(console)
    shown.show(STATUS)
    shown.close()
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    first, second = (line.strip() for line in lines[:2])
    assert re.fullmatch(r"epoch 2/30 \S+ +25% 12.5 steps/s  0:41 to 3:20 left", first)
    assert second == STATUS.figures
    assert all(len(line) <= 80 for line in lines)


def test_a_training_in_a_terminal_logs_no_epochs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with caplog.at_level("INFO", "marsrec"):
        console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24, legacy_windows=False)
        fitted(console, monkeypatch)
    assert not [message for message in caplog.messages if message.startswith("epoch")]
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "epoch 1/2" in text
    assert re.search(r"[\d,.]+ steps/s", text)
    assert "loss" in text
    assert text.rstrip().endswith("\x1b[2K")  # nothing stays


class Outputs:
    """A notebook: outputs by the order in which they began, and how often each was drawn."""

    def __init__(self) -> None:
        self.contents: list[dict[str, str]] = []
        self.drawn = 0

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        place, self.drawn = len(self.contents), self.drawn + 1
        self.contents.append(content)

        def update(content: dict[str, str], *, raw: bool) -> None:
            assert raw
            self.contents[place], self.drawn = content, self.drawn + 1

        return SimpleNamespace(update=update)


@pytest.fixture
def outputs(monkeypatch: pytest.MonkeyPatch) -> Outputs:
    shown, display = Outputs(), pytest.importorskip("IPython.display")
    monkeypatch.setattr(display, "display", shown.display)
    return shown


def test_a_notebook_has_one_output_that_changes_and_stays(outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marsrec.training.live.OFTEN", -math.inf)
    fitted(Console(file=io.StringIO(), force_jupyter=True), monkeypatch)
    (content,) = outputs.contents
    assert outputs.drawn > 2 * 40 * 3 / 16  # each step at least
    assert re.match(r"epoch 2/2  100%  done in \d:\d\d  loss [\d.]+  valid NDCG@10 0.\d+  best", content["text/plain"])
    assert "<progress" in content["text/html"]
    assert "<script" not in content["text/html"]


def test_a_notebook_is_not_drawn_at_every_step(outputs: Outputs) -> None:
    shown = InNotebook()
    for _ in range(1000):
        shown.show(STATUS)
    assert outputs.drawn < 10
    shown.close("stopped")
    assert "25%  stopped" in outputs.contents[0]["text/plain"]


def test_an_interrupted_training_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch, outputs: Outputs) -> None:
    monkeypatch.setattr("marsrec.training.live.OFTEN", -math.inf)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("marsrec.training.module.TrainingModule.validation_step", interrupted)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fitted(Console(file=io.StringIO(), force_jupyter=True), monkeypatch)
    assert "stopped" in outputs.contents[0]["text/plain"]
    assert "validating" not in outputs.contents[0]["text/plain"]


def test_nothing_is_written_where_training_never_began(tmp_path: Path, outputs: Outputs) -> None:
    InNotebook().close("stopped")
    assert outputs.contents == []
