"""Answers for one user, in Python: the fast form beside torch, catalogs of 12,101 and of a million items."""

from functools import partial

import numpy as np
import onnxruntime
import torch

from benchmarks.measure import medians, show
from benchmarks.untrained import shop, untrained
from marsrec.compute.threads import one_thread
from marsrec.evaluation.ranking import products, top_k
from marsrec.models import RECIPES
from marsrec.recommender.export import graph
from marsrec.recommender.inference import Window, in_rows
from marsrec.recommender.session import Session

SHOP, LARGE, REPETITIONS = 12_101, 1_000_000, 200


def main() -> None:
    histories = shop(SHOP)
    user_vectors(histories)
    whole_answers(histories)
    a_million_items()


def user_vectors(histories) -> None:  # type: ignore[no-untyped-def]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    rows = []
    for name in RECIPES:
        recommender = untrained(name, histories)
        inference, network = recommender.inference, recommender.network
        window = Window(histories.items[:30].astype(np.int64), histories.times[:30])
        one, now = inference.one_window, window.latest
        session = onnxruntime.InferenceSession(graph(network), options)
        given = {"items": window.codes, "times": window.times}
        batch = inference.batch([window], [now])

        def plain(network=network, batch=batch) -> None:  # type: ignore[no-untyped-def]
            with torch.no_grad(), one_thread():
                network(batch)

        seconds = medians(
            {
                "fast": lambda one=one, w=window, now=now: one(w.codes, w.times, now),
                "onnx": lambda session=session, given=given: session.run(None, given),
                "torch": plain,
            },
            REPETITIONS,
        )
        fast = seconds["fast"]
        ratios = (f"{seconds[other] / fast:.1f}×" for other in ("torch", "onnx"))
        rows.append([name, *(f"{1e6 * seconds[way]:.0f}" for way in ("fast", "torch", "onnx")), *ratios])
    columns = ["", "fast form", "torch", "ONNX Runtime", "torch takes", "ONNX Runtime takes"]
    show("The user vector of 30 events, µs, one thread", columns, rows)


def whole_answers(histories) -> None:  # type: ignore[no-untyped-def]
    rows = []
    for name in ("mars-t", "mars-m"):
        recommender = untrained(name, histories)
        events = [
            (f"i{code - 1}", int(time)) for code, time in zip(histories.items[:30], histories.times[:30], strict=True)
        ]
        session = recommender.start(events)
        slow = untrained(name, histories)
        slow.inference.__dict__.update(one_window=None, live=None)
        slow_session = slow.start(events)

        def later(own: Session) -> None:
            own.add("i7", own.latest + 60)

        for what, ask, fast, plain in (
            ("recommend(user)", lambda one: one.recommend("u5"), recommender, slow),
            ("recommend(history)", lambda one, e=events: one.recommend(histories=e), recommender, slow),
            ("session.recommend()", Session.recommend, session, slow_session),
            ("session.add(item, time)", later, session, slow_session),
        ):
            both = {"fast": partial(ask, fast), "torch": partial(ask, plain)}
            rows.append(line(f"{name} {what}", medians(both, REPETITIONS)))
    columns = ["", "fast form", "torch", "torch takes"]
    show(f"Answers with ids, {SHOP:,} items, 30 events, ms", columns, rows)


def line(what: str, seconds: dict[str, float]) -> list[str]:
    ratio = f"{seconds['torch'] / seconds['fast']:.1f}×"
    return [what, f"{1e3 * seconds['fast']:.3f}", f"{1e3 * seconds['torch']:.3f}", ratio]


def a_million_items() -> None:
    torch.manual_seed(0)
    items, user = torch.randn(LARGE + 1, 64), torch.randn(1, 64)
    seen = in_rows([np.arange(1, 31)])
    seconds = medians(
        {
            "all of it: scores and the ten best": lambda: top_k(
                lambda u: products(items, u[0])[None], user, 10, seen=seen
            ),
            "the scores alone": lambda: products(items, user[0]),
            "the same by torch": lambda: items @ user[0],
            "reading the item vectors once (their sum)": lambda: items.sum(),
        },
        15,
    )
    rows = [[what, f"{1e3 * took:.1f}", f"{items.nbytes / took / 1e9:.0f}"] for what, took in seconds.items()]
    show(f"{LARGE:,} items, one user vector, exactly", ["", "ms", "GB/s"], rows)


if __name__ == "__main__":
    main()
