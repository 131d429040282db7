"""What a training shows while it runs: two lines in a terminal, or an output of a notebook, that change in place.

Rich's own display in notebooks needs ipywidgets, and leaves nothing in a notebook that is saved. IPython's displays are
there in every kernel, change in place in every front end, and what they show last is saved.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from marsrec.reprs import html, tag

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

OFTEN = 0.2
"""Seconds between two pictures in a notebook."""


@dataclass(frozen=True)
class Status:
    """How far a training is."""

    epoch: int
    epochs: int
    step: int
    steps: int
    pace: str
    """Rate and time left."""
    figures: str
    """Loss, validation, patience."""

    @property
    def title(self) -> str:
        """Which epoch it is."""
        return f"epoch {self.epoch}/{self.epochs}"


class Live(ABC):
    """A picture of a training that changes in place."""

    @abstractmethod
    def show(self, status: Status) -> None:
        """Show how far it is."""

    @abstractmethod
    def close(self, last: str = "") -> None:
        """Leave it, with a sentence on how it ended where the picture stays."""


def live(console: Console) -> Live | None:
    """The picture that a console can show; None where lines are all that it takes."""
    if console.is_jupyter:
        return InNotebook()
    return InTerminal(console) if console.is_terminal and not console.is_dumb_terminal else None


class InTerminal(Live):
    """A bar with rate and time left, and a line of figures below it."""

    def __init__(self, console: Console) -> None:
        self.bar = _TwoLines(
            TextColumn("{task.description}"),
            BarColumn(bar_width=18),
            TaskProgressColumn(),
            TextColumn("{task.fields[pace]}"),
            console=console,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None, pace="")

    def show(self, status: Status) -> None:
        """See `Live.show`."""
        self.bar.figures = status.figures
        self.bar.update(
            self.task, description=status.title, completed=status.step, total=status.steps, pace=status.pace
        )
        self.bar.start()

    def close(self, last: str = "") -> None:
        """See `Live.close`."""
        self.bar.stop()


class _TwoLines(Bar):
    figures = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text(self.figures, style="progress.elapsed", no_wrap=True, overflow="ellipsis")


class InNotebook(Live):
    """An output of a notebook."""

    def __init__(self) -> None:
        self.handle: DisplayHandle | None = None
        self.drawn = -OFTEN
        self.status: Status | None = None

    def show(self, status: Status) -> None:
        """See `Live.show`."""
        self.status = status
        now = time.monotonic()
        if now - self.drawn >= OFTEN:
            self.drawn = now
            self._draw(status, status.pace)

    def close(self, last: str = "") -> None:
        """See `Live.close`."""
        if self.status is not None:
            self._draw(self.status, last or "stopped")

    def _draw(self, status: Status, pace: str) -> None:
        from IPython.display import display

        share = f"{status.step / status.steps:.0%}"
        done = tag("progress", share, value=status.step, max=status.steps, style="width:14em;vertical-align:middle")
        picture = tag(
            "div",
            tag("div", f"{status.title} ", done, f" {share}  {pace}"),
            tag("div", status.figures, style="opacity:.75"),
            style="font-variant-numeric:tabular-nums",
        )
        text = f"{status.title}  {share}  {pace}  {status.figures}"
        content = {"text/html": html(picture), "text/plain": text}
        if self.handle is None:
            self.handle = display(content, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self.handle.update(content, raw=True)  # type: ignore[no-untyped-call]
