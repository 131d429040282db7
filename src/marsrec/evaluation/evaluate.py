"""Evaluate a model on the targets of a split: user vectors, full ranking, metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.atomic import atomic_file
from marsrec.data.batches import Batches, contexts, gather
from marsrec.data.histories import Histories, flat_rows
from marsrec.data.splits import Part, Split, Targets
from marsrec.errors import DataError
from marsrec.evaluation.by_name import Function
from marsrec.evaluation.groups import members
from marsrec.evaluation.lists import Lists, had_before
from marsrec.evaluation.measures import KS, Measure, figures, measures
from marsrec.evaluation.metrics import ACCURACY
from marsrec.evaluation.ranking import Seen, target_ranks, top_k
from marsrec.nn.model import SequenceModel
from marsrec.nn.repeats import Added
from marsrec.reprs import aligned, grid, html

POSITIONS = 32_768
"""Padded positions per batch when nothing is trained."""
ROWS = 1024
"""Histories at a time whose own items are scored."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Ranks of N targets among all items, what was recommended in their place, and the metrics of both."""

    measures: Sequence[Measure]
    ranks: NDArray[np.float64]
    """(N,) rank of each target, 1 is best; ties count half."""
    lengths: NDArray[np.int64]
    """(N,) number of events before each target."""
    lists: Lists | None = None
    """What is recommended instead of the targets; None if no metric looks at it."""

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Figures by name, such as "NDCG@10"."""
        return figures(self.measures, self.ranks, self.lists)

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """A row per metric, a column per cut-off."""
        cuts = list(dict.fromkeys(measure.name.partition("@")[2] for measure in self.measures))
        names = list(dict.fromkeys(measure.name.partition("@")[0] for measure in self.measures))
        found = {tuple(name.split("@")): f"{value:.4f}" for name, value in self.metrics.items()}
        rows = [[name, *(found.get((name, cut) if cut else (name,), "") for cut in cuts)] for name in names]
        return ["", *(f"@{cut}" if cut else "" for cut in cuts)], rows

    def __repr__(self) -> str:
        return f"Evaluation of {len(self.ranks):,} targets\n{aligned(*self._rows())}"

    def _repr_html_(self) -> str:
        return html(grid(*self._rows(), f"Evaluation of {len(self.ranks):,} targets"))

    def __getitem__(self, rows: Any) -> Self:
        """The same for some of the targets."""
        lists = None if self.lists is None else self.lists[rows]
        return type(self)(self.measures, self.ranks[rows], self.lengths[rows], lists)

    def by_group(self, groups: pl.Series) -> pl.DataFrame:
        """Metrics of groups of targets, such as those that `marsrec.evaluation.groups` names.

        Parameters
        ----------
        groups : Series (N,)
            The group of each target, as a polars Enum.

        Returns
        -------
        DataFrame
            A row per group: `group`, `targets`, and the metrics, which are null where there are no targets.
        """
        nothing = dict.fromkeys(measure.name for measure in self.measures)
        return pl.DataFrame(
            [
                {"group": name, "targets": rows.sum(), **(self[rows].metrics if rows.any() else nothing)}
                for name, rows in members(groups).items()
            ],
            schema={"group": pl.String, "targets": pl.Int64, **dict.fromkeys(nothing, pl.Float64)},
        )


def evaluate(
    model: SequenceModel,
    split: Split,
    length: int,
    part: Part = "test",
    *,
    metrics: Sequence[str | Function] = ACCURACY,
    mask_seen: bool = False,
    ks: Sequence[int] = KS,
) -> Evaluation:
    """Rank the targets of one part of a split, and recommend in their place where a metric wants lists.

    Parameters
    ----------
    model : SequenceModel
        A trained model.
    split : Split
        Where the targets and the events before them are.
    length : int
        Number of latest events that the model looks at.
    part : {"valid", "test"}
        Which targets.
    metrics : sequence of str or function
        What is measured: names, with a cut-off ("coverage@10") or without, or functions of one's own; see
        `marsrec.evaluation.metrics`.
    mask_seen : bool
        Leave items of the user's past out of the ranking. Off is the paper's protocol, on is what most products want.
    ks : sequence of int
        Cut-offs of metrics that name none.
    """
    chosen = measures(metrics, ks)
    targets = split.targets(part)
    histories = split.histories
    users = user_vectors(model, histories, targets, length)
    added = own_scores(model, histories, targets, length)
    device = users.device
    seen = None
    if mask_seen:
        offsets, items = past_items(histories, targets)
        seen = (torch.from_numpy(offsets).to(device), torch.from_numpy(items).to(device))
    wanted = histories.items[targets.positions].astype(np.int64)
    with torch.no_grad():
        ranks = target_ranks(model.score, users, torch.from_numpy(wanted).to(device), seen=seen, added=added)
    cuts = [measure.k for measure in chosen if measure.of_lists and measure.k is not None]
    lists = recommended(model, split, targets, users, max(cuts), seen=seen, added=added) if cuts else None
    lengths = targets.positions - histories.offsets[targets.users]
    return Evaluation(chosen, ranks.cpu().numpy(), lengths, lists)


def recommended(
    model: SequenceModel,
    split: Split,
    targets: Targets,
    users: Tensor,
    k: int,
    *,
    seen: Seen | None = None,
    added: Added | None = None,
) -> Lists:
    """The k best items for users (N, d) in place of their targets; see `top_k`."""
    histories = split.histories
    items = top_k(model.score, users, k, seen=seen, added=added)[1].cpu().numpy()
    return Lists(
        items=items,
        targets=histories.items[targets.positions].astype(np.int64),
        repeats=had_before(histories, targets, items),
        counts=split.item_counts,
        vectors=model.items.weight.detach().float().cpu().numpy(),
        item_ids=histories.item_ids,
    )


def user_vectors(model: SequenceModel, histories: Histories, targets: Targets, length: int) -> Tensor:
    """(N, d) vectors of the users just before their targets."""
    batches = Batches(histories, contexts(histories, targets, length), POSITIONS, count="positions")
    table = model.items.weight
    users = torch.empty(len(targets), table.shape[1], dtype=table.dtype, device=table.device)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for index, rows in enumerate(batches.batches):
            users[torch.from_numpy(rows).to(users.device)] = model(batches[index].to(users.device)).users
    model.train(was_training)
    return users


def own_scores(model: SequenceModel, histories: Histories, targets: Targets, length: int) -> Added | None:
    """What comes on top of the scores of items that users had before their targets; None for models without it."""
    if model.repeats is None:
        return None
    rows = contexts(histories, targets, length)
    added = [
        model.own_scores(gather(histories, rows[start : start + ROWS]).to(model.items.weight.device))
        for start in range(0, len(rows), ROWS)
    ]
    counts, items, values = zip(*((offsets.diff(), *rest) for offsets, *rest in filter(None, added)), strict=True)
    offsets = torch.cat(counts).cumsum(0)
    return torch.cat([offsets.new_zeros(1), offsets]), torch.cat(items), torch.cat(values)


def past_items(histories: Histories, targets: Targets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items before each target, in compressed rows: offsets and item codes."""
    starts = histories.offsets[targets.users]
    offsets, index = flat_rows(starts, targets.positions - starts)
    return offsets, histories.items[index].astype(np.int64)


def write_ranks(path: Path, evaluation: Evaluation, histories: Histories, targets: Targets) -> None:
    """Write a row per target to parquet: user, target, history_length, rank.

    Parameters
    ----------
    path : Path
        The file to write or replace.
    evaluation : Evaluation
        The ranks.
    histories, targets : Histories, Targets
        What was evaluated, for the raw ids.
    """
    if len(targets) != len(evaluation.ranks):
        raise DataError(f"{path}: {len(evaluation.ranks)} ranks of {len(targets)} targets; evaluate the same ones.")
    table = pl.DataFrame(
        {
            "user": histories.user_ids.ids.gather(targets.users),
            "target": histories.item_ids.decode(histories.items[targets.positions]),
            "history_length": evaluation.lengths,
            "rank": evaluation.ranks,
        }
    )
    with atomic_file(path) as temporary:
        table.write_parquet(temporary)
