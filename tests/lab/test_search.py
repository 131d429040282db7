"""A search draws, prunes, keeps to its budget and goes on. A stand-in for the training tells what validation says."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.synthetic import cyclic_log, histories_of

from marsrec.data.source import Source
from marsrec.data.splits import SplitSettings, leave_one_out
from marsrec.errors import SettingsError
from marsrec.lab.search import Search
from marsrec.lab.search_space import RANGES, TRAINING, search_space
from marsrec.models import model_settings
from marsrec.recommender import Recommender
from marsrec.training.fit import Fitted
from marsrec.training.settings import TrainingSettings

SOURCE = Source(histories_of(cyclic_log(users=12, events=9)))
DEFAULT = 0.40


class Trainings:
    """A stand-in for `fit`: validation rises to what the learning rate is worth; 0.003 is best. A minute each."""

    def __init__(self, limit: int = 10**6) -> None:
        self.limit, self.done = limit, 0
        self.seen: list[tuple[float, int]] = []

    def __call__(self, split: Any, model: Any, training: TrainingSettings, *, watch: Any, **options: Any) -> Fitted:
        self.done += 1
        if self.done > self.limit:
            raise KeyboardInterrupt
        self.seen.append((training.learning_rate, training.seed))
        usual = training.schedule == "constant"
        worth = DEFAULT if usual else 0.5 - 0.2 * abs(math.log10(training.learning_rate / 0.003))
        curve: list[dict[str, float]] = []
        for epoch in range(1, training.epochs + 1):
            curve.append({"epoch": epoch, "valid/NDCG@10": worth * epoch / training.epochs})
            if watch(curve[-1]):
                break
        assert training.max_minutes is not None
        return Fitted(None, curve, len(curve), min(1.0, training.max_minutes), complete=training.max_minutes >= 1)  # type: ignore[arg-type]


def search(
    folder: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch, minutes: float = 1000.0, trials: int = 12
) -> Search:
    monkeypatch.setattr("marsrec.training.fit.fit", trainings)
    folder.mkdir(parents=True, exist_ok=True)
    base = Recommender("sasrec", options={"dim": 8})
    return Search(base, SOURCE, SplitSettings(), folder, minutes=minutes, trials=trials, progress=False)


def drawn(candidates: list[Any]) -> list[Mapping[str, Any]]:
    return [one.values for one in sorted(candidates[1:], key=lambda one: one.trial)]


def test_the_best_is_found_the_bad_are_pruned_and_other_seeds_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings = Trainings()
    default, *trials = search(tmp_path, trainings, monkeypatch).run()
    assert (default.trial, default.valid, default.epochs, default.other_seed) == (None, DEFAULT, 200, DEFAULT)
    assert sorted(one.trial or 0 for one in trials) == list(range(1, 13))
    pruned = [one for one in trials if one.state == "pruned"]
    assert pruned
    assert all(one.epochs < one.values["training.epochs"] for one in pruned)
    assert all(one.epochs == one.values["training.epochs"] for one in trials if one.state == "complete")
    best = trials[0]
    assert best.valid == pytest.approx(0.5 - 0.2 * abs(math.log10(best.values["training.learning_rate"] / 0.003)))
    assert best.valid == max(one.valid for one in trials)
    assert [one.other_seed is not None for one in trials] == [True] * 3 + [False] * 9
    assert [seed for _, seed in trainings.seen] == [0] * 13 + [1] * 4
    first = drawn([default, *trials])[0]
    assert first["training.learning_rate"] == 1e-3  # as near to the default as the ranges go
    assert first["encoder.dropout"] == 0.5


def test_a_search_that_was_killed_draws_what_an_undisturbed_one_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = search(tmp_path / "a", Trainings(), monkeypatch, trials=6).run()
    for limit in (2, 3):
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path / "b", Trainings(limit), monkeypatch, trials=6).run()
    resumed = search(tmp_path / "b", Trainings(), monkeypatch, trials=6).run()
    assert drawn(resumed) == drawn(undisturbed)
    assert [one.valid for one in resumed] == [one.valid for one in undisturbed]


def test_the_budget_in_minutes_counts_all_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainings = Trainings()
    candidates = search(tmp_path, trainings, monkeypatch, minutes=8.0).run()
    # One for the default, to the sixth for trials; the two that are left are for another seed.
    assert len(candidates) == 1 + 5
    assert [seed for _, seed in trainings.seen] == [0] * 6 + [1] * 2
    again = Trainings()
    assert search(tmp_path, again, monkeypatch, minutes=8.0).run() == candidates
    assert again.seen == []
    more = search(tmp_path, again, monkeypatch, minutes=12.0).run()
    assert drawn(more)[:5] == drawn(candidates)
    assert len(more) > len(candidates)


def test_a_trial_that_time_did_not_suffice_for_is_taken_up_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, trainings = Trainings(), Trainings()
    candidates = search(tmp_path, short, monkeypatch, minutes=3.4).run()  # 2.55 for the search
    assert len(candidates) == 1 + 1
    assert len(short.seen) >= 3
    longer = search(tmp_path, trainings, monkeypatch, minutes=100.0, trials=2).run()
    assert trainings.seen[0] == short.seen[2]
    assert len(longer) == 1 + 2


def test_a_default_that_takes_too_long_is_cut_short_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default, *_ = search(tmp_path, Trainings(), monkeypatch, minutes=2.0).run()
    assert default.state == "cut short"
    assert default.minutes == pytest.approx(0.6)
    whole, *_ = search(tmp_path, Trainings(), monkeypatch, minutes=200.0, trials=1).run()
    assert whole.state == "complete"


def test_a_folder_has_one_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search(tmp_path, Trainings(), monkeypatch, trials=1).run()
    about = json.loads((tmp_path / "search.json").read_text())
    assert ["dim", 64] not in about["searched"]
    monkeypatch.setattr("marsrec.training.fit.fit", Trainings())
    for base, what in (
        (Recommender("gru4rec"), "model and searched"),
        (Recommender("sasrec", options={"dim": 8}, training=TrainingSettings(epochs=3)), "training and searched"),
    ):
        with pytest.raises(SettingsError, match=f"holds a search with other {what}"):
            Search(base, SOURCE, SplitSettings(), tmp_path, minutes=1, trials=1, progress=False)


def test_what_is_searched_follows_from_model_data_and_what_was_given() -> None:
    split = leave_one_out(SOURCE.histories)

    def names(recommender: Recommender) -> dict[str, tuple[Any, ...]]:
        settings = recommender.planned_settings(split.average_length)
        return {one.name: one.values for one in search_space(recommender, settings, split)}

    assert [one.name for one in RANGES if one.name not in names(Recommender("mars-t"))] == []
    assert names(Recommender("mars-t"))["length"] == (25,)  # all have seven training events
    assert "readout.heads" not in names(Recommender("sasrec"))
    given = Recommender("mars-t", options={"dim": 32}, training=TrainingSettings(epochs=3, learning_rate=1e-3))
    assert not {"dim", "training.epochs", "training.learning_rate"} & set(names(given))
    odd = Recommender("sasrec", options={"encoder.attention_heads": 64})
    assert names(odd)["dim"] == (64, 128)
    assert model_settings("sasrec", options={"encoder.attention_heads": 64}).dim == 64


def test_the_documented_ranges_are_those_that_are_searched() -> None:
    page = (Path(__file__).parents[2] / "docs/tuning.md").read_text("utf-8")
    rows = [row.strip("| ").split(" | ") for row in page.splitlines() if row.startswith("| ")]
    described = rows[2 : 2 + len(RANGES)]
    for one, row in zip(RANGES, described, strict=True):
        name = one.name.removeprefix(TRAINING).replace(".", " ").replace("_", " ")
        ends = f"{one.values[0]} to {one.values[-1]}"
        values = ", ".join(map(str, one.values)) if one.scale == "choice" else ends.replace("0.0 ", "0 ")
        assert row == [name, values + ", by ratio" * (one.scale == "log"), one.reason]
