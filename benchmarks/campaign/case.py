"""What a case of the campaign is, and how it may end."""

import multiprocessing
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

Outcome = Literal["refused", "answered"]
"""A message of ours that names the place; or the right answer. A `LostError` or any other exception fails a case."""


class LostError(Exception):
    """Something that was there, or was said to be there, is not; or an answer is wrong."""


class Kind(ABC):
    """One kind of attack. All that is random in a case comes of its `Random`, so that a case can be had again."""

    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    """Of the time, in relation to those of other kinds."""

    def __init__(self, folder: Path) -> None:
        """Prepare what all cases start from, in a folder of this kind's own."""
        self.folder = folder

    @classmethod
    def reason_against(cls) -> str | None:
        """Why it cannot be tried on this machine; None where it can."""
        return None

    @abstractmethod
    def run(self, chance: Random, place: Path) -> Outcome:
        """Try one case in a folder that is empty."""

    def close(self) -> None:  # noqa: B027  # few start anything
        """End what was started."""


def mutated(data: bytes, chance: Random) -> bytes:
    """Some bytes overwritten, deleted, inserted, repeated or cut off."""
    some = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 10))):
        at = chance.randrange(len(some) + 1)
        match chance.randrange(6):
            case 0:
                some[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del some[at : at + chance.choice((1, 5, 40))]
            case 2:
                some[at : at + chance.choice((0, 1, 5))] = chance.choice(TOKENS)
            case 3:
                some[at:at] = some[at : at + chance.choice((3, 20, 100))]
            case 4 if chance.random() < 0.2:
                del some[at:]
            case _:
                if at < len(some):
                    some[at] ^= 1 << chance.randrange(8)
    return bytes(some)


TOKENS = tuple(
    token.encode("utf-8", "surrogatepass")
    for token in (
        *("\x00", "\r", "\n", "\r\n", "\n\r", '"', "'", ",", "\t", "|", ";", "{", "}", "[", "]", ":", "\\", "\\ud800"),
        *(
            "null",
            "NULL",
            "NaN",
            "true",
            "1e999",
            "-1",
            "0",
            "9" * 20,
            "9" * 400,
            "1.5",
            "1,5",
            "\ufeff",
            "\ud800",
            "é",
        ),
        *("2262-04-11", "9999-12-31T23:59:59Z", '"user":', "[" * 500, '{"a":' * 300, "x" * 5000),
    )
)

PROCESSES: Any = multiprocessing.get_context("forkserver" if sys.platform != "win32" else "spawn")
"""Of children that are killed: they start from one that has imported all that they need."""
if sys.platform != "win32":
    PROCESSES.set_forkserver_preload(["benchmarks.campaign.children"])


def killed_after(seconds: float, target: Callable[..., None], *given: object) -> bool:
    """Run a function in a process that is killed after so long; whether it was."""
    child = PROCESSES.Process(target=target, args=given, daemon=False)
    child.start()
    child.join(seconds)
    running = child.is_alive()
    if running:
        child.kill()
    child.join()
    return bool(running)


def finished(target: Callable[..., None], *given: object) -> None:
    """Run a function in a process of its own to its end."""
    child = PROCESSES.Process(target=target, args=given, daemon=False)
    child.start()
    child.join(600)
    if child.exitcode != 0:
        raise RuntimeError(f"{target.__name__}{given} ended with {child.exitcode}")


def scratch(inside: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=inside))
