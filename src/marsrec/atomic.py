"""Writing files and folders so that a reader sees the old one or the new one, never half of one."""

import errno
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from marsrec.errors import DataError, SettingsError

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: IO[str]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


LOCK = "lock"
"""File in a folder that the process that uses it holds locked."""

FULL = ("No space left on device", "Disk quota exceeded", "os error 28", "code: 28")
"""What an error says, whoever raised it, where the disk is full."""
PATIENCE = 5.0
"""Seconds that a process waits for its turn to exchange folders."""


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; it replaces `path` when the block ends well, and vanishes when it does not.

    Parameters
    ----------
    path : Path
        The file to write or replace.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_file(path) as temporary:
    ...     _ = temporary.write_text("done")
    >>> path.read_text()
    'done'
    """
    path = path.absolute()
    with _beside(path) as folder:
        temporary = folder / path.name
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)


@contextmanager
def atomic_folder(path: Path, marker: str) -> Iterator[Path]:
    """Give a temporary folder to fill; it takes the place of `path` when the block ends well.

    A new folder appears in one step. An old one is moved aside first and deleted last. If anything fails in between, it
    is moved back; if the process is killed there, `recover` does so. Not for a folder within another temporary one,
    which is locked, and appears as a whole anyway.

    Parameters
    ----------
    path : Path
        The folder to write or replace.
    marker : str
        A file that tells a folder of this kind: one that has other things in it but not this is not replaced.
    """
    path = path.absolute()
    recover(path)
    refuse_foreign(path, marker)
    with _beside(path) as temporary:
        yield temporary
        for place in (*temporary.rglob("*"), temporary):
            _flush(place)
        with _turn(path.parent):
            replaced = temporary.with_name(f"{temporary.name}.old")
            if path.exists():
                path.rename(replaced)
            try:
                temporary.rename(path)
            except BaseException:
                if replaced.exists() and not path.exists():
                    replaced.rename(path)
                raise
            _flush(path.parent)
            if replaced.exists():
                replaced.rename(temporary)  # which is deleted, and never put back when half of it is gone


def recover(path: Path) -> None:
    """Put a folder back that `atomic_folder` had moved aside when its process was killed; else do nothing.

    Whoever finds no folder where one may have been calls this before giving up.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / ".model.0a1b2c3d.old").mkdir()
    >>> recover(folder / "model")
    >>> [file.name for file in folder.iterdir()]
    ['model']
    """
    path = path.absolute()
    if path.exists() or not any(_left(path, ".old")):
        return
    with _turn(path.parent), suppress(OSError):  # another may be faster, or the disk be there to be read only
        if not path.exists():  # whoever had the turn before may have put the new one there
            max(_left(path, ".old"), key=lambda place: place.stat().st_mtime).rename(path)
            _flush(path.parent)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that is held locked; those that killed processes left of it are deleted."""
    _make(path.parent)
    _sweep(path)
    while True:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        temporary.mkdir()
        with _held(temporary):
            if not temporary.exists():  # somebody swept it away before it was locked
                continue
            try:
                yield temporary
            except Exception as error:
                if not isinstance(error, OSError) and any(mark in str(error) for mark in FULL):
                    # Writers outside of Python have errors of their own for it.
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
                raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            return


def _left(path: Path, end: str = "") -> Iterator[Path]:
    """Temporary folders of `path`, or with `end` ".old" those that were moved aside."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}{re.escape(end)}")
    with suppress(OSError):
        yield from [place for place in path.parent.iterdir() if name.fullmatch(place.name) and place.is_dir()]


def _sweep(path: Path) -> None:
    """Delete what killed processes left of writing `path`. A temporary folder that is locked is in use."""
    for place in _left(path):
        with suppress(OSError), _held(place, wait=False) as ours:
            if ours:
                shutil.rmtree(place, ignore_errors=True)
    if any(_left(path, ".old")):
        with _turn(path.parent):
            for place in _left(path, ".old"):
                if path.exists():
                    shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _held(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a folder locked until the block or the process ends; tells whether that came about."""
    if sys.platform == "win32":  # folders cannot be locked there: nothing is taken for left behind
        yield False
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            held = True
        except OSError:  # in use, or a file system without locks
            held = False
        yield held
    finally:
        os.close(place)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Exchange folders within `folder` one process at a time.

    Each turn takes milliseconds. Whoever waits for longer does without: then it is something else that holds the lock.
    """
    until = time.monotonic() + PATIENCE
    while True:
        with _held(folder, wait=False) as ours:
            if ours or sys.platform == "win32" or time.monotonic() > until:
                yield
                return
        time.sleep(0.01)


def _make(folder: Path) -> None:
    """Make a folder and those above it, so that a power cut leaves them there."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _flush(folder.parent)


def _flush(place: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    folder = place.is_dir()
    if folder and sys.platform == "win32":  # which keeps them by itself
        return
    opened = os.open(place, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(opened)
    except OSError as error:
        if not folder or error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # a file system that cannot do so for folders
            raise
    finally:
        os.close(opened)


@contextmanager
def alone(folder: Path, what: str) -> Iterator[None]:
    """Keep other processes off a folder; raises if one uses it. The lock ends with the process that holds it.

    Parameters
    ----------
    folder : Path
        Where the lock lies; made if it is not there.
    what : str
        Completes the sentence "another process works on this …".
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w", encoding="utf-8") as file:
        try:
            _lock(file)
        except OSError:
            raise SettingsError(
                f"{folder}: another process works on this {what}. Wait for it, end it, or choose another folder."
            ) from None
        yield


def refuse_foreign(path: Path, marker: str) -> None:
    """Raise unless `path` is missing, empty, or a folder that has `marker` in it and so may be replaced."""
    if path.is_file():
        raise DataError(f"{path}: is a file. Choose a folder that does not exist yet.")
    if path.is_dir() and any(path.iterdir()) and not (path / marker).exists():
        raise DataError(f"{path}: holds other files, which would be lost. Choose a folder that does not exist yet.")
