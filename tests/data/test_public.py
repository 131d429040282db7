import gzip
import os
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import polars as pl
import pytest

from marsrec.data.catalog import CATALOG, Dataset, Statistics, find
from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.data.public import load, locate, row_order
from marsrec.errors import DataError

TIME = 1_400_000_000
# Users a and b have two events each with items x and y; user c and item z have one each and are filtered out.
ROWS = [("a", "x", 0), ("b", "y", 1), ("a", "y", 1), ("c", "x", 2), ("b", "x", 3), ("b", "z", 4)]
KEPT = [("a", "x", 0), ("b", "y", 1), ("a", "y", 1), ("b", "x", 3)]
TOY = Dataset(
    name="toy",
    title="Toy",
    homepage="https://example.org/toy",
    expected=Statistics(2, 2, 4),
    licence="Free.",
    citation="Nobody.",
    counts=(2, None),
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "MARSREC_DATA" in os.environ:
        monkeypatch.setenv("REAL_DATA", os.environ["MARSREC_DATA"])
    monkeypatch.delenv("MARSREC_DATA", raising=False)
    monkeypatch.setenv("MARSREC_CACHE", str(tmp_path / "cache"))


def lines(template: str, per_second: int = 1) -> str:
    return "".join(template.format(user, item, (TIME + time) * per_second) + "\n" for user, item, time in ROWS)


def serve(folder: Path, name: str, content: bytes) -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return (folder / name).as_uri()


def kept(per_second: int = 1) -> list[tuple[str, str, int]]:
    return [(user, item, (TIME + time) * per_second) for user, item, time in KEPT]


def test_amazon_2014_csv_has_no_header(tmp_path: Path) -> None:
    url = serve(tmp_path / "web", "ratings_Toy.csv", lines("{},{},5.0,{}").encode())
    log = load(replace(TOY, urls=(url,)))
    assert log.unit == "s"
    assert log.frame.rows() == kept()


def test_amazon_2023_csv_keeps_its_milliseconds(tmp_path: Path) -> None:
    text = "user_id,parent_asin,rating,timestamp\n" + lines("{},{},5.0,{}", 1000)
    dataset = replace(TOY, urls=(serve(tmp_path / "web", "Toy.csv.gz", gzip.compress(text.encode())),))
    for _ in range(2):  # first from the source, then from the parquet file
        log = load(dataset)
        assert log.unit == "ms"
        assert log.frame.rows() == kept(1000)


@pytest.mark.parametrize(("member", "separator"), [("ml-toy/ratings.dat", "::"), ("ml-toy/u.data", "\t")])
def test_movielens_zip(tmp_path: Path, member: str, separator: str) -> None:
    (tmp_path / "web").mkdir()
    with zipfile.ZipFile(tmp_path / "web/ml-toy.zip", "w") as archive:
        archive.writestr(member, lines(separator.join(["{}", "{}", "4", "{}"])))
        archive.writestr("ml-toy/README", "not the log")
    log = load(replace(TOY, urls=((tmp_path / "web/ml-toy.zip").as_uri(),), member=member))
    assert log.frame.rows() == kept()


def test_yelp_json_is_brought_by_the_user(tmp_path: Path) -> None:
    yelp = replace(TOY, file="reviews.json")
    with pytest.raises(DataError, match=r"Get it from https://example.org/toy and put reviews.json into .*cache"):
        load(yelp)
    row = '{{"review_id": "r", "user_id": "{}", "business_id": "{}", "stars": 4.0, "date": "2014-05-13 16:53:2{}"}}\n'
    text = "".join(row.format(user, item, time) for user, item, time in ROWS)
    serve(tmp_path / "cache", "reviews.json.gz", gzip.compress(text.encode()))
    assert load(yelp).frame.select("user", "item").rows() == [(user, item) for user, item, _ in KEPT]


def test_the_second_time_needs_no_source(tmp_path: Path) -> None:
    url = serve(tmp_path / "web", "ratings_Toy.csv", lines("{},{},5.0,{}").encode())
    dataset = replace(TOY, urls=(url,))
    assert locate(dataset) is None
    first = load(dataset)
    (tmp_path / "web/ratings_Toy.csv").unlink()
    assert locate(dataset) == tmp_path / "cache/toy.parquet"
    assert load(dataset).frame.equals(first.frame)


def test_marsrec_data_comes_before_the_cache_and_a_folder_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARSREC_DATA", str(tmp_path / "data"))
    for folder in ("cache", "data", "folder"):
        (tmp_path / folder).mkdir()
        pl.DataFrame({"user": [1], "item": [1], "timestamp": [TIME]}).write_parquet(tmp_path / folder / "toy.parquet")
    assert locate(TOY, tmp_path / "folder") == tmp_path / "folder/toy.parquet"
    assert locate(TOY) == tmp_path / "data/toy.parquet"
    (tmp_path / "data/toy.parquet").unlink()
    assert locate(TOY) == tmp_path / "cache/toy.parquet"


def test_other_statistics_are_an_error_that_names_both(tmp_path: Path) -> None:
    url = serve(tmp_path / "web", "ratings_Toy.csv", lines("{},{},5.0,{}").encode())
    dataset = replace(TOY, urls=(url,), expected=Statistics(3, 2, 5))
    with pytest.raises(DataError, match=r"must have 3 users, 2 items and 5 .* has 2 users, 2 items and 4 interactions"):
        load(dataset)
    assert locate(dataset) is None
    assert len(load(dataset, verify=False)) == 4


def test_another_order_of_the_rows_is_noted(tmp_path: Path) -> None:
    rows = pl.DataFrame(kept(), schema=["user", "item", "timestamp"], orient="row")
    known = replace(TOY, order=row_order(read_log(rows)))
    for name, frame in {"same": rows, "other": rows.reverse()}.items():
        (tmp_path / name).mkdir()
        frame.write_parquet(tmp_path / name / "toy.parquet")
    assert not any("another order" in note for note in load(known, tmp_path / "same").notes)
    assert any("another order" in note for note in load(known, tmp_path / "other").notes)


def test_a_parquet_file_is_verified_too(tmp_path: Path) -> None:
    pl.DataFrame({"user": [1], "item": [1], "timestamp": [TIME]}).write_parquet(tmp_path / "toy.parquet")
    with pytest.raises(DataError, match=r"toy.parquet: toy must have .* has 1 users, 1 items and 1 interactions"):
        load(TOY, tmp_path)
    assert len(load(TOY, tmp_path, verify=False)) == 1


def test_the_next_address_is_tried_and_failures_say_what_to_do(tmp_path: Path) -> None:
    missing = (tmp_path / "web/gone.csv").as_uri()
    with pytest.raises(
        DataError, match=r"toy: could not be downloaded from file:.*gone.csv .*put gone.csv into .*cache"
    ):
        load(replace(TOY, urls=(missing,)))
    url = serve(tmp_path / "web", "ratings_Toy.csv", lines("{},{},5.0,{}").encode())
    assert len(load(replace(TOY, urls=(missing, url)))) == 4


def test_what_is_no_zip_is_not_kept(tmp_path: Path) -> None:
    url = serve(tmp_path / "web", "toy.zip", b"<html>Service unavailable</html>")
    with pytest.raises(DataError, match="what arrived is not a zip file"):
        load(replace(TOY, urls=(url,), member="toy/u.data"))
    assert not list((tmp_path / "cache").iterdir())


def test_half_a_download_is_not_kept(tmp_path: Path) -> None:
    class Breaking(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"a,x,5.0,1400000000")

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with HTTPServer(("127.0.0.1", 0), Breaking) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(DataError, match="18 of 1,000 bytes arrived"):
            load(replace(TOY, urls=(f"http://127.0.0.1:{server.server_port}/ratings_Toy.csv",)))
    assert not list((tmp_path / "cache").iterdir())


def test_a_zip_without_the_log_names_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "toy.zip", "w") as archive:
        archive.writestr("toy/README", "no log here")
    with pytest.raises(DataError, match=r"toy.zip: cannot take toy/u.data out of it"):
        load(replace(TOY, urls=("https://example.org/toy.zip",), member="toy/u.data"), tmp_path)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"no data set 'ML-1M'\. Did you mean ml-1m"):
        find("ML-1M")
    with pytest.raises(
        DataError, match=r"no data set 'netflix'\. Known are beauty, sports, games, ml-1m, ml-100k, yelp"
    ):
        load("netflix")


@pytest.mark.parametrize("name", CATALOG)
def test_the_files_at_hand_have_the_expected_statistics(name: str) -> None:
    folder = os.environ.get("REAL_DATA")
    if folder is None:
        pytest.skip("MARSREC_DATA is not set")
    if locate(name, Path(folder)) is None:
        pytest.skip(f"there is no {name}.parquet in MARSREC_DATA")
    dataset = CATALOG[name]
    log = load(dataset, Path(folder))
    assert Statistics(log.n_users, log.n_items, len(log)) == dataset.expected
    assert log.unit == "s"
    assert dataset.order is None or row_order(log) == dataset.order


def test_ml_1m_in_exact_time_and_in_the_papers_order() -> None:
    """The file has the rows of `ratings.dat`; results in exact time are of the same histories, sorted before."""
    folder = os.environ.get("REAL_DATA")
    if folder is None or locate("ml-1m", Path(folder)) is None:
        pytest.skip("MARSREC_DATA has no ml-1m.parquet")
    log = load("ml-1m", Path(folder))
    in_time = replace(log, frame=log.frame.sort("user", "time", maintain_order=True))
    exact, sorted_before = Histories.from_log(log), Histories.from_log(in_time)
    assert exact.item_ids.decode(exact.items).equals(sorted_before.item_ids.decode(sorted_before.items))
    assert (exact.times == sorted_before.times).all()
    assert sorted_before.fingerprint == "c2e5014a8863e8af"  # of the results that are named ml-1m
    paper = Histories.from_log(log, "recbole")
    assert paper.fingerprint == "52c137c65ed9392c"  # of those that are named ml-1m-recbole
    last = paper.offsets[1:] - 1
    test_items = [of.item_ids.decode(of.items[last]).to_numpy() for of in (exact, paper)]
    assert (test_items[0] != test_items[1]).mean() == pytest.approx(0.197, abs=5e-4)
