"""Progress of a training: live in a terminal and in a notebook, a logged line per epoch elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from statistics import median
from threading import Lock
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.callbacks import Callback, EarlyStopping
from rich.console import Console

from marsrec.training.live import Status, live
from marsrec.training.settings import MONITOR

if TYPE_CHECKING:
    from marsrec.training.fit import Keeper

log = logging.getLogger(__name__)


class Stderr(logging.Handler):
    """Writes messages as they are. Unlike logging's own handler it finds the stderr of the moment, above a bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        sys.stderr.write(f"{self.format(record)}\n")


class Display:
    """Where the log of the library goes while models are fitted, maybe in several threads at a time.

    Only the handlers are filtered: loggers and their levels belong to the whole process. The first fit saves the state
    of logging, the last one restores it.
    """

    def __init__(self) -> None:
        self.logger, self.stderr = logging.getLogger("marsrec"), Stderr(logging.INFO)
        self.stderr.addFilter(self.left_to_us)
        self.lock, self.fits = Lock(), 0
        self.progress: ContextVar[bool | None] = ContextVar("progress", default=None)  # None outside a fit
        self.own_level = self.level = logging.NOTSET  # of the logger, and the one in effect
        self.handlers: list[logging.Handler] = []

    @contextmanager
    def shown(self, progress: bool) -> Iterator[None]:
        """Show what this thread logs meanwhile, or only its warnings."""
        token = self.progress.set(progress)
        self._enter(progress)
        try:
            yield
        finally:
            self._leave()
            self.progress.reset(token)

    def _enter(self, progress: bool) -> None:
        with self.lock:
            if self.fits == 0:
                self.own_level, self.level = self.logger.level, self.logger.getEffectiveLevel()
                self.handlers = list(_handlers(self.logger))
                for handler in self.handlers:
                    handler.addFilter(self.for_the_host)
            self.fits += 1
            if progress:
                self.logger.setLevel(min(self.level, logging.INFO))
                self.logger.addHandler(self.stderr)

    def _leave(self) -> None:
        with self.lock:
            self.fits -= 1
            if self.fits == 0:
                self.logger.removeHandler(self.stderr)
                self.logger.setLevel(self.own_level)
                for handler in self.handlers:
                    handler.removeFilter(self.for_the_host)
                self.handlers = []

    def for_the_host(self, record: logging.LogRecord) -> bool:
        """Whether the host's handlers get a record: what they would get anyway, but for the lines of a silent fit."""
        if record.name.partition(".")[0] != self.logger.name:
            return True
        silent = self.progress.get() is False
        return record.levelno >= (max(self.level, logging.WARNING) if silent else self.level)

    def left_to_us(self, record: logging.LogRecord) -> bool:
        """Whether stderr gets a record: what no handler of the host takes, if progress is shown or it is a warning."""
        wanted = record.levelno >= self.level
        if wanted and any(record.levelno >= handler.level for handler in self.handlers):
            return False
        return self.progress.get() is True or (wanted and record.levelno >= logging.WARNING)


def _handlers(logger: logging.Logger | None) -> Iterator[logging.Handler]:
    """What a logger's records reach."""
    while logger is not None:
        yield from logger.handlers
        logger = logger.parent if logger.propagate else None


_display = Display()


def shown(progress: bool) -> AbstractContextManager[None]:
    """Show meanwhile what the library logs, where logging is not set up to; without progress log no more than warnings.

    A script that wants progress should not have to know how logging is set up.
    """
    return _display.shown(progress)


class Progress(Callback):
    """Shows epoch, rate, loss, validation metric, patience and time left."""

    def __init__(self, epochs: int, patience: int, keeper: Keeper, stopper: EarlyStopping) -> None:
        self.epochs, self.patience, self.keeper, self.stopper = epochs, patience, keeper, stopper
        self.live = live(Console(stderr=True))
        self.loss: float | None = None  # of the latest steps, for the bar
        self.epoch = self.step = self.steps = 0
        self.began, self.rate = 0.0, ""
        self.ticks: deque[float] = deque(maxlen=100)  # when the latest steps ended
        self.printed = -math.inf

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the epoch's bar."""
        self.epoch, self.step, self.steps = trainer.current_epoch + 1, 0, int(trainer.num_training_batches)
        self.began = time.monotonic()
        self.ticks.clear()
        self._show(trainer, self.rate or "preparing")

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *args: Any) -> None:
        """Advance by a step."""
        loss = float(outputs["loss"])
        self.loss = loss if self.loss is None else 0.9 * self.loss + 0.1 * loss
        self.step += 1
        self.ticks.append(time.monotonic())
        if (seconds := self.ticks[-1] - self.ticks[0]) > 0:
            rate = (len(self.ticks) - 1) / seconds
            self.rate = f"{rate:,.{0 if rate >= 100 else 1 if rate >= 1 else 2}f} steps/s"
        self._show(trainer, self.rate)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Say what takes the time now."""
        self._show(trainer, "validating")

    def epoch_done(self, trainer: L.Trainer) -> None:
        """Say how the epoch went. The keeper calls it when it has noted the epoch, which no hook comes after."""
        row = self.keeper.curve[-1]
        done = trainer.should_stop or row["epoch"] >= self.epochs
        if self.live is not None:
            self._show(trainer, self.rate)
        elif done or time.monotonic() - self.printed > 10 or len(self.keeper.curve) <= 1:
            self.printed = time.monotonic()
            note = self._note(row["train/loss"])  # the epoch's mean
            log.info(
                f"epoch {int(row['epoch']):3d}/{self.epochs}  {note}  {row['seconds']:.1f} s/epoch"
                + ("" if done else f"  {self._left()}")
            )

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar."""
        if self.live is not None:
            self.live.close(f"done in {_clock(self.keeper.seconds)}")

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        if self.live is not None:
            self.live.close("stopped")

    def _show(self, trainer: L.Trainer, pace: str) -> None:
        if self.live is not None and trainer.is_global_zero:
            curve = self.keeper.curve
            noted = bool(curve) and curve[-1]["epoch"] == self.epoch
            pace = "  ".join(filter(None, [pace, self._left(0.0 if noted else self.step / self.steps)]))
            self.live.show(Status(self.epoch, self.epochs, self.step, self.steps, pace, self._note(self.loss)))

    def _left(self, share: float = 0.0) -> str:
        """Time left, when a share of an epoch is done after those that were noted; early stopping may end it sooner."""
        curve = self.keeper.curve
        if curve:
            # The usual one of late: the first may compile, any may be interrupted, and another machine may go on.
            usual = median(entry["seconds"] for entry in (curve[1:] or curve)[-10:])
        elif share:
            usual = (time.monotonic() - self.began) / share
        else:
            return ""
        done = (int(curve[-1]["epoch"]) if curve else 0) + share
        soonest, latest = (self.patience - self.stopper.wait_count - share) * usual, (self.epochs - done) * usual
        if self.keeper.max_minutes is not None:
            limit = max(0.0, 60 * self.keeper.max_minutes - (time.monotonic() - self.keeper.began))
            soonest, latest = min(soonest, limit), min(latest, limit)
        return f"{_clock(latest)} left" if soonest >= latest else f"{_clock(soonest)} to {_clock(latest)} left"

    def _note(self, loss: float | None) -> str:
        figures = [] if loss is None else [f"loss {loss:.3f}"]
        if self.keeper.curve:
            latest = self.keeper.curve[-1][f"valid/{MONITOR}"]
            figures += [
                f"valid {MONITOR} {latest:.4f}",
                f"best {self.keeper.best_value:.4f} (epoch {self.keeper.best_epoch})",
                f"patience {self.stopper.wait_count}/{self.patience}",
            ]
        return "  ".join(figures)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
