"""What holds for every model that is trained, saved and used."""

import tempfile
from pathlib import Path

import numpy as np

from marsrec.nn.settings import KINDS
from marsrec.recommender import Recommender
from marsrec.testing.case import APPROXIMATE, Case, Check, cyclic_log
from marsrec.training.settings import TrainingSettings


def a_recommender_gives_the_same_answers_saved_live_and_explained(case: Case) -> None:
    """A trained model answers the same after it was saved and loaded, in a session and in an explanation.

    Keep all that a part has learned in parameters and buffers, and build it from its settings alone.
    """
    chosen = {kind: getattr(case.settings, kind) for kind in KINDS}
    training = TrainingSettings(epochs=1)
    log = cyclic_log(users=12)
    fitted = Recommender("sasrec", **chosen, options={"dim": case.settings.dim, "length": 20}, training=training)
    fitted.fit(log, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        fitted.save(Path(folder) / "model")
        loaded = Recommender.load(Path(folder) / "model")
    assert loaded.settings == fitted.settings
    answers, again = (some.recommend(["u3", "u1"], k=100, mask_seen=False) for some in (fitted, loaded))
    assert answers.equals(again), "other answers after loading"
    assert answers["user"].to_list() == ["u3"] * 20 + ["u1"] * 20, "not each item once"
    assert set(answers.filter(user="u1")["item"]) == set(log["item"]), "not all items"
    assert answers["score"].is_finite().all(), "scores that are not finite"
    alone = fitted.recommend("u1", k=100, mask_seen=False)
    np.testing.assert_allclose(alone["score"], answers.filter(user="u1")["score"], rtol=1e-4, atol=1e-5)

    events = log.filter(user="u1").select("item", "time").rows()
    session = fitted.start(events[:-2])
    for item, time in events[-2:]:
        session.add(item, time)
    live = session.recommend(k=100, mask_seen=False)
    scores = dict(zip(alone["item"], alone["score"], strict=True))
    expected = [scores[item] for item in live["item"]]
    np.testing.assert_allclose(live["score"], expected, rtol=APPROXIMATE, atol=APPROXIMATE)

    for item in alone["item"][:2]:
        why = fitted.explain("u1", item)
        np.testing.assert_allclose(why.score, scores[item], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(why.last_state + float(why.terms["share"].sum()), why.score, rtol=1e-3, atol=1e-4)


CHECKS: tuple[Check, ...] = (a_recommender_gives_the_same_answers_saved_live_and_explained,)
