"""Live sessions: what an event and a request cost after few and after very many events."""

import time

import numpy as np
import polars as pl
import torch

from benchmarks.measure import show
from marsrec import Recommender, TrainingSettings
from marsrec.data.batches import Batch
from marsrec.recommender.session import Session

COUNTS = (10, 100, 1_000, 10_000, 100_000)
RECOMPUTED = (200, 10_000)
REPETITIONS = 200
ITEMS = 3_416


def median_ms(run, repetitions: int) -> float:  # type: ignore[no-untyped-def]
    seconds = []
    for _ in range(repetitions):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return 1e3 * float(np.median(seconds))


def main() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(1, ITEMS + 1, max(COUNTS) + 1)
    times = 1_000_000_000 + rng.integers(1, 10**5, len(codes)).cumsum()
    recommender = barely_trained()
    rows, event = [], 0.0
    for count in COUNTS:
        session = Session(recommender)
        began = time.perf_counter()
        session.extend(codes[:count], times[:count])
        filled = time.perf_counter() - began
        copies = iter([recommender.restore(session.to_bytes()) for _ in range(REPETITIONS)])

        def add(copies=copies, count=count) -> None:  # type: ignore[no-untyped-def]
            next(copies).extend(codes[count : count + 1], times[count : count + 1])

        add_ms, vector_ms = median_ms(add, REPETITIONS), median_ms(lambda s=session: s.vector(), REPETITIONS)
        event = add_ms + vector_ms
        recommend_ms = median_ms(lambda s=session: s.recommend(k=10), 20)
        rows.append(
            [
                f"{count:,}",
                f"{add_ms:.2f}",
                f"{vector_ms:.2f}",
                f"{recommend_ms:.2f}",
                f"{session.nbytes:,}",
                f"{1e6 * filled / count:.0f}",
            ]
        )
    show(
        f"A session of mars-m (K=8, {ITEMS:,} items), ms",
        ["events so far", "add one", "user vector", "recommend 10", "bytes", "given at once, µs per event"],
        rows,
    )
    rows = []
    network = recommender.network
    for length in RECOMPUTED:
        items, moments = torch.from_numpy(codes[:length])[None], torch.from_numpy(times[:length])[None]
        batch = Batch(items, moments, torch.tensor([length]), torch.zeros_like(items), moments)
        with torch.no_grad():
            whole = median_ms(lambda b=batch: network(b), 20 if length > 1000 else 60)
        rows.append([f"{length:,}", f"{whole:.2f}", f"{event:.2f}", f"{whole / event:.1f}×"])
    show(
        "A new event and the user vector after it, ms",
        ["events", "recomputed from all", f"from the state, after {COUNTS[-1]:,} events", "cheaper"],
        rows,
    )


def barely_trained() -> Recommender:
    """A recommender that knows ITEMS items; for time its weights do not matter."""
    rng = np.random.default_rng(0)
    item = np.concatenate([np.arange(ITEMS), rng.integers(ITEMS, size=10 * ITEMS - ITEMS)])
    log = pl.DataFrame(
        {"user": np.arange(len(item)) % ITEMS, "item": item, "time": 1_000_000_000 + np.arange(len(item))}
    )
    options = {"readout.heads": 8, "length": 200}
    return Recommender("mars-m", options=options, training=TrainingSettings(epochs=1)).fit(log, progress=False)


if __name__ == "__main__":
    main()
