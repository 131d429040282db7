"""What data are opened by a name or a path, and in memory."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.synthetic import cyclic_log

from marsrec.data.catalog import find
from marsrec.data.filters import FilterSettings
from marsrec.data.histories import Histories
from marsrec.data.log import LogSettings, read_log
from marsrec.data.source import Source, open_data
from marsrec.errors import DataError, MarsrecError, SettingsError

LOG = cyclic_log(users=20)


def test_hawkes_is_synthetic_and_a_log_is_not(tmp_path: Path) -> None:
    LOG.write_csv(tmp_path / "hawkes.csv")
    assert open_data("hawkes").synthetic
    assert not open_data(tmp_path / "hawkes.csv").synthetic


def test_a_folder_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Histories.from_log(read_log(LOG)).save(tmp_path / "hawkes")  # real people, whatever it is called
    found = open_data("hawkes")
    assert found.histories.n_users == 20
    assert not found.synthetic


def test_all_that_holds_the_same_log_opens_as_the_same_histories(tmp_path: Path) -> None:
    LOG.write_csv(tmp_path / "shop.csv")
    log = read_log(LOG)
    histories = Histories.from_log(log)
    histories.save(tmp_path / "prepared")
    source = Source(histories, "shop")
    kinds = (tmp_path / "shop.csv", str(tmp_path / "prepared"), LOG, LOG.to_pandas(), LOG.to_arrow(), log, histories)
    for data in (*kinds, source):
        assert open_data(data).histories.fingerprint == histories.fingerprint
    assert open_data(source) is source
    assert [open_data(data).name for data in kinds] == ["shop", "prepared", "", "", "", "", ""]


def test_a_public_data_set_is_known_as_one(public_data: Path, tmp_path: Path) -> None:
    found = open_data("ml-100k")
    assert (found.name, found.public) == ("ml-100k", "ml-100k")
    assert found.histories.n_users == find("ml-100k").expected.users
    shutil.copy(public_data / "ml-100k.parquet", tmp_path)
    assert open_data(tmp_path / "ml-100k.parquet").public is None


@pytest.mark.parametrize("data", [LOG, read_log(LOG)])
def test_a_log_in_memory_is_filtered_too(data: Any) -> None:
    found = open_data(data, filters=FilterSettings(min_item_events=13))
    assert found.histories.n_items < 20
    assert "removed" in found.notes[-1]


def test_prepared_data_are_what_they_are(tmp_path: Path) -> None:
    histories = Histories.from_log(read_log(LOG))
    histories.save(tmp_path / "prepared")
    with pytest.raises(SettingsError, match=r"prepared: already prepared.*\(filters, ties\)\. Give the log instead"):
        open_data(tmp_path / "prepared", filters=FilterSettings(min_user_events=2), ties="recbole")
    for data in (histories, Source(histories)):
        with pytest.raises(SettingsError, match=r"already prepared.*\(log_settings\)"):
            open_data(data, log_settings=LogSettings(user="who"))
    by_recbole = Histories.from_log(read_log(LOG), "recbole")
    assert open_data(by_recbole, ties="recbole").histories is by_recbole


@pytest.mark.parametrize("data", ["hawkes", "beauty", read_log(LOG)])
def test_settings_for_reading_are_for_files_and_dataframes(data: Any) -> None:
    with pytest.raises(SettingsError, match=r"log_settings, the options for reading one, do not apply"):
        open_data(data, log_settings=LogSettings(min_rating=4))


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    for data, message in (
        (tmp_path, "a folder without a file that can be read"),
        (tmp_path / "nowhere.csv", r"nowhere\.csv: there is no such file"),
        ("beuty", "Did you mean beauty"),
        (7, "int"),
    ):
        with pytest.raises(MarsrecError, match=message) as refusal:
            open_data(data)
        assert refusal.type is DataError
    with pytest.raises(DataError, match="there is no such file"):  # which matters before how it would be read
        open_data("nowhere.csv", log_settings=LogSettings(min_rating=4))
