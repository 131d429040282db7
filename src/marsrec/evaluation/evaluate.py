"""Evaluate a model on the targets of a split: user vectors, full ranking, metrics."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.data.batches import Batches, contexts
from marsrec.data.histories import Histories, flat_rows
from marsrec.data.splits import Split, Targets
from marsrec.evaluation.metrics import metrics
from marsrec.evaluation.ranking import target_ranks
from marsrec.nn.model import SequenceModel

Part = Literal["valid", "test"]

POSITIONS = 32_768
"""Padded positions per batch when nothing is trained."""


@dataclass(frozen=True)
class Evaluation:
    """Ranks of the targets among all items, and their metrics."""

    metrics: dict[str, float]
    ranks: NDArray[np.float64]
    """Rank of each target, 1 is best; ties count half."""
    lengths: NDArray[np.int64]
    """Number of events before each target."""


def evaluate(
    model: SequenceModel,
    split: Split,
    length: int,
    part: Part = "test",
    *,
    mask_seen: bool = False,
    ks: tuple[int, ...] = (5, 10, 20),
) -> Evaluation:
    """Rank the targets of one part of a split.

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
    mask_seen : bool
        Leave items of the user's past out of the ranking. Off is the paper's protocol, on is what most products want.
    ks : tuple of int
        Cut-offs of the metrics.
    """
    targets: Targets = split.valid if part == "valid" else split.test
    histories = split.histories
    users = user_vectors(model, histories, targets, length)
    device = users.device
    seen = None
    if mask_seen:
        offsets, items = past_items(histories, targets)
        seen = (torch.from_numpy(offsets).to(device), torch.from_numpy(items).to(device))
    wanted = torch.from_numpy(histories.items[targets.positions].astype(np.int64)).to(device)
    with torch.no_grad():
        ranks = target_ranks(model.score, users, wanted, seen=seen)
    lengths = targets.positions - histories.offsets[targets.users]
    return Evaluation(metrics(ranks, ks), ranks.cpu().numpy(), lengths)


def repeated(histories: Histories, targets: Targets) -> NDArray[np.bool_]:
    """(N,) whether a target is an item that its user had before, which `recommend` leaves out by default."""
    owners = np.repeat(np.arange(histories.n_users), histories.lengths)
    pairs = owners * (histories.n_items + 1) + histories.items
    _, firsts, which = np.unique(pairs, return_index=True, return_inverse=True)
    again: NDArray[np.bool_] = firsts[which[targets.positions]] < targets.positions
    return again


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


def past_items(histories: Histories, targets: Targets) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Items before each target, in compressed rows: offsets and item codes."""
    starts = histories.offsets[targets.users]
    offsets, index = flat_rows(starts, targets.positions - starts)
    return offsets, histories.items[index].astype(np.int64)
