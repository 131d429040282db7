"""The formats that a log can come in: files by their suffix, several of them, folders of parts, and dataframes."""

import gzip
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from marsrec.data.checks import quoted
from marsrec.data.delimited import open_delimited, open_double_colon
from marsrec.data.files import Content, Form, Table, first_line, reading
from marsrec.data.json_lines import open_json_lines
from marsrec.errors import DataError, needs

READ = (
    ".csv, .tsv, .txt, .parquet, .jsonl, .ndjson, .json (a line per row), .xlsx, .inter (RecBole), .dat and .data "
    "(MovieLens)"
)
PARTITION = re.compile(r"([^=]+)=(.*)")
"""A folder that names a column and its value, as Hive and Spark write them."""
PATTERN = re.compile(r"[*?\[]")
"""What makes a path a pattern, unless there is a file of that name."""
_PLAIN = Form()


def open_dataframe(source: Any) -> Table:
    """A dataframe of any library that narwhals knows."""
    try:
        frame = nw.from_native(source)
        names = [str(name) for name in frame.collect_schema().names()]
    except (TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"dataframe: cannot read a {type(source).__name__} ({first_line(error)}). "
            "Give a path, or a dataframe of pandas, polars or pyarrow with a name for each column."
        ) from error

    def read(columns: list[str]) -> pl.DataFrame:
        try:
            chosen = frame.select(columns)
            return (chosen.collect("polars") if isinstance(chosen, nw.LazyFrame) else chosen).to_polars()
        except (TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"dataframe: cannot convert the columns {quoted(columns)} ({first_line(error)}). "
                "Give each column one type: ids all text or all integers, times all numbers, text or datetimes."
            ) from error

    return Table(names, read)


def open_files(source: str | Path | Sequence[str | Path], form: Form) -> Table:
    """A file, a folder of parts, a pattern, or several of them."""
    if isinstance(source, str | Path):
        files, root = parts(Path(source).expanduser()), Path(source).expanduser()
    else:
        files = [file for one in source for file in parts(Path(one).expanduser())]
        root = Path()
        if not files:
            raise DataError("an empty list of files. A log needs at least one.")
    if files == [root]:
        return open_file(root, form)
    return _joined(files, root, form)


def parts(path: Path) -> list[Path]:
    """The files that a path means: itself, what a pattern finds, or what a folder holds, in order of their names.

    Hidden files, and those that begin with an underscore, are marks that a writer leaves beside the parts.
    """
    if path.is_dir():
        inside = [file.relative_to(path) for file in path.rglob("*") if file.is_file()]
        found = sorted(file for file in inside if not any(part[0] in "._" for part in file.parts))
        known = [path / file for file in found if _suffix(file) in _OPENERS]
        if not known:
            raise DataError(f"{path}: a folder without a file that can be read. These can, each also with .gz: {READ}.")
        return known
    if not path.exists() and PATTERN.search(str(path)):
        fixed = next(place for place, part in enumerate(path.parts) if PATTERN.search(part))
        pattern = str(Path(*path.parts[fixed:]))
        matching = sorted(file for file in Path(*path.parts[:fixed]).glob(pattern) if file.is_file())
        if not matching:
            raise DataError(f"{path}: no file matches this pattern.")
        return matching
    return [path]


def open_file(path: Path, form: Form = _PLAIN) -> Table:
    """A file, by its suffix."""
    zipped, suffix = path.suffix.lower() == ".gz", _suffix(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Check the path.")
    if suffix not in _OPENERS:
        raise DataError(f"{path}: '{suffix}' is not a format that can be read. These are, each also with .gz: {READ}.")
    with reading(path, "gzip" if zipped else suffix):
        content: Content = gzip.decompress(path.read_bytes()) if zipped else path
        empty = not content if isinstance(content, bytes) else not path.stat().st_size
    if empty:
        raise DataError(f"{path}: the file is empty. A log needs at least one user, item and time.")
    return _OPENERS[suffix](content, path, form)


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def _joined(files: list[Path], root: Path, form: Form) -> Table:
    """Several files of the same columns, one after the other; a folder's name may hold a column (`day=2026-03-01`)."""
    tables = [open_file(file, form) for file in files]
    held = [_partition(file, root) for file in files]
    named = [sorted({*table.names, *values}) for table, values in zip(tables, held, strict=True)]
    for file, names in zip(files, named, strict=True):
        if names != named[0]:
            raise DataError(
                f"{file}: has the columns {quoted(names)}, and {files[0]} has {quoted(named[0])}. "
                "The parts of a log have the same columns; leave out what is no part of it."
            )
    lengths: list[tuple[str, int]] = []
    notes = [f"{len(files):,} files, from {files[0].name} to {files[-1].name}"]

    def read(columns: list[str]) -> pl.DataFrame:
        frames = []
        for file, table, values in zip(files, tables, held, strict=True):
            own = [name for name in columns if name not in values]
            frame = table.read(own) if own else pl.DataFrame()
            frames.append(
                frame.with_columns(pl.lit(values[n]).alias(n) for n in columns if n in values).select(columns)
            )
            lengths.append((str(file), frame.height))
        notes.extend(dict.fromkeys(note for table in tables for note in table.notes))
        with reading(root, "parts of one log"):
            return pl.concat(_alike(frames), how="vertical_relaxed")

    return Table([*tables[0].names, *(name for name in held[0] if name not in tables[0].names)], read, notes, lengths)


def _alike(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Text where a column is text in one of them: json lines make integers of ids where all of a file are."""
    text = {name for frame in frames for name, dtype in frame.schema.items() if dtype == pl.String}
    return [
        frame.with_columns(pl.col(name).cast(pl.String) for name in text if frame.schema[name].is_integer())
        for frame in frames
    ]


def _partition(file: Path, root: Path) -> dict[str, str]:
    inside = file.relative_to(root).parts[:-1] if file.is_relative_to(root) else ()
    return {match[1]: match[2] for part in inside if (match := PARTITION.fullmatch(part))}


def _open_parquet(content: Content, path: Path, form: Form) -> Table:
    with reading(path, "parquet"):
        table = pl.scan_parquet(content, glob=False, hive_partitioning=False)
        names = table.collect_schema().names()

    def read(columns: list[str]) -> pl.DataFrame:
        with reading(path, "parquet"):
            return table.select(columns).collect()

    return Table(names, read)


def _open_excel(content: Content, path: Path, form: Form) -> Table:
    with needs("excel", f"{path}: reading .xlsx"):
        from fastexcel import FastExcelError
    with reading(path, "a workbook"):
        try:
            frame = pl.read_excel(content, engine="calamine")
        except FastExcelError as error:
            raise ValueError(str(error)) from error
    return Table(frame.columns, frame.select, [f"the first sheet of {path.name}"])


_OPENERS: dict[str, Callable[[Content, Path, Form], Table]] = {
    **dict.fromkeys((".csv", ".txt"), partial(open_delimited, usual=",", quote='"')),
    ".tsv": partial(open_delimited, usual="\t", quote='"'),
    ".inter": partial(open_delimited, usual="\t", quote=None),
    ".data": partial(open_delimited, usual="\t", quote=None),
    ".dat": open_double_colon,
    ".parquet": _open_parquet,
    ".xlsx": _open_excel,
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), open_json_lines),
}
