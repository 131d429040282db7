"""Small logs and models that attacks start from."""

from pathlib import Path

import polars as pl

from marsrec import Recommender, TrainingSettings

START = 1_700_000_000


def log(users: int = 16, events: int = 8) -> pl.DataFrame:
    """Users who go round some items, each with a step of their own."""
    rows = [
        (f"u{user}", f"i{(user + step * (1 + user % 3)) % 11}", START + 3600 * step + user)
        for user in range(users)
        for step in range(events)
    ]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def model(folder: Path, mark: str = "") -> Path:
    """A saved model of one epoch."""
    made = Recommender("mars-t", options={"dim": 8, "length": 8}, training=TrainingSettings(epochs=1))
    made.fit(log(), progress=False, test=False)
    made.metrics["mark"] = mark
    made.save(folder)
    return folder
