import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.data.log import LogSettings
from marsrec.data.splits import SplitSettings
from marsrec.errors import DataError, MarsrecError, SettingsError
from marsrec.recommender.inference import EarlyError, Inference

LOG = cyclic_log(users=40, events=10, items=15)
OPTIONS = {"dim": 16, "encoder.layers": 1, "encoder.dropout": 0.1, "length": 8}
TRAINING = TrainingSettings(epochs=20, patience=20, learning_rate=0.01, targets_per_batch=128)


VARIANTS = {"": {}, "request clock": {"readout.clock": "request"}, "values": {"readout.values": True}}


@pytest.fixture(
    scope="module", params=["sasrec", "mars-t", "mars-m", "sigma", "mars-t, request clock", "mars-t, values"]
)
def fitted(request: pytest.FixtureRequest) -> Recommender:
    name, _, variant = request.param.partition(", ")
    return Recommender(name, options=OPTIONS | VARIANTS[variant], training=TRAINING).fit(LOG, progress=False)


@pytest.fixture(scope="module")
def mars() -> Recommender:
    return Recommender("mars-t", options=OPTIONS, training=TRAINING).fit(LOG, progress=False)


HISTORY = [("i3", 1_600_000_000), ("i4", 1_600_003_600), ("i5", 1_600_090_000)]


def test_recommends_what_follows(fitted: Recommender) -> None:
    assert fitted.recommend(histories=HISTORY, k=1)["item"].to_list() == ["i6"]
    assert fitted.metrics["test"]["HR@10"] > 0.9


def test_many_users_get_what_each_gets_alone(fitted: Recommender) -> None:
    users = ["u7", "u0", "u33"]
    together = fitted.recommend(users, k=4)
    alone = pl.concat([fitted.recommend(user, k=4) for user in users])
    assert together.drop("score").equals(alone.drop("score"))
    np.testing.assert_allclose(together["score"], alone["score"], rtol=1e-5)
    assert together["user"].to_list() == [user for user in users for _ in range(4)]
    assert together["rank"].to_list() == [1, 2, 3, 4] * 3
    assert set(together["source"]) == {"model"}


def test_a_users_history_given_from_outside_is_answered_alike(fitted: Recommender) -> None:
    events = LOG.filter(pl.col("user") == "u5")
    end = LOG["time"].max()
    expected = fitted.recommend("u5", k=5, at=end)
    pairs = list(events.select("item", "time").iter_rows())
    assert fitted.recommend(histories=pairs, k=5, at=end)["item"].equals(expected["item"])
    assert fitted.recommend(histories=events, k=5, at=end).drop("score").equals(expected.drop("score"))
    in_milliseconds = events.with_columns(pl.col("time") * 1000)
    assert fitted.recommend(histories=in_milliseconds, k=5, at=end).drop("score").equals(expected.drop("score"))


def test_seen_items_are_left_out_unless_wanted(mars: Recommender) -> None:
    items = {item for item, _ in HISTORY}
    assert not items & set(mars.recommend(histories=HISTORY, k=15)["item"])
    assert items <= set(mars.recommend(histories=HISTORY, k=15, mask_seen=False)["item"])


def test_more_items_asked_for_than_there_are(mars: Recommender) -> None:
    everything = mars.recommend(histories=HISTORY, k=100, mask_seen=False)
    assert sorted(everything["item"]) == sorted(LOG["item"].unique())  # padding is never among them
    assert everything["score"].is_sorted(descending=True)
    assert mars.recommend(histories=HISTORY, k=100).height == 15 - 3


def test_it_tells_what_it_is(mars: Recommender) -> None:
    assert repr(Recommender("mars-m")) == "<Recommender: mars-m, not fitted>"
    assert repr(mars).startswith("<Recommender: mars-t, ")
    assert f"{len(mars.item_ids)} items, {mars.histories.n_users} users>" in repr(mars)


def test_only_training_waits_for_lightning() -> None:
    code = "import sys, marsrec.recommender, marsrec.cli.recommend; sys.exit('lightning' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_candidates(mars: Recommender) -> None:
    chosen = mars.recommend(histories=HISTORY, k=5, candidates=["i9", "i6", "i3"])
    assert chosen["item"].to_list()[0] == "i6"
    assert set(chosen["item"]) == {"i6", "i9"}  # i3 is in the history
    with pytest.warns(UserWarning, match="1 of 2 candidates are unknown") as told:
        mars.recommend(histories=HISTORY, candidates=["i9", "nothing"])
    assert told[0].filename == __file__  # the caller's line, and none of marsrec
    with pytest.raises(DataError, match="none of the 1 ids"):
        mars.recommend(histories=HISTORY, candidates=["nothing"])


def test_many_users_have_one_moment_and_one_warning(mars: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = iter(range(10**6))

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # a minute goes by each time
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=next(minutes))

    monkeypatch.setattr("marsrec.data.moments.datetime", Clock)
    requests = []
    answer = Inference.answer
    monkeypatch.setattr(Inference, "answer", lambda self, given: requests.extend(given) or answer(self, given))
    users = [f"u{number % 40}" for number in range(60)]
    with pytest.warns(UserWarning, match="not on the request clock") as caught:
        mars.recommend(users, k=1, at="now")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert [request.at for request in requests] == [1_767_225_600] * 60


def test_an_early_moment_is_named_as_it_was_given(mars: Recommender) -> None:
    for request in (
        lambda: mars.recommend(["u1", "u2"], at="2013-01-01"),
        lambda: mars.explain("u1", "i1", at="2013-01-01"),
        lambda: mars.start("u1").recommend(at="2013-01-01"),
    ):
        with pytest.raises(EarlyError, match=r"^at=2013-01-01 is earlier than an event"):
            request()


def test_unknown_items_are_skipped_and_counted(mars: Recommender) -> None:
    with pytest.warns(UserWarning, match="1 of 4 events have unknown items and were skipped: 'new'"):
        with_unknown = mars.recommend(histories=[*HISTORY[:2], ("new", 1_600_005_000), HISTORY[2]], k=5)
    assert with_unknown.equals(mars.recommend(histories=HISTORY, k=5))


@pytest.mark.filterwarnings("ignore:.*unknown items")
def test_a_history_without_a_known_item_gets_the_popular_ones_marked(mars: Recommender) -> None:
    frame = pl.DataFrame(
        {
            "user": ["cold", "warm", "cold"],
            "item": ["x", "i3", "y"],
            "time": [1_600_000_000, 1_600_000_001, 1_600_000_002],
        }
    )
    table = mars.recommend(histories=frame, k=3)
    assert table["user"].to_list() == ["cold"] * 3 + ["warm"] * 3
    assert table["source"].to_list() == ["popularity"] * 3 + ["model"] * 3
    counts = mars.split().item_counts
    assert table["score"].to_list()[:3] == sorted(counts.tolist(), reverse=True)[:3]
    assert mars.recommend(histories=[], k=3)["source"].to_list() == ["popularity"] * 3


def test_an_unknown_user_is_told_what_to_pass(mars: Recommender) -> None:
    with pytest.raises(DataError, match=r"unknown user 'nobody'.*histories="):
        mars.recommend("nobody")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.recommend(), "either users=... or histories="),
        (lambda r: r.recommend("u1", histories=HISTORY), "either users=... or histories="),
        (lambda r: r.recommend("u1", k=0), "k must be a whole number of at least 1"),
        (lambda r: r.recommend("u1", at="next week"), "ISO date"),
        (lambda r: r.recommend("u1", at="2001-01-01"), "earlier than an event"),
        (lambda r: r.recommend(histories=["i3", "i4"]), r"pairs \(item, time\)"),
        (lambda r: r.explain("u1", "nothing"), "unknown item 'nothing'"),
        (lambda r: r.similar_items("nothing"), "unknown item 'nothing'"),
        (lambda r: Recommender().recommend("u1"), "not fitted yet"),
    ],
)
def test_bad_calls_say_what_to_do(mars: Recommender, call: object, message: str) -> None:
    with pytest.raises(MarsrecError, match=message):
        call(mars)  # type: ignore[operator]


def test_bad_settings_fail_before_training() -> None:
    with pytest.raises(SettingsError, match="unknown model"):
        Recommender("bert5rec")


def test_a_recipe_may_have_batches_of_its_own_unless_training_says_otherwise() -> None:
    quick = TrainingSettings(epochs=3)
    assert Recommender("fearec", training=quick).training == TrainingSettings(epochs=3, targets_per_batch=256)
    assert Recommender("fearec", published=True).training.targets_per_batch == 2048
    assert Recommender("sasrec").training == TrainingSettings()
    assert Recommender("fearec", encoder="transformer").training.targets_per_batch == 2048
    assert Recommender("fearec", training=Recommender("sasrec").training).training.targets_per_batch == 256
    given = TrainingSettings(targets_per_batch=2048)
    assert Recommender("fearec", training=given).training.targets_per_batch == 2048


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.Table])
def test_dataframes_come_back_as_the_kind_they_came(mars: Recommender, kind: type, tmp_path: Path) -> None:
    frame = LOG.filter(pl.col("user") == "u5")
    given = {pd.DataFrame: frame.to_pandas(), pl.DataFrame: frame, pa.Table: frame.to_arrow()}[kind]
    assert isinstance(mars.recommend(histories=given, k=2), kind)


def test_users_as_a_pandas_column(mars: Recommender) -> None:
    table = mars.recommend(pd.Series(["u1", "u2"]), k=2)
    assert isinstance(table, pd.DataFrame)
    assert table["user"].tolist() == ["u1", "u1", "u2", "u2"]


def test_numpy_scalars_and_integer_ids() -> None:
    log = LOG.with_columns(pl.col("user").str.slice(1).cast(pl.Int64), pl.col("item").str.slice(1).cast(pl.Int64))
    training = TrainingSettings(epochs=1)
    recommender = Recommender("sasrec", options=OPTIONS, training=training).fit(log, progress=False)
    expected = recommender.recommend(3, k=2)
    for asked in (np.int64(3), "3", [3.0], np.array([3])):
        assert recommender.recommend(asked, k=2).equals(expected)
    assert recommender.recommend(3, k=2, at=np.int64(log["time"].max())).equals(expected)
    with pytest.raises(DataError, match=r"unknown user 3\.9"):
        recommender.recommend([3.9])
    with pytest.raises(SettingsError, match="a moment is"):
        recommender.recommend(3, at=[1])


def test_users_may_be_asked_for_again_and_in_any_collection(mars: Recommender) -> None:
    once = mars.recommend(["u1", "u2"], k=2)
    again = mars.recommend(["u1", "u2", "u1"], k=2)
    assert again.drop("score").equals(pl.concat([once, once.head(2)]).drop("score"))
    column = pd.Series(["u1", "u2"])
    for users in (
        column.unique(),
        pd.Index(column),
        pd.Categorical(column),
        pa.array(["u1", "u2"]),
        {"u1": 0, "u2": 0}.keys(),
        (user for user in ("u1", "u2")),
    ):
        assert pl.DataFrame(mars.recommend(users, k=2)).equals(once)
    nobody = mars.recommend([], k=2)
    assert nobody.is_empty()
    assert nobody.columns == once.columns
    with pytest.raises(DataError, match="Pick the column of ids"):
        mars.recommend(LOG)
    with pytest.raises(DataError, match="found a object"):
        mars.recommend(object())


def test_k_may_be_any_whole_number(mars: Recommender) -> None:
    assert mars.recommend("u1", k=np.int64(2)).equals(mars.recommend("u1", k=2))
    assert mars.recommend("u1", k=10**12, mask_seen=False).height == 15


def test_a_fit_that_fails_leaves_what_was_fitted_before() -> None:
    training = TrainingSettings(epochs=1)
    recommender = Recommender("sasrec", options=OPTIONS, training=training).fit(LOG, progress=False)
    before = dict(vars(recommender))
    # Its times are all the same, so that no moments divide them.
    bad = LOG.with_columns(time=pl.lit(1_600_000_000)).rename({"user": "who"}).to_pandas()
    with pytest.raises(SettingsError, match="further apart"):
        recommender.fit(
            bad, log_settings=LogSettings(user="who"), split=SplitSettings(name="global-time"), progress=False
        )
    assert vars(recommender) == before


def test_prepared_folders_and_what_goes_without_saying(tmp_path: Path) -> None:
    training = TrainingSettings(epochs=1)
    recommender = Recommender("sasrec", options=OPTIONS, training=training).fit(LOG, progress=False)
    histories = recommender.histories
    assert histories is not None
    histories.save(tmp_path / "prepared")
    again = Recommender("sasrec", options=OPTIONS, training=training).fit(str(tmp_path / "prepared"), progress=False)
    assert again.recommend("u1").equals(recommender.recommend("u1"))
    with pytest.raises(SettingsError, match=r"Histories: already prepared.*\(log_settings\)"):
        again.fit(histories, log_settings=LogSettings(user="who"))


def test_columns_named_at_fit_are_known_afterwards(tmp_path: Path) -> None:
    log = LOG.rename({"user": "who", "item": "what", "time": "when"}).to_pandas()
    columns = LogSettings(user="who", item="what", time="when")
    training = TrainingSettings(epochs=1)
    recommender = Recommender("mars-t", options=OPTIONS, training=training)
    recommender.fit(log, log_settings=columns, progress=False).save(tmp_path / "model")
    loaded = Recommender.load(tmp_path / "model")
    table = loaded.recommend(histories=log[log["who"] == "u5"], k=3)
    assert isinstance(table, pd.DataFrame)
    assert table["item"].tolist() == recommender.recommend("u5", k=3)["item"].tolist()
    assert isinstance(loaded.recommend("u5"), pd.DataFrame)  # the kind it was fitted on
    assert loaded.planned_settings(8.0) == recommender.settings  # fitting again trains the same model
    assert loaded.explain(log[log["who"] == "u5"], "i3").score == pytest.approx(loaded.explain("u5", "i3").score)


def test_a_folder_with_other_files_is_not_replaced(mars: Recommender, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(DataError, match="holds other files"):
        mars.save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "keep me"
    mars.save(tmp_path / "model")
    mars.save(tmp_path / "model")  # one of our own is


def test_save_and_load_give_identical_recommendations(fitted: Recommender, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    assert {p.name for p in (tmp_path / "model").iterdir()} == {
        "model.safetensors",
        "config.json",
        "items.parquet",
        "metrics.json",
        "README.md",
        "histories",
    }
    loaded = Recommender.load(tmp_path / "model")
    users = [f"u{i}" for i in range(40)]
    assert loaded.recommend(users).equals(fitted.recommend(users))
    assert loaded.metrics == json.loads(json.dumps(fitted.metrics))
    assert loaded.evaluate().metrics == fitted.evaluate().metrics == pytest.approx(fitted.metrics["test"])


def test_a_model_saved_without_histories_answers_for_histories_only(mars: Recommender, tmp_path: Path) -> None:
    mars.save(tmp_path / "model", histories=False)
    loaded = Recommender.load(tmp_path / "model")
    assert loaded.recommend(histories=HISTORY).equals(mars.recommend(histories=HISTORY))
    with pytest.raises(DataError, match="without its users' histories"):
        loaded.recommend("u1")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("config.json", "not a readable saved recommender|holds no saved recommender"),
        ("model.safetensors", "model.safetensors: differs from what was saved"),
        ("items.parquet", "items.parquet: differs from what was saved"),
    ],
)
def test_a_damaged_folder_is_refused(mars: Recommender, tmp_path: Path, damage: str, message: str) -> None:
    mars.save(tmp_path / "model")
    content = (tmp_path / "model" / damage).read_bytes()
    (tmp_path / "model" / damage).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=message):
        Recommender.load(tmp_path / "model")
    (tmp_path / "model" / damage).unlink()
    with pytest.raises(DataError, match=message):
        Recommender.load(tmp_path / "model")


def test_weights_of_another_shape_are_refused(mars: Recommender, tmp_path: Path) -> None:
    mars.save(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["model"]["dim"] = 32
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match="not a readable saved recommender"):
        Recommender.load(tmp_path / "model")


def test_explanation_sums_to_the_score(fitted: Recommender) -> None:
    table = fitted.recommend("u3", k=3, mask_seen=False)
    for item, score in table.select("item", "score").iter_rows():
        explanation = fitted.explain("u3", item)
        assert explanation.score == pytest.approx(score, abs=1e-5)
        assert explanation.last_state + explanation.terms["share"].sum() == pytest.approx(score, abs=1e-5)


def test_explanation_names_events_and_time_scales(mars: Recommender) -> None:
    explanation = mars.explain(HISTORY, "i6")
    assert explanation.by_event().sort("event")["item"].to_list() == ["i5", "i4", "i3"]
    assert explanation.by_event().sort("event")["age"].to_list() == ["0 seconds", "1 day", "1 day"]
    assert explanation.by_event().sort("event")["age_seconds"].to_list() == [0, 86400, 86400 + 3600]
    heads = explanation.by_head()
    assert heads["half_life_seconds"].is_between(0, 1e12).all()
    assert heads["gate"].sum() == pytest.approx(1, abs=1e-5)
    assert explanation.by_event()["share"].sum() == pytest.approx(heads["share"].sum(), abs=1e-5)


def test_the_request_clock_hears_the_moment_and_the_last_event_clock_does_not(fitted: Recommender) -> None:
    at = datetime(2021, 6, 1, tzinfo=UTC)
    now, later = (fitted.recommend("u3", k=10, at=moment)["score"] for moment in (at, "2024-06-01"))
    readout = fitted.settings.readout
    if readout.name == "mars" and readout.clock == "request":
        assert not np.allclose(now, later)
    else:
        assert now.equals(later)


def test_similar_items_leave_out_the_item_itself(mars: Recommender) -> None:
    table = mars.similar_items("i3", k=4)
    assert "i3" not in table["item"].to_list()
    vectors = torch.nn.functional.normalize(mars.network.items.weight.detach(), dim=1)
    codes = mars.item_ids.encode(["i3", table["item"][0]]).tolist()
    assert table["similarity"][0] == pytest.approx(float(vectors[codes[0]] @ vectors[codes[1]]), abs=1e-5)
    assert table["similarity"].is_sorted(descending=True)


def test_what_cannot_be_saved_is_refused_before_training() -> None:
    for given in ({"options": {"dim": np.int64(16)}}, {"encoder": {"name": "gru", "hidden": np.int64(16)}}):
        with pytest.raises(SettingsError, match="cannot be written as JSON"):
            Recommender("sasrec", **given)
