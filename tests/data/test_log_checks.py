import gzip
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

from marsrec.data.log import LogSettings, read_log
from marsrec.errors import DataError

DROP = LogSettings(drop_bad_rows=True)
BAD_ROWS = "user,item,time\na,x,978300760\n,x,978300761\nb,  ,978300762\nb,y,soon\nb,z,\nc,x,-5\nc,y,99999999999\n"


@pytest.fixture
def bad_rows(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(BAD_ROWS)
    return path


@pytest.mark.parametrize(
    "line",
    [
        "log.csv: 6 of 7 rows cannot be used (rows of data are counted from 1",
        "column 'user' is missing in 1 row: 2\n",
        "column 'item' is missing in 1 row: 3 ('  ')\n",
        "column 'time' is not a time (a number, or ISO text such as 2014-07-23T10:00:00Z) in 1 row: 4 ('soon')\n",
        "column 'time' is missing in 1 row: 5\n",
        "column 'time' is negative or before 1970 in 1 row: 6 ('-5')",
        "column 'time' is later than the year 2100, read in seconds, in 1 row: 7 ('99999999999')",
        "drop them by drop_bad_rows (--drop-bad-rows)",
    ],
)
def test_bad_rows_are_named(bad_rows: Path, line: str) -> None:
    with pytest.raises(DataError) as caught:
        read_log(bad_rows)
    assert line in str(caught.value)


def test_bad_rows_are_dropped_and_counted(bad_rows: Path) -> None:
    log = read_log(bad_rows, DROP)
    assert log.frame.rows() == [("a", "x", 978300760)]
    (note,) = (note for note in log.notes if note.startswith("dropped"))
    assert note.startswith("dropped 6 bad rows: column 'user' is missing in 1 row: 2; ")


def test_only_bad_rows_are_an_error_also_when_dropping() -> None:
    data = pl.DataFrame({"user": [None, None], "item": ["x", "y"], "time": [1, 2]})
    with pytest.raises(DataError, match=r"dataframe: 2 of 2 rows cannot be used(.|\n)*No row is left"):
        read_log(data, DROP)


def test_many_bad_rows_show_the_first_few() -> None:
    data = pl.DataFrame({"user": ["a"] * 2000, "item": ["x"] * 2000, "time": [1] * 1990 + [None] * 10})
    with pytest.raises(DataError, match=r"missing in 10 rows: 1,991, 1,992, 1,993, 1,994, 1,995 and 5 more"):
        read_log(data)


def test_float_ids_must_be_whole() -> None:
    data = pd.DataFrame({"user": [1.0, float("nan"), 2.5], "item": [1, 2, 3], "time": [1, 2, 3]})
    with pytest.raises(DataError, match=r"missing in 1 row: 2\n.*not text or a whole number.* in 1 row: 3 \(2.5\)"):
        read_log(data)
    assert read_log(data, DROP).frame.rows() == [(1, 1, 1)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.csv", b"", "the file is empty"),
        ("log.csv", b"\n\n", "log.csv: "),
        ("log.csv", b"user,item,time\n", "there are no rows"),
        ("log.csv", b"user,item,time\n\n\n", "there are no rows"),
        ("log.csv", b"user,item,time\na,x,1\na,x,2,9\n", "line 3 of the file has 4 fields and the first line has 3"),
        ("log.csv", b"user,item,time\na,x\n", "column 'time' is missing in 1 row: 1"),
        ("log.csv", b"user,item,time\na,x,1\n\xe9,x,2\n", "line 3 of the file is not UTF-8"),
        (
            "log.csv",
            b"a;b;c\n1;2;3\n",
            "found no user column, no item column, no time column among the columns 'a', 'b', 'c'. "
            "Name what you mean: --user COLUMN --item COLUMN --time COLUMN of `marsrec fit` and `prepare`",
        ),
        ("log.jsonl", b'{"user": 1, "item": 1, "time": 1}\n{"user": 1, "it', 'line 2 is not a json object: b\'{"user"'),
        ("log.jsonl", b'[{"user": 1, "item": 1, "time": 1}]\n', "line 1 is not a json object"),
        ("log.jsonl", b"\n", "found no user column"),
        ("log.parquet", b"PAR1 no parquet at all", "log.parquet: cannot be read as parquet"),
        ("log.dat", b"1,2,3,4\n", "read as MovieLens' user::item::rating::time, and the first line is '1,2,3,4'"),
        ("ratings.dat", b"1::2::5::978300760\n1::2\n", "column 'time' is missing in 1 row: 2"),
        ("log.csv.gz", b"user,item,time\n", "log.csv.gz: cannot be read as gzip: Not a gzipped file"),
        (
            "log.csv.gz",
            gzip.compress(b"user,item,time\na,x,1\n" * 99, mtime=0)[:-20],
            "log.csv.gz: cannot be read as gzip",
        ),
        ("log.xlsx", b"PK", "cannot be read as a workbook: calamine error"),
        ("log.xyz", b"PK", "'.xyz' is not a format that can be read. These are, each also with .gz: .csv, .tsv"),
    ],
)
def test_broken_files_name_the_file_and_the_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_log(tmp_path / name)
    assert message in str(caught.value)
    assert name in str(caught.value)


def test_a_json_line_broken_after_the_head(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"user": 1, "item": 1, "time": 1}\n' * 1500 + "oops\n")
    with pytest.raises(DataError, match=r"line 1,501 is not a json object: b'oops"):
        read_log(path)


def test_blank_lines_at_the_end_are_skipped_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"\xef\xbb\xbfuser,item,time\r\na,x,1\r\n\r\n\r\n")
    log = read_log(path)
    assert log.frame.rows() == [("a", "x", 1)]
    assert "skipped 2 blank lines at the end" in log.notes


def test_no_file_and_no_dataframe(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv: there is no such file"):
        read_log(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"cannot read a dict"):
        read_log({"user": [1]})  # type: ignore[arg-type]
    with pytest.raises(
        DataError, match=r"cannot convert the columns 'user', 'item', 'time'.*Give each column one type"
    ):
        read_log(pd.DataFrame({"user": [1, "a"], "item": [1, 2], "time": [1, 2]}))
    with pytest.raises(DataError, match=r"column 'user' holds List\(Int64\), and ids are text or integers"):
        read_log(pl.DataFrame({"user": [[1]], "item": [1], "time": [1]}))
