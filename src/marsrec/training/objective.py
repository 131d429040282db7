"""What is minimised: the cross-entropy of the next item over the whole catalog, and what the readout adds to it."""

import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.kernels.linear_cross_entropy import linear_cross_entropy, sampled_softmax
from marsrec.nn.model import SequenceModel


class Negatives:
    """Draws items in proportion to a power of their training counts, for sampled softmax.

    Parameters
    ----------
    counts : array (items + 1,)
        How often each item occurs in training; entry 0 is padding.
    number : int
        How many are drawn for a batch, shared by all its targets.
    power : float
        0 draws uniformly, 1 as often as in the data.
    """

    def __init__(self, counts: NDArray, number: int, power: float = 0.75) -> None:  # type: ignore[type-arg]
        weights = torch.as_tensor(counts[1:]).double().clamp(min=1) ** power
        self.number = number
        self.probabilities = (weights / weights.sum()).float()
        self.log_q = self.probabilities.log()

    def draw(self) -> Tensor:
        """Item indices, counted from 0."""
        return torch.multinomial(self.probabilities, self.number, replacement=True)


def next_item_losses(model: SequenceModel, batch: Batch, negatives: Negatives | None = None) -> dict[str, Tensor]:
    """Named losses of a batch; their sum is what is minimised.

    A causal model reads out at every position in one pass; another reads out at the end of each row. On the same
    (past, next item) pairs both give the same cross-entropy.

    Parameters
    ----------
    model : SequenceModel
        What is trained.
    batch : Batch
        Windows for causal models, prefixes for others.
    negatives : Negatives, optional
        Sample the softmax instead of computing it over all items.
    """
    output = model(batch, every=model.causal)
    trained = batch.targets > 0
    users = output.users[trained] if model.causal else output.users
    targets = batch.targets[trained] - 1  # padding is not an item: the catalog counts from 0 here
    users, items, bias = model.scorer(users, model.items.weight)
    if bias is not None:
        bias = bias[1:]
    if negatives is None:
        loss = linear_cross_entropy(users, items[1:], targets, bias=bias)
    else:
        drawn = negatives.draw().to(targets.device)
        log_q = negatives.log_q.to(targets.device)
        loss = sampled_softmax(users, items[1:], targets, drawn, log_q[targets], log_q[drawn])
    return {"cross_entropy": loss, **output.losses}
