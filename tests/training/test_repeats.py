"""What repeats are worth is found on validation targets, and counts wherever items are ranked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tests.synthetic import histories_of

from marsrec import Recommender, TrainingSettings
from marsrec.data.splits import Split, leave_one_out
from marsrec.evaluation.evaluate import evaluate, own_scores
from marsrec.models import model_settings
from marsrec.nn.model import SequenceModel
from marsrec.recommender.inference import Inference, Request
from marsrec.training.repeats import fit_repeats

SMALL = {"dim": 8, "length": 20, "encoder.dropout": 0.0, "scorer.repeats": True}


def returning_log(users: int = 150, events: int = 15, items: int = 60) -> pl.DataFrame:
    """Whoever was somewhere two events ago goes back there, in four of five cases; else anywhere."""
    rng = np.random.default_rng(0)
    rows = []
    for user in range(users):
        had = rng.permutation(items)[:2].tolist()
        while len(had) < events:
            had.append(had[-2] if rng.random() < 0.8 else int(rng.integers(items)))
        rows += [(f"u{user}", f"i{item}", 1_600_000_000 + 7200 * place) for place, item in enumerate(had)]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(histories_of(returning_log()))


def untrained(split: Split, model: str = "sasrec") -> SequenceModel:
    torch.manual_seed(0)
    return model_settings(model, options=SMALL).build(split.histories.n_items).eval()


def test_an_untrained_network_finds_out_what_comes_back(split: Split) -> None:
    model = untrained(split)
    before = evaluate(model, split, 20).metrics["MRR@10"]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    fit_repeats(model, split, 20)
    after = evaluate(model, split, 20)
    assert before < 0.2
    assert after.metrics["MRR@10"] > 0.7  # four of five targets are items of two events ago
    assert model.repeats is not None
    assert model.repeats.weights[1] > 2 > 0 > model.repeats.weights[0]  # two events ago; just now
    others = {name: value for name, value in model.state_dict().items() if name != "repeats.weights"}
    assert all(torch.equal(value, state[name]) for name, value in others.items())


def test_own_scores_of_pieces_are_those_of_all(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    model = untrained(split)
    fit_repeats(model, split, 20)
    whole = own_scores(model, split.histories, split.test, 20)
    monkeypatch.setattr("marsrec.evaluation.evaluate.ROWS", 7)
    pieces = own_scores(model, split.histories, split.test, 20)
    assert whole is not None
    assert pieces is not None
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other)


def test_nothing_is_fitted_without_validation_targets(split: Split) -> None:
    model = untrained(split)
    none = replace(split.valid, users=split.valid.users[:0], positions=split.valid.positions[:0])
    fit_repeats(model, replace(split, valid=none), 20)
    assert model.repeats is not None
    assert model.repeats.weights.eq(0).all()


@pytest.mark.parametrize("model", ["hawkes-m", "sasrec"])
def test_answers_sessions_explanations_and_saved_folders_have_them(model: str, tmp_path: Path) -> None:
    recommender = Recommender(model, options=SMALL, training=TrainingSettings(epochs=1))
    recommender.fit(returning_log(), progress=False)
    user = recommender.user_ids()[0]
    top = recommender.recommend([user], k=3, mask_seen=False)
    evaluated = recommender.evaluate()
    assert evaluated.metrics["MRR@10"] > 0.7
    assert recommender.metrics["test"]["MRR@10"] == evaluated.metrics["MRR@10"]

    recommender.save(tmp_path / "saved")
    again = Recommender.load(tmp_path / "saved")
    assert again.recommend([user], k=3, mask_seen=False).equals(top)

    histories = recommender.histories
    assert histories is not None
    events = slice(*histories.offsets[:2])
    session = recommender.start()
    session.extend(histories.items[events].astype(np.int64), histories.times[events])
    assert not session.recurrent
    live = session.recommend(3, mask_seen=False)
    assert live["item"].equals(top["item"])
    np.testing.assert_allclose(live["score"], top["score"], atol=1e-5)

    explanation = recommender.explain(user, top["item"][0])
    assert explanation.score == pytest.approx(top["score"][0], abs=1e-5)
    if len(explanation.terms):
        total = explanation.last_state + explanation.terms["share"].sum()
        assert total == pytest.approx(explanation.score, abs=1e-4)
        assert explanation.by_head()["half_life"][-1] == "had before"


def test_where_own_items_are_hidden_an_index_may_rank(split: Split) -> None:
    class Index:
        most, asked = 100, 0

        def top_k(self, users: torch.Tensor, k: int, seen: object) -> tuple[torch.Tensor, torch.Tensor]:
            self.asked += 1
            return torch.zeros(len(users), k), torch.arange(1, k + 1).expand(len(users), -1)

    model = untrained(split)
    histories = split.histories
    inference = Inference(model, 20, split.item_counts, "s", int(histories.times.max()))
    window = inference.window(histories.items[:5], histories.times[:5])
    index = Index()
    for seen, asked in ((window.codes, 1), (window.codes[:1], 1), (None, 1)):
        inference.answer([Request(window, window.latest, 3, seen)], ranker=index)
        assert index.asked == asked
