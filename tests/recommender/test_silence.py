"""What fitting writes in a plain script: nothing without progress, and its progress on stderr otherwise."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.training.progress import shown

SCRIPT = """
import sys
from marsrec import Recommender, TrainingSettings

recommender = Recommender("gru4rec", options={"dim": 8}, training=TrainingSettings(epochs=2))
recommender.fit(sys.argv[1], progress=False)
print("then", file=sys.stderr, flush=True)
recommender.fit(sys.argv[1])
"""


def test_without_progress_nothing_is_written_not_even_when_kernels_compile(tmp_path: Path) -> None:
    cyclic_log(users=9, events=6, items=5).write_csv(tmp_path / "shop.csv")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "shop.csv")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert list((tmp_path / "cache").rglob("*.nbc"))  # there was something to compile
    assert done.stdout == ""
    silent, progress = done.stderr.split("then\n")
    assert silent == ""
    first, *lines = progress.splitlines()
    assert first.startswith("· columns: user = 'user'")
    assert "gru4rec on shop: 9 users, 5 items, 54 events." in lines
    assert [line[:11] for line in lines if line.startswith("epoch")] == ["epoch   1/2", "epoch   2/2"]


def test_where_logging_is_set_up_it_alone_shows_progress(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    recommender = Recommender("gru4rec", options={"dim": 8}, training=TrainingSettings(epochs=1))
    with caplog.at_level(logging.INFO, "marsrec"):
        recommender.fit(cyclic_log(users=9, events=6, items=5))
        assert any(message.startswith("epoch   1/1") for message in caplog.messages)
        caplog.clear()
        recommender.fit(cyclic_log(users=9, events=6, items=5), progress=False)
    assert caplog.messages == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [True, False])
def test_logging_stays_as_it_was(progress: bool) -> None:
    logger = logging.getLogger("marsrec")
    before = logger.level, logger.propagate, list(logger.handlers)
    with pytest.raises(KeyboardInterrupt), shown(progress):
        raise KeyboardInterrupt
    assert (logger.level, logger.propagate, logger.handlers) == before
