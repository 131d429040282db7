"""Writing files and folders so that a reader sees the old one or the new one, never half of one."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it replaces `path` when the block ends well, and vanishes when it does not.

    Parameters
    ----------
    path : Path
        The folder to write or replace.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mark = uuid.uuid4().hex[:8]
    temporary = path.with_name(f".{path.name}.{mark}")
    replaced = path.with_name(f".{path.name}.{mark}.old")
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            path.rename(replaced)
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(replaced, ignore_errors=True)
