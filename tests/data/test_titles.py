"""Titles go with the items from their file to the saved model."""

from pathlib import Path

import polars as pl
import pytest
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.cli import console
from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.data.titles import with_titles
from marsrec.errors import DataError


@pytest.fixture
def histories() -> Histories:
    return Histories.from_log(read_log(pl.DataFrame({"user": [1, 1, 1], "item": [7, 9, 8], "time": [5, 6, 7]})))


def test_titles_find_their_items_whatever_the_order_and_kind(histories: Histories, tmp_path: Path) -> None:
    path = tmp_path / "movies.csv"
    path.write_text("movie_id,Name,year\n9,  Milk ,1999\n7,Tea,2000\n7,Other tea,2001\n1,Beer,2002\n8,,2003\n")
    named, said = with_titles(histories, path)
    assert named.item_ids.titles is not None
    assert dict(zip(named.item_ids.ids, named.item_ids.titles, strict=True)) == {7: "Tea", 9: "Milk", 8: None}
    assert said == "2 of 3 items have a title"
    assert named.fingerprint == histories.fingerprint  # the same events


def test_titles_are_kept_in_folders(tmp_path: Path) -> None:
    histories = Histories.from_log(read_log(cyclic_log(users=10)))
    ids = histories.item_ids.ids
    named, _ = with_titles(histories, pl.DataFrame({"item": ids, "title": [f"Item {i}" for i in ids]}))
    named.save(tmp_path / "prepared")
    loaded = Histories.load(tmp_path / "prepared")
    assert loaded.item_ids.titles.to_list() == named.item_ids.titles.to_list()
    training = TrainingSettings(epochs=1, targets_per_batch=64)
    Recommender("gru4rec", options={"length": 8, "dim": 8}, training=training).fit(loaded).save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").item_ids.titles.to_list() == named.item_ids.titles.to_list()


def test_categories_are_taken_along_and_kept(histories: Histories, tmp_path: Path) -> None:
    titles = pl.DataFrame({"item": [9, 7, 8], "Category": ["dairy", "", "rice"], "title": ["Milk", "Tea", None]})
    named, _ = with_titles(histories, titles)
    assert named.item_ids.categories is not None
    assert dict(zip(named.item_ids.ids, named.item_ids.categories, strict=True)) == {7: None, 9: "dairy", 8: None}
    named.save(tmp_path / "prepared")
    loaded = Histories.load(tmp_path / "prepared").item_ids
    assert loaded.frame("item").equals(named.item_ids.frame("item"))
    assert loaded.frame("item").columns == ["item", "title", "category"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"thing": [7], "title": ["Tea"]}, "has no column of items; found 'thing', 'title'. Call it 'item'"),
        ({"item": [7], "text": ["Tea"]}, "has no column of titles; found 'item', 'text'. Call it 'title'"),
        ({"item": [70], "title": ["Tea"]}, "no item of its column 'item' is in the log, whose items are like 7"),
    ],
)
def test_other_files_are_refused(histories: Histories, frame: dict[str, list[object]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        with_titles(histories, pl.DataFrame(frame))


@pytest.mark.parametrize("name", ["movieId", "parent_asin", "track_id", "ID"])
def test_columns_of_items_have_the_names_that_logs_give_them(histories: Histories, name: str) -> None:
    ids = histories.item_ids.ids.to_list()
    named, _ = with_titles(
        histories, pl.DataFrame({"genre": ["?"] * len(ids), name: ids, "Title": [f"t{i}" for i in ids]})
    )
    assert named.item_ids.titles is not None
    assert named.item_ids.titles.to_list() == [f"t{i}" for i in ids]


def test_the_plainest_names_of_columns_come_first(histories: Histories) -> None:
    ids = histories.item_ids.ids.to_list()
    wrong = list(reversed(ids))
    frame = {"artist": wrong, "id": wrong, "label": ["?"] * len(ids), "item_id": ids, "title": [f"t{i}" for i in ids]}
    named, _ = with_titles(histories, pl.DataFrame(frame))
    assert named.item_ids.titles is not None
    assert named.item_ids.titles.to_list() == [f"t{i}" for i in ids]


def test_titles_that_look_like_markup_are_told_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    console.table("of [/b]", ["title"], [["Abbey Road [import] x"], ["foo [/b]"]])
    said = capsys.readouterr().out
    assert all(text in said for text in ("of [/b]", "Abbey Road [import] x", "foo [/b]"))
