"""What fitting writes in a plain script: nothing without progress, and its progress on stderr otherwise."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread

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


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What a handler on the logger of the name gets, of a host that wants warnings."""
    got: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: got.append(record.getMessage())
    place, library = logging.getLogger(request.param), logging.getLogger("marsrec")
    before = library.level
    place.addHandler(handler)
    library.setLevel(logging.WARNING)
    yield got
    library.setLevel(before)
    place.removeHandler(handler)


def say(whose: str) -> None:
    log = logging.getLogger("marsrec.training.fit")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.log(level, f"{whose} {logging.getLevelName(level)}")


@pytest.mark.parametrize("host", [None, "marsrec"], indirect=True)
@pytest.mark.parametrize("progress", [True, False])
def test_a_host_that_wants_warnings_gets_them_and_no_more(
    progress: bool, host: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with shown(progress):
        say("fit")
    assert host == ["fit WARNING", "fit ERROR"]
    assert capsys.readouterr() == ("", "fit INFO\n" if progress else "")


@pytest.mark.parametrize("host", [None], indirect=True)
@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True), (False, False)])
def test_fits_that_overlap_leave_logging_as_it_was(
    first: bool, second: bool, host: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("marsrec")

    def state() -> tuple[object, ...]:
        handlers = [*logger.handlers, *logging.getLogger().handlers]
        return logger.level, logger.propagate, handlers, [list(handler.filters) for handler in handlers]

    before, step = state(), Barrier(2, timeout=10)

    def fit_first() -> None:
        with shown(first):
            step.wait()  # the second begins
            step.wait()
        step.wait()  # the first has ended, the second goes on

    def fit_second() -> None:
        step.wait()
        with shown(second):
            step.wait()
            step.wait()
            say("second")

    threads = [Thread(target=fit_first), Thread(target=fit_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host == ["second WARNING", "second ERROR"]
    assert capsys.readouterr() == ("", "second INFO\n" if second else "")
    assert state() == before


def test_warnings_are_shown_where_no_handler_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with shown(True):
        say("fit")
    assert capsys.readouterr().err == "fit INFO\nfit WARNING\nfit ERROR\n"
