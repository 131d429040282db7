"""Broken logs end in an error that names the place, and none is silently read as something else."""

import json
import random
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from marsrec.data.log import LogSettings, read_log
from marsrec.errors import MarsrecError

GOOD = '{"user": "ann", "item": "tea", "time": 978300760}'
HEADER = "user,item,time\n"
ROW = ("ann", "tea", 978300760)


def read(folder: Path, name: str, content: bytes | str, settings: LogSettings | None = None) -> pl.DataFrame:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_log(path, settings or LogSettings()).frame


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("null", "line 2 is not a json object: b'null'"),
        ("5", "line 2 is not a json object: b'5'"),
        ("[]", r"line 2 is not a json object: b'\[\]'"),
        (
            '{"user": "b", "item": ' + "[" * 100_000 + "]" * 100_000 + ', "time": 1}',
            "line 2 nests its values too deeply",
        ),
        (GOOD[:-1] + ', "user": "bob"}', "line 2 has 'user' twice"),
        (GOOD.replace("ann", "\\ud800"), "line 2 has half a character"),
    ],
)
@pytest.mark.parametrize("before", [1, 1500])
def test_json_lines_that_are_no_rows(tmp_path: Path, line: str, message: str, before: int) -> None:
    content = f"{GOOD}\n" * before + line + "\n"
    with pytest.raises(MarsrecError, match=message.replace("line 2", f"line {before + 1:,}")):
        read(tmp_path, "log.jsonl", content)


@pytest.mark.parametrize("value", ["[1]", '{"a": 1}', "true"])
@pytest.mark.parametrize("before", [0, 1500])
def test_json_values_that_are_no_ids_are_refused_wherever_they_stand(tmp_path: Path, value: str, before: int) -> None:
    content = f"{GOOD}\n" * before + GOOD.replace('"tea"', value) + "\n"
    with pytest.raises(MarsrecError):
        read(tmp_path, "log.jsonl", content)
    if before:
        kept = read(tmp_path, "log.jsonl", content, LogSettings(drop_bad_rows=True))
        assert kept.rows() == [ROW] * before


def test_other_fields_may_hold_anything(tmp_path: Path) -> None:
    line = GOOD[:-1] + ', "tags": ["a", {"user": true}], "note": "\\ud83d\\ude00"}'
    assert read(tmp_path, "log.jsonl", line).rows() == [ROW]


@pytest.mark.parametrize("end", ["\r", "\n\r", "\r\n"])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_line_ends_never_become_part_of_an_id(tmp_path: Path, end: str, name: str) -> None:
    lines = [HEADER.strip(), "ann,tea,978300760"] * (name == "log.csv") or [GOOD]
    assert read(tmp_path, name, end.join([*lines, lines[-1], ""])).rows() == [ROW] * 2


def test_mixed_line_ends_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MarsrecError, match=r"row 2 has a carriage return where the line begins"):
        read(tmp_path, "log.csv", HEADER + "a,x,978300760\r\n\rb,y,978300761\r\n")


def test_a_carriage_return_beside_too_many_fields(tmp_path: Path) -> None:
    with pytest.raises(MarsrecError, match=r"log\.csv: cannot be read as text with separators: line"):
        read(tmp_path, "log.csv", HEADER + "a,x,1\nb\rc,y,2,3\n")


def test_fields_beyond_the_limit_of_the_csv_module(tmp_path: Path) -> None:
    long = "x" * 200_000
    assert read(tmp_path, "log.csv", HEADER + f"{long},tea,978300760\n")["user"].to_list() == [long]
    with pytest.raises(MarsrecError, match="line 2 of the file has 4 fields"):
        read(tmp_path, "log.csv", HEADER + f"{long},tea,978300760,1\n")


def test_dates_beyond_the_calendar_are_shown_all_the_same() -> None:
    times = pl.Series([datetime(2020, 1, 1)] * 2).dt.cast_time_unit("ms").to_physical()
    frame = pl.DataFrame({"user": 1, "item": 1, "time": times.scatter([1], [10**15]).cast(pl.Datetime("ms"))})
    with pytest.raises(MarsrecError, match=r"later than the year 2100 in 1 row: 2 \(beyond the calendar\)"):
        read_log(frame)


FORMS = {
    "log.csv": HEADER + "".join(f"u{i % 3},i{i % 5},{978300760 + i}\n" for i in range(20)),
    "log.jsonl": "".join(
        json.dumps({"user": f"u{i % 3}", "item": i % 5, "time": 978300760 + i}) + "\n" for i in range(20)
    ),
    "log.inter": "user_id:token\titem_id:token\ttimestamp:float\n" + "u\ti\t978300760\n" * 20,
}


@pytest.mark.parametrize("name", [*FORMS, "log.parquet"])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.filterwarnings("ignore:.*times are equal", "ignore:.*numbers were taken")
def test_mutated_logs_are_read_or_refused(tmp_path: Path, name: str, drop: bool) -> None:
    """Bytes overwritten, deleted, inserted and repeated: each ends in a log or in an error of ours."""
    if name == "log.parquet":
        path = tmp_path / name
        pl.DataFrame({"user": ["a", "b"] * 50, "item": [1, 2] * 50, "time": [978300760] * 100}).write_parquet(path)
        whole = path.read_bytes()
    else:
        whole = FORMS[name].encode()
    chance = random.Random(f"{name} {drop}")
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 3, 10))):
            place = chance.randrange(len(data) + 1)
            some = chance.choice(
                (
                    b"\x00",
                    b"\r",
                    b'"',
                    b"\n\n",
                    b"\xff",
                    b"{",
                    b",,",
                    b"null",
                    b"\\ud800",
                    bytes([chance.randrange(256)]),
                )
            )
            data[place : place + chance.choice((0, 1, 5))] = some
        with suppress(MarsrecError):
            read(tmp_path, name, bytes(data), LogSettings(drop_bad_rows=drop))
