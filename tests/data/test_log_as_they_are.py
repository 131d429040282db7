"""Logs as they are: other separators, encodings, times, several files, fields within fields, workbooks."""

import gzip
import warnings
from pathlib import Path

import polars as pl
import pytest

from marsrec.data.log import LogSettings, read_log
from marsrec.data.source import open_data
from marsrec.errors import DataError, SettingsError

ROWS = [("ann", "tea", 978300760), ("bob", "jam", 978300761)]
DROP = LogSettings(drop_bad_rows=True)


def written(folder: Path, content: str | bytes, name: str = "log.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["log.csv", "log.tsv", "log.txt"])
def test_the_separator_is_found_out(tmp_path: Path, mark: str, name: str) -> None:
    lines = [mark.join(map(str, row)) for row in [("user", "item", "time"), *ROWS]]
    log = read_log(written(tmp_path, "\n".join(lines), name))
    assert log.frame.rows() == ROWS
    usual = {"log.tsv": "\t"}.get(name, ",")
    assert (f"fields are separated by {mark!r}" in log.notes) == (mark != usual)


def test_a_separator_that_is_named_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path, "user:item:time\nann:a,b:978300760\n")
    assert read_log(path, LogSettings(separator=":")).frame.row(0) == ("ann", "a,b", 978300760)
    with pytest.raises(SettingsError, match="separator='::': one character is wanted"):
        read_log(path, LogSettings(separator="::"))


def test_decimal_commas_of_times_and_ratings(tmp_path: Path) -> None:
    path = written(tmp_path, "user;item;rating;time\nann;tea;4,5;978300760,5\nbob;jam;2,0;978300761\n")
    log = read_log(path, LogSettings(rating="rating", min_rating=3))
    assert log.frame.rows() == [("ann", "tea", 978300760500)]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_other_encodings(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, "user,item,time\nMüller,Käse,978300760\n".encode(encoding))
    assert read_log(path, LogSettings(encoding=encoding)).frame.row(0)[:2] == ("Müller", "Käse")
    with pytest.raises(
        DataError, match=r"line 1 of the file is not UTF-8|line 2 .* not UTF-8 text; name another encod"
    ):
        read_log(path)
    with pytest.raises(SettingsError, match="encoding='klingon': not a known encoding"):
        read_log(path, LogSettings(encoding="klingon"))


@pytest.mark.parametrize(
    ("texts", "proposed"),
    [
        (["23.07.2014 10:00", "24.07.2014 9:30"], '--time-format "%d.%m.%Y %H:%M")'),
        (["01/02/2014", "02/02/2014"], '--time-format "%d/%m/%Y" or "%m/%d/%Y")'),  # nothing tells day from month
        (["01/02/2014", "02/13/2014", "soon"], '--time-format "%m/%d/%Y")'),
        (["soon", "later"], "2014-07-23T10:00:00Z) in 2 rows: 1 ('soon'), 2 ('later')\n"),
        (["2014-07-23", "2014-07-24", "23.07.2014"], "in 1 row: 3 ('23.07.2014')\n"),  # most are read already
    ],
)
def test_the_form_of_times_is_proposed(tmp_path: Path, texts: list[str], proposed: str) -> None:
    with pytest.raises(DataError) as caught:
        read_log(written(tmp_path, "user,item,time\n" + "".join(f"ann,tea,{text}\n" for text in texts)))
    assert proposed in str(caught.value)
    assert str(caught.value).endswith("correct them, or how they are read.") == proposed.startswith("--")


def test_a_form_of_times(tmp_path: Path) -> None:
    path = written(tmp_path, "user,item,time\nann,tea,23.07.2014 10:00\nbob,jam,24/07/2014\n")
    german = LogSettings(time_format="%d.%m.%Y %H:%M")
    with pytest.raises(DataError, match=r"is not a time .* in 1 row: 2 \('24/07/2014'\)"):
        read_log(path, german)
    assert read_log(path, german.model_copy(update={"drop_bad_rows": True})).frame["time"].to_list() == [1406109600]


def test_days_since_1970() -> None:
    frame = pl.DataFrame({"user": [1, 1], "item": [1, 2], "time": [16274.0, 16274.5]})
    with pytest.warns(UserWarning, match="--unit d if they are days"):
        read_log(frame)
    log = read_log(frame, LogSettings(unit="d"))
    assert (log.frame["time"].to_list(), log.unit) == ([1406073600, 1406116800], "s")


@pytest.mark.parametrize(
    ("times", "doubt"),
    [
        (
            [9_214_646_400, 9_214_650_000],
            "taken for milliseconds, which puts all events between 1970-04-17 and 1970-04-17",
        ),
        ([978300760] * 3, "all times are equal"),
        (range(978300760, 978300760 + 2000), "all 2,000 events lie within 0.6 hours"),
    ],
)
def test_times_that_are_unlikely_are_not_taken_for_granted(times: list[int], doubt: str) -> None:
    frame = pl.DataFrame({"user": 1, "item": 1, "time": list(times)})
    with pytest.warns(UserWarning, match=doubt):
        read_log(frame)
    if "equal" not in doubt:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_log(frame, LogSettings(unit="ms" if "milli" in doubt else "s"))


@pytest.mark.parametrize("value", ["NULL", "null", "None", "nan", "NaN", "NA", "N/A", "<NA>", "\\N", "  "])
def test_what_is_written_for_a_missing_value_is_missing(tmp_path: Path, value: str) -> None:
    path = written(tmp_path, f"user,item,time\nann,tea,978300760\n{value},jam,978300761\nbob,tea,{value}\n")
    with pytest.raises(DataError, match=r"'user' is missing in 1 row: 2 (.|\n)*'time' is missing in 1 row: 3"):
        read_log(path)
    assert read_log(path, DROP).frame.rows() == ROWS[:1]


def test_rows_with_too_many_fields_are_dropped_where_bad_rows_are(tmp_path: Path) -> None:
    path = written(tmp_path, 'user,item,time\nann,tea,978300760\na,b,1,2\n"b\nc",x,1,2\nbob,jam,978300761\n')
    with pytest.raises(DataError, match=r"line 3 of the file has 4 fields and the first line has 3 \(--drop-bad-rows"):
        read_log(path)
    log = read_log(path, DROP)
    assert log.frame.rows() == ROWS
    assert "dropped 2 rows with more fields than the first line" in log.notes


def test_all_roles_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no user column, no time column among .*--user COLUMN --time COLUMN of"):
        read_log(written(tmp_path, "a,item,c\n1,2,3\n"))


def test_fields_within_fields(tmp_path: Path) -> None:
    lines = [
        '{"user": {"id": "ann"}, "properties": {"product_id": 7, "tags": ["x"]}, "time": 978300760}',
        '{"user": {"id": "bob"}, "properties": {"product_id": 12345678901234567}, "time": 978300761}',
    ]
    path = written(tmp_path, "\n".join(lines), "log.jsonl")
    log = read_log(path, LogSettings(user="user.id", item="properties.product_id"))
    assert log.frame.rows() == [("ann", 7, 978300760), ("bob", 12345678901234567, 978300761)]


def test_a_workbook(tmp_path: Path) -> None:
    pytest.importorskip("fastexcel")
    pytest.importorskip("xlsxwriter")
    pl.DataFrame(ROWS, schema=["user", "item", "time"], orient="row").write_excel(tmp_path / "log.xlsx")
    assert read_log(tmp_path / "log.xlsx").frame.rows() == ROWS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What Spark leaves: parts in folders that name a column, marks beside them."""
    shop = tmp_path / "shop"
    written(shop, "item,time\ntea,978300760\n", "user=ann/part-0.csv")
    written(shop, gzip.compress(b"item,time\njam,978300761\n"), "user=bob/part-0.csv.gz")
    written(shop, "", "_SUCCESS")
    written(shop, "x", "user=bob/.part-0.csv.gz.crc")
    return shop


def test_a_folder_of_parts(folder: Path) -> None:
    log = read_log(folder)
    assert log.frame.select("user", "item", "time").rows() == ROWS
    assert open_data(folder).name == "shop"


def test_a_pattern_and_a_list(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"user,item,time\n{u},{i},{t}\n", f"day-{t}.csv") for u, i, t in ROWS]
    assert read_log(paths).frame.rows() == read_log(tmp_path / "day-*.csv").frame.rows() == ROWS
    assert open_data(tmp_path / "day-*.csv").name == "day"
    with pytest.raises(DataError, match="no file matches this pattern"):
        read_log(tmp_path / "night-*.csv")


def test_bad_rows_of_parts_are_named_by_their_file(tmp_path: Path) -> None:
    good, bad = (written(tmp_path, f"user,item,time\nann,tea,{t}\n", f"{t}.csv") for t in ("978300760", "soon"))
    with pytest.raises(DataError, match=r"is not a time .* in 1 row: 1 of .*soon\.csv \('soon'\)"):
        read_log([good, bad])
    other = written(tmp_path, "u,i\n1,2\n", "other.csv")
    with pytest.raises(
        DataError, match=r"other\.csv: has the columns 'i', 'u', and .* The parts of a log have the same"
    ):
        read_log([good, other])


def test_parts_agree_on_what_an_id_is(tmp_path: Path) -> None:
    """Where ids are text in one of them they are text in all: 7 and "7" are one item."""
    one = written(tmp_path, '{"user": 1, "item": 7, "time": 978300760}\n', "1.jsonl")
    two = written(tmp_path, '{"user": 1, "item": "7a", "time": 978300761}\n', "2.jsonl")
    assert read_log([one, two]).frame["item"].to_list() == ["7", "7a"]
