"""What is minimised: the cross-entropy of the next item over the whole catalog, and what the readout adds to it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.kernels.linear_cross_entropy import NegativeSampler, linear_cross_entropy, sampled_softmax
from marsrec.nn.model import SequenceModel


def next_item_losses(
    model: SequenceModel, batch: Batch, sampler: NegativeSampler | None = None, negatives: int = 0
) -> dict[str, Tensor]:
    """Named losses of a batch; their sum is what is minimised.

    A causal model reads out at every position in one pass; another reads out at the end of each row. On the same
    (past, next item) pairs both give the same cross-entropy.

    Parameters
    ----------
    model : SequenceModel
        What is trained.
    batch : Batch
        Windows for causal models, prefixes for others.
    sampler, negatives : NegativeSampler and int, optional
        Sample the softmax over this many items that all targets share, instead of computing it over all items.
    """
    output = model(batch, at_targets=model.causal)
    targets = batch.targets[batch.targets > 0] - 1  # padding is not an item: the catalog counts from 0 here
    users, items, bias = model.scorer(output.users, model.items.weight)
    if bias is not None:
        bias = bias[1:]
    if sampler is None:
        loss = linear_cross_entropy(users, items[1:], targets, bias=bias)
    else:
        drawn, log_q = (part.to(users.device) for part in sampler.draw(negatives))
        if bias is not None:  # one more dimension, in which every user is 1
            users, items = F.pad(users, (0, 1), value=1.0), torch.cat([items, F.pad(bias, (1, 0))[:, None]], dim=1)
        loss = sampled_softmax(users, items[1:], targets, drawn, log_q_negatives=log_q)
    return {"cross_entropy": loss, **output.losses}
