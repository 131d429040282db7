from pathlib import Path

import numpy as np
import polars as pl
import pytest

from marsrec.data.histories import Histories, Vocabulary
from marsrec.data.log import Log
from marsrec.errors import DataError


def histories_of(rows: list[tuple], ties: str = "file") -> Histories:
    frame = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")
    return Histories.from_log(Log(frame, "s"), ties)  # type: ignore[arg-type]


def test_events_are_sorted_by_user_and_time_and_ties_keep_file_order() -> None:
    histories = histories_of([("b", "x", 5), ("a", "z", 9), ("b", "y", 5), ("b", "z", 1), ("a", "x", 9)])
    assert histories.user_ids.ids.to_list() == ["b", "a"]
    assert histories.item_ids.decode(histories.items).to_list() == ["z", "x", "y", "z", "x"]
    assert histories.times.tolist() == [1, 5, 5, 9, 9]
    assert histories.offsets.tolist() == [0, 3, 5]


def test_recbole_ties_round_times_to_float32() -> None:
    # After 2004 float32 seconds are 128 apart: these three are one instant to RecBole, and keep file order.
    start = 1_400_000_000
    rows = [("u", "late", start + 30), ("u", "early", start), ("u", "next", start + 500)]
    assert histories_of(rows).item_ids.decode(histories_of(rows).items).to_list() == ["early", "late", "next"]
    rounded = histories_of(rows, ties="recbole")
    assert rounded.item_ids.decode(rounded.items).to_list() == ["late", "early", "next"]


def test_times_survive_exactly() -> None:
    exact = 1_600_000_000_000_000_001
    assert histories_of([("u", 1, exact)]).times.tolist() == [exact]


@pytest.mark.parametrize("ids", [["007", "7"], [10**15, -3]])
def test_vocabulary_of_any_type(ids: list) -> None:
    vocabulary = Vocabulary(pl.Series(ids))
    assert vocabulary.encode(ids).tolist() == [1, 2]
    assert vocabulary.decode(np.array([2, 0, 1])).to_list() == [ids[1], None, ids[0]]
    assert vocabulary.encode(["nobody"]).tolist() == [0]
    assert vocabulary.encode([str(ids[1])]).tolist() == [2]  # text from a command line finds integer ids


def test_save_and_load_memory_mapped(tmp_path: Path) -> None:
    histories = histories_of([("b", 3, 5), ("a", 4, 9), ("b", 4, 7)])
    histories.save(tmp_path / "prepared")
    loaded = Histories.load(tmp_path / "prepared")
    assert isinstance(loaded.items, np.memmap)
    assert loaded.fingerprint == histories.fingerprint
    assert loaded.user_ids.ids.to_list() == ["b", "a"]
    assert loaded.item_ids.ids.to_list() == [3, 4]
    assert loaded.statistics() == histories.statistics()
    assert loaded.statistics()["interactions"] == 3


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    histories_of([("b", 3, 5), ("a", 4, 9)]).save(folder)
    np.save(folder / "times.npy", np.zeros(1, dtype=np.int64))
    with pytest.raises(DataError, match=r"do not fit together.*marsrec prepare"):
        Histories.load(folder)
    (folder / "times.npy").unlink()
    with pytest.raises(DataError, match="not a readable prepared folder"):
        Histories.load(folder)
    (folder / "times.npy").write_bytes(b"")
    with pytest.raises(DataError, match="not a readable prepared folder"):
        Histories.load(str(folder))
