"""Faults beneath writers: the nth operation on the file system fails, or the process "dies" there.

Operations are those that change what is on the disk: opening to write, writes, fsync, renames, unlinks, new folders,
and the writers of polars and safetensors, which write from outside of Python. Three kinds of faults:

- ``error``: the nth operation fails, and the next ones work.
- ``full``: from the nth operation on nothing can be written; names can still be changed and files deleted.
- ``dead``: from the nth operation on nothing happens at all, as after SIGKILL, though the code goes on.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pytest

from marsrec.training import checkpoints

Kind = Literal["error", "full", "dead"]
KINDS: tuple[Kind, ...] = ("error", "full", "dead")
WRITES = ("open", "write", "fsync", "mkdir")
"""What a full disk refuses."""


class DeadError(BaseException):
    """Nothing handles it, as nothing handles SIGKILL."""


@dataclass
class Disk:
    """Counts operations, and fails where it is told to."""

    kind: Kind = "error"
    at: int = 0
    """Number of the operation that fails, from 1 on; 0 for none."""
    operations: list[str] = field(default_factory=list)

    def pass_or_fail(self, operation: str) -> None:
        self.operations.append(operation)
        here = len(self.operations)
        if not self.at or here < self.at:
            return
        if self.kind == "dead":
            raise DeadError
        if here == self.at or (self.kind == "full" and operation in WRITES):
            raise OSError(errno.ENOSPC if operation in WRITES else errno.EIO, f"injected into {operation}")


class TornFile:
    """A file whose writes may fail, each after half of it was written."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def write(self, data: Any) -> Any:
        try:
            self._disk.pass_or_fail("write")
        except BaseException:
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            raise
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "TornFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def injected(disk: Disk) -> Iterator[None]:
    """Let what runs within meet the disk."""
    with pytest.MonkeyPatch.context() as patch:

        def counted(place: Any, name: str) -> None:
            real = getattr(place, name)

            def operation(*given: Any, **more: Any) -> Any:
                disk.pass_or_fail(name)
                return real(*given, **more)

            patch.setattr(place, name, operation)

        def torn(place: Any, name: str, target: Callable[..., Any]) -> None:
            real = getattr(place, name)

            def operation(*given: Any, **more: Any) -> Any:
                result = real(*given, **more)
                try:
                    disk.pass_or_fail("write")
                except BaseException:
                    path = Path(target(*given))
                    os.truncate(path, path.stat().st_size // 2)
                    raise
                return result

            patch.setattr(place, name, operation)

        def opening(real: Callable[..., Any]) -> Callable[..., Any]:
            def opened(file: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
                if not set(mode) & set("wax+"):
                    return real(file, mode, *given, **more)
                disk.pass_or_fail("open")
                return TornFile(real(file, mode, *given, **more), disk)

            return opened

        for name in ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
            counted(os, name)
        torn(pl.DataFrame, "write_parquet", lambda frame, path: path)
        torn(checkpoints, "save_file", lambda tensors, path: path)
        opened = opening(io.open)
        patch.setattr(io, "open", opened)
        patch.setattr(builtins, "open", opened)
        yield


def every_fault(prepare: Callable[[], None], write: Callable[[], object], check: Callable[[bool], None]) -> int:
    """Run `write` with a fault at each of its operations; returns how many faults there were.

    Parameters
    ----------
    prepare
        Makes the old state anew, before each fault.
    write
        Makes the new state.
    check
        Is told whether `write` ended well; raises if what is there is neither the old state nor the new one.
    """
    faults = 0
    for kind in KINDS:
        prepare()
        undisturbed = Disk()
        with injected(undisturbed):
            write()
        check(True)
        for at in range(1, len(undisturbed.operations) + 1):
            prepare()
            disk = Disk(kind, at)
            try:
                with injected(disk):
                    write()
                done = True
            except (OSError, DeadError):
                done = False
            assert len(disk.operations) >= at, "the operations are not the same each time"
            faults += 1
            try:
                check(done)
            except Exception as error:
                error.add_note(f"{kind} at {at}: {' '.join(disk.operations[:at])}")
                raise
    return faults
