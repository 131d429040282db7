import gzip
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from marsrec.data.log import Log, LogSettings, read_log
from marsrec.errors import DataError, SettingsError

ROWS = [("007", "tea", 978300760), ("007", "jam", 978302109), ("8", "tea", 978301968)]
TEXTS = {
    "log.csv": "user_id,item_id,rating,timestamp\n007,tea,5,978300760\n007,jam,3,978302109\n8,tea,4,978301968\n",
    "log.tsv": "uid\tproduct_id\tts\n007\ttea\t978300760\n007\tjam\t978302109\n8\ttea\t978301968\n",
    "bare.csv": "007,tea,5.0,978300760\n007,jam,3.0,978302109\n8,tea,4.0,978301968\n",
    "bare3.csv": "007,tea,978300760\n007,jam,978302109\n8,tea,978301968\n",
    "u.data": "007\ttea\t5\t978300760\n007\tjam\t3\t978302109\n8\ttea\t4\t978301968\n",
    "ratings.dat": "007::tea::5::978300760\n007::jam::3::978302109\n8::tea::4::978301968\n",
    "log.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "007\ttea\t5\t978300760.0\n007\tjam\t3\t9.78302109e8\n8\ttea\t4\t978301968\n",
    "log.jsonl": '{"reviewerID": "007", "asin": "tea", "unixReviewTime": 978300760}\n'
    '{"reviewerID": "007", "asin": "jam", "unixReviewTime": 978302109, "extra": {"a": [1]}}\n'
    '{"reviewerID": "8", "asin": "tea", "unixReviewTime": "978301968"}\n',
}


def frame(**columns: object) -> pl.DataFrame:
    return pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "time": [1, 2], **columns})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_text_format_gives_the_same_log(tmp_path: Path, name: str, zipped: bool) -> None:
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(TEXTS[name].encode()) if zipped else TEXTS[name].encode())
    log = read_log(path)
    assert log.frame.schema == {"user": pl.String, "item": pl.String, "time": pl.Int64}
    assert log.frame.rows() == ROWS
    assert log.unit == "s"
    assert log.source == str(path)
    assert (len(log), log.n_users, log.n_items) == (3, 2, 2)
    assert any("2000-12-31 to 2000-12-31 UTC" in note for note in log.notes)


@pytest.mark.parametrize("kind", ["parquet", "pandas", "polars", "lazy", "pyarrow"])
def test_tables_keep_integer_ids(tmp_path: Path, kind: str) -> None:
    columns = {"userId": [7, 7], "movieId": [1, 2], "timestamp": [978300760, 978302109]}
    if kind == "parquet":
        pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    source = {
        "parquet": str(tmp_path / "log.parquet"),
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "lazy": pl.LazyFrame(columns),
        "pyarrow": pa.table(columns),
    }[kind]
    log = read_log(source)
    assert log.frame.schema == {"user": pl.Int64, "item": pl.Int64, "time": pl.Int64}
    assert log.frame.rows() == [(7, 1, 978300760), (7, 2, 978302109)]
    assert read_log(log.frame).frame.equals(log.frame)


def test_json_integers_stay_integers_and_text_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "log.ndjson"
    path.write_text('{"user": 1, "item": "01", "time": 1406073600123456789}\n{"user": 2, "item": "2", "time": 5.5e8}\n')
    with pytest.raises(DataError, match=r"mixes units"):
        read_log(path)
    path.write_text('{"user": 1, "item": "01", "time": 1406073600123456789}\n')
    assert read_log(path).frame.rows() == [(1, "01", 1406073600123456789)]


def test_ids_of_other_types_become_text_or_integers() -> None:
    data = pd.DataFrame({"user": pd.Categorical(["a", "b"]), "item": [1.0, 2.0], "time": [1, 2]})
    log = read_log(data.astype({"time": "int32"}))
    assert log.frame.schema == {"user": pl.String, "item": pl.Int64, "time": pl.Int64}
    assert log.frame.rows() == [("a", 1, 1), ("b", 2, 2)]


def test_file_order_and_repeats() -> None:
    data = pl.DataFrame({"user": ["b", "a", "b"], "item": ["x", "y", "x"], "time": [9, 3, 9]})
    kept = read_log(data)
    assert kept.frame.rows() == data.rows()
    assert any(note.startswith("1 exact repeat of an earlier") and "kept" in note for note in kept.notes)
    dropped = read_log(data, LogSettings(deduplicate=True))
    assert dropped.frame.rows() == [("b", "x", 9), ("a", "y", 3)]
    assert any(note.endswith("(user, item, time): dropped") for note in dropped.notes)


def test_minimum_rating() -> None:
    log = read_log(frame(stars=[2.5, 4.0]), LogSettings(min_rating=4))
    assert log.frame.rows() == [("b", "y", 2)]
    assert "dropped 1 row with a rating below 4" in log.notes
    with pytest.raises(DataError, match=r"no rating reaches min_rating 5; the highest is 4"):
        read_log(frame(stars=[2.5, 4.0]), LogSettings(min_rating=5))
    with pytest.raises(DataError, match=r"'stars' is not a number in 1 row: 2 \('good'\)"):
        read_log(frame(stars=["2", "good"]), LogSettings(min_rating=1))
    with pytest.raises(DataError, match=r"no rating column among the columns 'user', 'item', 'time'"):
        read_log(frame(), LogSettings(min_rating=1))


def test_columns_by_name() -> None:
    data = frame(parent_asin=["p", "q"])
    with pytest.raises(DataError, match=r"'item', 'parent_asin' could all hold the item.*--item"):
        read_log(data)
    assert read_log(data, LogSettings(item="parent_asin")).frame["item"].to_list() == ["p", "q"]
    with pytest.raises(DataError, match=r"no column 'sku' among the columns 'user', 'item', 'time'"):
        read_log(frame(), LogSettings(item="sku"))
    with pytest.raises(DataError, match=r"no time column among the columns 'user', 'item'\..*--time"):
        read_log(frame().drop("time"))
    with pytest.raises(SettingsError, match=r"two roles"):
        read_log(frame(), LogSettings(user="item", item="item"))


def test_a_name_twice_in_the_header_is_ambiguous(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("user,user,item,time\na,b,x,1\n")
    with pytest.raises(DataError, match=r"'user', 'user_duplicated_0' could all hold the user"):
        read_log(path)
    assert read_log(path, LogSettings(user="user")).frame["user"].to_list() == ["a"]


@pytest.mark.parametrize("name", ["log[1].csv", "log[1].jsonl", "log[1].parquet"])
def test_a_path_is_no_pattern(tmp_path: Path, name: str) -> None:
    write = {"csv": frame().write_csv, "jsonl": frame().write_ndjson, "parquet": frame().write_parquet}
    write[name.split(".")[1]](tmp_path / name)
    assert read_log(tmp_path / name).frame.rows() == frame().rows()


def test_headerless_with_other_columns_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,x,5,web,978300760\n")
    with pytest.raises(DataError, match=r"first line holds data.*'web'.*Put a header line first"):
        read_log(path)


def test_log_is_what_others_build_too() -> None:
    log = Log(frame(), unit="ms")
    assert (len(log), log.n_users, log.n_items, log.notes, log.source) == (2, 2, 2, (), "")
