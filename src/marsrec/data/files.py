"""A file as it lies on the disk: its bytes and lines, and errors that name it and the place."""

import codecs
import csv
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import polars as pl

from marsrec.errors import DataError, SettingsError

Content = bytes | Path
"""A file, or what it holds where that had to be unpacked or decoded."""

HEAD = 1 << 16
"""How many bytes show how lines end."""


@dataclass(frozen=True)
class Table:
    """The columns that a source has, and how to get some of them."""

    names: list[str]
    read: Callable[[list[str]], pl.DataFrame]
    notes: list[str] = field(default_factory=list)
    """What was recognised or dropped, complete once it was read."""
    parts: list[tuple[str, int]] = field(default_factory=list)
    """Files that it consists of, and their rows, once it was read; empty where there is one."""


@dataclass(frozen=True)
class Form:
    """What is said of text files beside their suffix."""

    separator: str | None = None
    """Between the fields; None = found out."""
    encoding: str = "utf-8"
    drop_bad_rows: bool = False


@contextmanager
def reading(path: Path, kind: str, place: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Turn what a broken file raises into an error that names the file and, where it can be found, the place."""
    try:
        yield
    except DataError:
        raise
    except (pl.exceptions.PolarsError, OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error) as error:
        raise _broken(path, kind, place() or first_line(error)) from error
    except pl.exceptions.PanicException as error:  # no Exception: polars' own assertions
        raise _broken(path, kind, place() or f"the reader gave up ({first_line(error)})") from error


def _broken(path: Path, kind: str, found: str) -> DataError:
    return DataError(f"{path}: cannot be read as {kind}: {found}. Correct the file or fetch it again.")


def first_line(error: BaseException) -> str:
    """What an error says, in a line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def lines(content: Content) -> Iterator[bytes]:
    """All lines, with their ends."""
    if isinstance(content, bytes):
        yield from content.splitlines(keepends=True)
    else:
        with content.open("rb") as file:
            yield from file


def head(content: Content, count: int) -> list[str]:
    """The first lines that are not blank, as text."""
    filled = (line.decode(errors="replace").strip("\r\n") for line in lines(content) if line.strip())
    return list(islice(filled, count))


def as_utf8(content: Content, path: Path, encoding: str) -> tuple[Content, tuple[str, ...]]:
    """Text in UTF-8 whose lines end in a line feed, and notes of what was changed for that."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise SettingsError(
            f"encoding={encoding!r}: not a known encoding. Common ones are utf-8, latin-1, cp1252."
        ) from None
    if name not in ("utf-8", "utf-8-sig"):
        data = content if isinstance(content, bytes) else content.read_bytes()
        with reading(path, f"{encoding} text"):
            content = data.decode(name).encode()
    start = content[:HEAD] if isinstance(content, bytes) else _start(content)
    for end, said in ((b"\n\r", "a line feed and a carriage return"), (b"\r", "a carriage return")):
        if end in start and b"\r\n" not in start and (end != b"\r" or b"\n" not in start):
            data = content if isinstance(content, bytes) else content.read_bytes()
            return data.replace(end, b"\n"), (f"lines end in {said}",)
    return content, ()


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def broken_encoding(content: Content) -> str | None:
    """The first line that is not UTF-8."""
    for number, line in enumerate(lines(content), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return (
                f"line {number:,} of the file is not UTF-8 text; name another encoding by --encoding (latin-1, utf-16)"
            )
    return None
