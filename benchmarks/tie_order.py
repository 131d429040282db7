"""What the order of events of equal time is worth on ml-1m. `python -m benchmarks.tie_order [EPOCHS [VERSION ...]]`.

Half of ml-1m's neighbouring events share their second, and the file lists them in nearly the same order for all users.
Whoever keeps that order lets a model learn it. Here the order within a second is kept, drawn at random, or, as
RecBole's float32 times do, taken for all events within 64 seconds: there in the order of the original file, which a
file sorted by time no longer has. In its place stands an order of the items that was fitted to the ties: by it the
seconds of such a block are merged, each of which stays as it is.
"""

import sys
from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F

from benchmarks.measure import show
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.public import load
from marsrec.data.splits import leave_one_out
from marsrec.evaluation.evaluate import evaluate
from marsrec.models import model_settings
from marsrec.training.fit import fit
from marsrec.training.settings import TrainingSettings


def tied_pairs(frame: pl.DataFrame) -> pl.DataFrame:
    """Neighbouring events of one user and one time: item and the next item."""
    following = frame.with_columns(pl.col("item", "time").shift(-1).over("user").name.prefix("next_"))
    return following.filter(pl.col("next_time") == pl.col("time")).select("item", "next_item")


def item_order(frame: pl.DataFrame) -> tuple[pl.DataFrame, float]:
    """A place for each item such that of two tied events the one listed first has the lower place, mostly.

    Also the share of held-out ties for which that is so.
    """
    ids = frame["item"].unique().sort()
    code = pl.DataFrame({"item": ids, "code": np.arange(len(ids))})
    pairs = tied_pairs(frame).join(code, on="item").join(code, left_on="next_item", right_on="item", suffix="_next")
    first, second = (torch.from_numpy(pairs[name].to_numpy().copy()) for name in ("code", "code_next"))
    shuffled = torch.randperm(len(first), generator=torch.Generator().manual_seed(0))
    held, kept = shuffled.tensor_split([len(first) // 10])
    place = torch.zeros(len(ids), requires_grad=True)
    optimizer = torch.optim.Adam([place], lr=0.1)
    for _ in range(300):
        optimizer.zero_grad()
        F.softplus(place[first[kept]] - place[second[kept]]).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    right = float((place[second[held]] > place[first[held]]).float().mean())
    return pl.DataFrame({"item": ids, "place": place.detach().numpy()}), right


def shuffled(frame: pl.DataFrame) -> pl.DataFrame:
    drawn = np.random.default_rng(0).random(len(frame))
    return frame.with_columns(drawn=drawn).sort("user", "time", "drawn").drop("drawn")


def rounded(frame: pl.DataFrame) -> pl.DataFrame:
    places, right = item_order(frame)
    print(f"The order of the items is right for {right:.0%} of held-out ties.")
    placed = frame.join(places, on="item", how="left", maintain_order="left")
    merged = placed.with_columns(
        pl.col("place").cum_max().over("user", "time"),  # never falls within a second: a second stays as it is
        pl.col("time").cast(pl.Float32).cast(pl.Int64),
    )
    return merged.sort("user", "time", "place", maintain_order=True).drop("place")


VERSIONS = {"file": lambda frame: frame, "random": shuffled, "rounded": rounded}


def main(epochs: int = 3, names: Sequence[str] = tuple(VERSIONS)) -> None:
    frame = load("ml-1m").frame
    ties = len(tied_pairs(frame)) / (len(frame) - frame["user"].n_unique())
    rows = []
    for name in names:
        split = leave_one_out(Histories.from_log(Log(VERSIONS[name](frame), "s")))
        settings = model_settings("mamba4rec", split.average_length)
        fitted = fit(split, settings, TrainingSettings(epochs=epochs))
        measured = evaluate(fitted.model, split, settings.length).metrics
        rows.append([name, *(f"{100 * measured[metric]:.2f}" for metric in ("HR@10", "NDCG@10", "MRR@10"))])
    show(
        f"mamba4rec on ml-1m, {epochs} epochs, test × 100; {ties:.0%} of neighbours share their time",
        ["events of equal time", "HR@10", "NDCG@10", "MRR@10"],
        rows,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3, sys.argv[2:] or tuple(VERSIONS))
