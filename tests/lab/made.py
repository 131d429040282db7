"""Results made by hand, for tests of tables and figures."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from reproduction.comparable import origin

from marsrec.data.catalog import CATALOG
from marsrec.data.splits import SplitSettings
from marsrec.lab.results import RANKS, Result
from marsrec.models import model_settings
from marsrec.paper import paper_options
from marsrec.training.settings import TrainingSettings


def result(
    model: str,
    hits: float = 0.08,
    *,
    data: str = "beauty",
    seed: int = 0,
    readout: str | None = None,
    options: dict[str, Any] | None = None,
    average: float = 8.9,
    **training: Any,
) -> Result:
    """A result at the paper's settings with some share of hits; its other metrics are half and a quarter of it."""
    test = {"HR@10": hits, "NDCG@10": hits / 2, "MRR@10": hits / 4}
    known = CATALOG.get(data.removesuffix("-recbole"))
    statistics = {"average_length": average, **(asdict(known.expected) if known else {})}
    chosen = {**paper_options(origin(data), model, readout=readout), **(options or {})}
    return Result(
        data=data,
        fingerprint="x",
        statistics=statistics,
        training_length=average,
        model=model,
        settings=model_settings(model, average, readout=readout, options=chosen),
        training=TrainingSettings(seed=seed, **training),
        split=SplitSettings(),
        valid=test,
        test=test,
        parameters=1,
        best_epoch=5,
        epochs=25,
        minutes=7.0,
        curve=[],
    )


def write_with_ranks(
    folder: Path,
    made: Result,
    ranks: list[float],
    lengths: list[int],
    times: list[str] | None = None,
    users: list[int] | None = None,
) -> None:
    """Write a result and the ranks of its test targets; `times` are "same time" or "later"."""
    (folder / RANKS).mkdir(parents=True, exist_ok=True)
    frame: dict[str, Any] = {"rank": np.array(ranks, dtype=np.float32), "length": np.array(lengths, dtype=np.int32)}
    if times is not None:
        frame["time"] = pl.Series(times, dtype=pl.Enum(["same time", "later"]))
    if users is not None:
        frame["user"] = np.array(users, dtype=np.int32)
    pl.DataFrame(frame).write_parquet(folder / RANKS / f"{made.name}.parquet")
    (folder / f"{made.name}.json").write_text(json.dumps(made.model_dump(mode="json")))


def pair_with_ranks(folder: Path, **ranks: list[float]) -> list[Result]:
    """sasrec and mars-t with these ranks of four users, on beauty."""
    made = [result(name.replace("_", "-"), sum(rank <= 10 for rank in of) / 4) for name, of in ranks.items()]
    for one, of in zip(made, ranks.values(), strict=True):
        write_with_ranks(folder, one, of, [3, 5, 10, 60])
    return made
