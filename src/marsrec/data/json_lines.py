"""JSON lines: an object per row, whose fields may lie within others (`properties.product_id`)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import polars as pl

from marsrec.data.checks import counted, quoted
from marsrec.data.files import Content, Form, Table, as_utf8, broken_encoding, lines, reading
from marsrec.errors import DataError

HEAD_LINES = 1000  # to learn the names of the columns
SHOWN = 3  # lines that a message shows

Paths = Mapping[str, tuple[str, ...]]
"""Where columns are found: the keys on the way to each."""


def open_json_lines(content: Content, path: Path, form: Form) -> Table:
    """A file of json objects, one a line."""
    content, changed = as_utf8(content, path, form.encoding)
    kind, where, notes = "json lines", partial(_broken_line, content), list(changed)
    with reading(path, kind, where):
        whole = _whole_lines(content)
        filled = whole.is_not_null() & (whole.str.strip_chars() != "")
        numbers, text = filled.arg_true() + 1, whole.filter(filled)
        head = [json.loads(line) for line in text.head(HEAD_LINES)]
        if not all(isinstance(row, dict) for row in head):
            raise ValueError("a line is not a json object")
        paths = {".".join(place): place for row in head for place in _leaves(row)}
        integer = {
            name for name, place in paths.items() if all(type(_at(row, place)) in (int, type(None)) for row in head)
        }

    def read(columns: list[str]) -> pl.DataFrame:
        wanted = {name: paths[name] for name in columns}
        kept = text
        if odd := _odd_lines(text, wanted):
            if not form.drop_bad_rows:
                raise DataError(_refusal(path, odd, numbers))
            kept = text.filter(~pl.int_range(len(text), eager=True).is_in(list(odd)))
            notes.append(f"dropped {counted(len(odd), 'line')} without plain values of {quoted(columns)}")
        with reading(path, kind, where):
            # As text first: a reader that guesses types rounds large integers beside a float.
            rows = kept.str.json_decode(_schema(list(wanted.values())))
        fields = [
            reduce(lambda place, key: place.struct.field(key), keys, pl.col("row")).alias(name)
            for name, keys in wanted.items()
        ]
        frame = rows.to_frame("row").select(fields)
        return frame.with_columns(_integers(frame[name]) for name in columns if name in integer)

    return Table(list(paths), read, notes)


def _whole_lines(content: Content) -> pl.Series:
    # Read as a table of one column, by a separator that no text holds.
    frame = pl.read_csv(
        content,
        separator="\x1f",
        quote_char=None,
        has_header=False,
        infer_schema=False,
        glob=False,
        truncate_ragged_lines=False,
    )
    return frame.to_series()


def _leaves(row: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in row.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _at(row: Any, place: Sequence[str]) -> Any:
    for key in place:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _schema(places: Sequence[tuple[str, ...]]) -> pl.Struct:
    """Text at each place.

    Examples
    --------
    >>> _schema([("user",), ("of", "item"), ("of", "price")])
    Struct({'user': String, 'of': Struct({'item': String, 'price': String})})
    """
    keys = dict.fromkeys(place[0] for place in places)
    inner = {key: [place[1:] for place in places if place[0] == key and len(place) > 1] for key in keys}
    return pl.Struct({key: _schema(rest) if rest else pl.String for key, rest in inner.items()})


def _odd_lines(text: pl.Series, wanted: Paths) -> dict[int, str]:
    """Lines that the fast reader would take for something else, in silence, and what is odd about them.

    It makes text of objects, lists and truths, a zero byte of half a surrogate pair, and takes the first of two equal
    keys. Lines that might hold such a thing are read once more, by Python.
    """
    suspects = text.str.contains(r"^\s*[^{\s]|\\u[dD][89a-fA-F]")
    for place in wanted.values():
        key = f'"{re.escape(place[-1])}"' + r"\s*:"
        suspects |= text.str.contains(key + r"\s*(\[|\{|true|false)") | (text.str.count_matches(key) > 1)
    odd = {}
    for index in suspects.arg_true():
        if (what := _oddity(text[index], wanted)) is not None:
            odd[index] = what
    return odd


def _oddity(line: str, wanted: Paths) -> str | None:
    twice: set[str] = set()

    def noting(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                twice.add(key)
            made[key] = value
        return made

    try:
        row = json.loads(line, object_pairs_hook=noting)
    except RecursionError:
        return "nests its values too deeply"
    except ValueError:
        row = None
    if not isinstance(row, dict):
        return f"is not a json object: {line[:60].encode()!r}"
    for name, place in wanted.items():
        value = _at(row, place)
        if double := next((key for key in place if key in twice), None):
            return f"has {double!r} twice"
        if isinstance(value, list | dict | bool):
            return f"has {json.dumps(value)[:40]} for '{name}', which is neither text nor a number"
        if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
            return f"has half a character (a lone surrogate) in '{name}'"
    return None


def _refusal(path: Path, odd: Mapping[int, str], numbers: pl.Series) -> str:
    first = "; ".join(f"line {numbers[index]:,} {what}" for index, what in list(odd.items())[:SHOWN])
    more = f"; and {len(odd) - SHOWN:,} more" if len(odd) > SHOWN else ""
    return (
        f"{path}: {first}{more}. Give columns of plain text or numbers, correct the lines, or drop them by "
        "drop_bad_rows (--drop-bad-rows)."
    )


def _integers(text: pl.Series) -> pl.Series:
    """Make integers of text if no digit is lost by it."""
    numbers = text.cast(pl.Int64, strict=False)
    return numbers if numbers.cast(pl.String).eq_missing(text).all() else text


def _broken_line(content: Content) -> str | None:
    if (found := broken_encoding(content)) is not None:
        return found
    for number, line in enumerate(lines(content), 1):
        try:
            whole = not line.strip() or isinstance(json.loads(line), dict)
        except RecursionError:
            return f"line {number:,} nests its values too deeply"
        except ValueError:
            whole = False
        if not whole:
            return f"line {number:,} is not a json object: {line.strip()[:60]!r}"
    return None
