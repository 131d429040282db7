"""Progress of a training: a live bar in a terminal, a logged line per epoch elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.callbacks import Callback, EarlyStopping
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from marsrec.training.settings import MONITOR

if TYPE_CHECKING:
    from marsrec.training.fit import Keeper

log = logging.getLogger(__name__)


class Stderr(logging.Handler):
    """Writes messages as they are. Unlike logging's own handler it finds the stderr of the moment, above a bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a message."""
        sys.stderr.write(f"{self.format(record)}\n")


@contextmanager
def shown(progress: bool) -> Iterator[None]:
    """Show meanwhile what the library logs, where logging is not set up to; without progress log no more than warnings.

    A script that wants progress should not have to know how logging is set up.
    """
    logger, handler = logging.getLogger("marsrec"), Stderr()
    level, propagate = logger.level, logger.propagate
    if not progress:
        logger.setLevel(max(logger.getEffectiveLevel(), logging.WARNING))
    elif not (logger.hasHandlers() and logger.isEnabledFor(logging.INFO)):
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False  # a handler further up would say the same again
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class Progress(Callback):
    """Shows epoch, loss, validation metric, patience and time left."""

    def __init__(self, epochs: int, patience: int, keeper: Keeper, stopper: EarlyStopping) -> None:
        self.epochs, self.patience, self.keeper, self.stopper = epochs, patience, keeper, stopper
        self.console = Console(stderr=True)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("preparing", total=None, note="", left="")
        self.loss = float("nan")  # of the latest steps, for the bar
        self.printed = -math.inf

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the bar."""
        if trainer.is_global_zero:
            self.bar.start()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the epoch's bar."""
        self.bar.reset(self.task, total=trainer.num_training_batches, start=True)
        self.bar.update(self.task, description=f"epoch {trainer.current_epoch + 1}/{self.epochs}")

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *args: Any) -> None:
        """Advance by a step."""
        loss = float(outputs["loss"])
        self.loss = loss if self.loss != self.loss else 0.9 * self.loss + 0.1 * loss
        self.bar.update(self.task, advance=1, note=self._note(self.loss))

    def epoch_done(self, trainer: L.Trainer) -> None:
        """Say how the epoch went. The keeper calls it when it has noted the epoch, which no hook comes after."""
        row = self.keeper.curve[-1]
        waited = self.stopper.wait_count
        # the usual one of late: the first may compile kernels, any may be interrupted, and another machine may go on
        usual = median(entry["seconds"] for entry in (self.keeper.curve[1:] or self.keeper.curve)[-10:])
        soonest, latest = (self.patience - waited) * usual, (self.epochs - int(row["epoch"])) * usual
        left = f"{_clock(latest)} left" if soonest >= latest else f"{_clock(soonest)} to {_clock(latest)} left"
        self.bar.update(self.task, left=left)
        done = trainer.should_stop or row["epoch"] >= self.epochs
        if not self.console.is_terminal and (
            done or time.monotonic() - self.printed > 10 or len(self.keeper.curve) <= 1
        ):
            self.printed = time.monotonic()
            note = self._note(row["train/loss"])  # the epoch's mean
            log.info(
                f"epoch {int(row['epoch']):3d}/{self.epochs}  {note}  {row['seconds']:.1f} s/epoch"
                + ("" if done else f"  {left}")
            )

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Close the bar."""
        self.bar.stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self.bar.stop()

    def _note(self, loss: float) -> str:
        note = f"loss {loss:.3f}"
        if self.keeper.curve:
            latest = self.keeper.curve[-1][f"valid/{MONITOR}"]
            note += (
                f"  valid {MONITOR} {latest:.4f}  best {self.keeper.best_value:.4f} (epoch {self.keeper.best_epoch})"
                f"  patience {self.stopper.wait_count}/{self.patience}"
            )
        return note


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
