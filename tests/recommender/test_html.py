"""What a notebook shows of recommenders, evaluations, explanations and sessions: escaped text, and small bars."""

import re
from html.parser import HTMLParser

import nbclient
import nbformat
import polars as pl
import pytest
from tests.synthetic import cyclic_log

from marsrec import Explanation, Recommender, TrainingSettings
from marsrec.reprs import HEADS, REST

EVIL = "<script>alert('x')</script>&\""


class Text(HTMLParser):
    """The text of a page and its tags; an unclosed one is noticed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def fitted() -> Recommender:
    log = cyclic_log(users=20, items=5).with_columns(pl.col("item").replace({"i1": EVIL}))
    options = {"dim": 8, "length": 12, "readout.heads": 2}
    training = TrainingSettings(epochs=1, targets_per_batch=256)
    return Recommender("mars-t", options=options, training=training).fit(log, progress=False)


def explanation(shares: list[tuple[str, int, int, float]], last_state: float = 0.5) -> Explanation:
    """Of events (item, event, head, share)."""
    names = ("item", "event", "head", "share")
    terms = pl.DataFrame([dict(zip(names, row, strict=True)) for row in shares]).with_columns(
        time=0,
        age=pl.lit("1 hour"),
        age_seconds=3600.0,
        half_life=pl.lit("2 hours"),
        half_life_seconds=7200.0,
        gate=0.5,
        weight=0.1,
    )
    score = last_state + sum(share for *_, share in shares)
    return Explanation(EVIL, None, score, last_state, terms, "last-event")


def test_an_explanation_is_a_bar_per_event_with_a_colour_per_head() -> None:
    found = explanation([("tea", 2, 1, 1.0), (EVIL, 1, 1, 2.0), ("tea", 2, 2, 1.0), (EVIL, 1, 2, -4.0)])
    page = found._repr_html_()
    text = Text(page)
    assert "script" not in text.tags
    assert text.words.count(EVIL) == 1  # in its row
    assert text.words[0] == found.sentence()
    bars = re.findall(r"width:([\d.]+)%;margin-left:([\d.]+)%;background-color:(#\w+)", page)
    # From -4 to 2, in which zero lies at two thirds: each event's shares side by side, then the last state.
    assert bars == [
        ("16.67", "66.67", HEADS[0]),
        ("16.67", "0.00", HEADS[1]),
        ("66.67", "0.00", HEADS[1]),
        ("33.33", "0.00", HEADS[0]),
        ("8.33", "66.67", REST),
    ]
    assert [word for word in text.words if re.fullmatch(r"[+-]\d\.\d{4}", word)] == [
        *("+2.0000", "-2.0000", "+0.5000", "+0.5000"),  # events, last state, score
        *("+3.0000", "-3.0000"),  # heads
    ]
    assert repr(found) == f"<Explanation: {found.sentence()}>"


def test_of_many_events_the_largest_stand_alone() -> None:
    text = Text(explanation([(f"i{e}", e, 1, e / 10) for e in range(1, 13)])._repr_html_())
    assert [word for word in text.words if re.fullmatch(r"i\d+", word)] == [f"i{e}" for e in range(12, 4, -1)]
    assert "4 others" in text.words
    assert "+1.0000" in text.words  # 0.1 + 0.2 + 0.3 + 0.4


def test_what_was_measured_is_shown(fitted: Recommender) -> None:
    text = Text(fitted._repr_html_())
    assert text.words[0] == repr(fitted)[1:-1]
    assert f"{100 * fitted.metrics['test']['NDCG@10']:.2f}" in text.words
    assert Text(Recommender("mars-t")._repr_html_()).words == ["Recommender: mars-t, not fitted"]

    evaluation = fitted.evaluate(metrics=["HR", "coverage@10"], ks=(1, 5))
    lines = repr(evaluation).splitlines()
    assert lines[0] == "Evaluation of 20 targets"
    assert lines[1].split() == ["@1", "@5", "@10"]
    assert lines[2].split() == ["HR", f"{evaluation.metrics['HR@1']:.4f}", f"{evaluation.metrics['HR@5']:.4f}"]
    words = Text(evaluation._repr_html_()).words
    assert words[0] == lines[0]
    assert f"{evaluation.metrics['coverage@10']:.4f}" in words


def test_a_session_says_what_it_holds(fitted: Recommender) -> None:
    session = fitted.start([(EVIL, 1_600_000_000)])
    text = Text(session._repr_html_())
    assert text.words[0] == repr(session)[1:-1]
    assert f"{session.nbytes:,} bytes" in text.words[1]


NOTEBOOK = """
import polars as pl
from marsrec import Recommender, TrainingSettings
log = pl.DataFrame({"user": [u for u in range(20) for _ in range(6)], "item": [f"i{(u + e) % 5}" for u in range(20) for
    e in range(6)], "time": [3600 * e for _ in range(20) for e in range(6)]})
training = TrainingSettings(epochs=2, targets_per_batch=32)
mars = Recommender("mars-t", options={"dim": 8, "length": 6}, training=training)
""".strip()


def test_an_executed_notebook_keeps_progress_and_pictures(tmp_path: object) -> None:
    cells = [NOTEBOOK, "mars.fit(log)", "mars.evaluate()", "mars.explain(3, 'i2')", "mars.start(3)"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    _, fit, *others = notebook.cells
    (progress,) = [o for o in fit.outputs if o.output_type == "display_data"]  # one output, which changed in place
    assert "epoch 2/2" in progress.data["text/html"]
    assert "done in 0:" in progress.data["text/html"]
    assert "valid NDCG@10" in progress.data["text/plain"]
    for cell, begin in zip(others, ("Evaluation of 20 targets", "i2", "Session: 6 events"), strict=True):
        (shown,) = [o for o in cell.outputs if o.output_type == "execute_result"]
        assert Text(shown.data["text/html"]).words[0].startswith(begin)
    (model,) = [o for o in fit.outputs if o.output_type == "execute_result"]
    assert "Recommender: mars-t" in model.data["text/html"]
