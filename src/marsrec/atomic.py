"""Writing files and folders so that a reader sees the old one or the new one, never half of one."""

import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
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
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, marker: str) -> Iterator[Path]:
    """Give a temporary folder to fill; it takes the place of `path` when the block ends well.

    A new folder appears in one step. An old one is moved aside first and deleted last; if anything fails in between, it
    is moved back.

    Parameters
    ----------
    path : Path
        The folder to write or replace.
    marker : str
        A file that tells a folder of this kind: one that has other things in it but not this is not replaced.
    """
    path = path.absolute()
    refuse_foreign(path, marker)
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex[:8]
    temporary = path.with_name(f".{path.name}.{mark}")
    replaced = path.with_name(f".{path.name}.{mark}.old")
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                with file.open("rb+") as written:
                    os.fsync(written.fileno())
        if path.exists():
            path.rename(replaced)
        try:
            temporary.rename(path)
        except BaseException:
            if replaced.exists():
                replaced.rename(path)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
