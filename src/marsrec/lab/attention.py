"""Attention entropy of a trained transformer encoder on the test histories."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from marsrec.data.batches import Batch, Batches, contexts
from marsrec.evaluation.evaluate import POSITIONS
from marsrec.nn.encoders.transformer import AttentionBlock, Transformer
from marsrec.nn.kernels.attention import chunks
from marsrec.recommender import Recommender
from marsrec.settings import Settings


class Entropy(Settings):
    """Attention entropy of a layer: 1 is an even look at all visible events, 0 a look at one of them."""

    mean: float
    std: float
    """Over positions, after the mean over attention heads."""
    mean_all: float
    """The same over all positions: one that sees a single event counts as 0. The paper does not say which it gives."""
    std_all: float


def attention_entropy(recommender: Recommender) -> list[Entropy]:
    """Entropy of the attention weights in each layer of a transformer encoder, over the logarithm of visible events.

    Over all positions of the test histories that see at least two events, themselves included. Encoders of another kind
    have none.
    """
    model = recommender.network
    if not isinstance(model.encoder, Transformer):
        return []
    blocks = [block for block in model.encoder.blocks if isinstance(block, AttentionBlock)]
    found: list[list[Tensor]] = [[] for _ in blocks]
    histories = 0
    projected: list[Tensor] = []  # queries, keys and values of the layers, as the encoder computes them
    hooks = [block.qkv.register_forward_hook(lambda _module, _input, qkv: projected.append(qkv)) for block in blocks]
    try:
        for batch in over_test_histories(recommender):
            histories += len(batch.lengths)
            with torch.no_grad():
                model.encode(batch)
            for block, entropies in zip(blocks, found, strict=True):
                query, key, _ = block.split(projected.pop(0))
                entropies.append(normalised_entropy(query, key, batch.lengths))
    finally:
        for hook in hooks:
            hook.remove()
    return [_summed_up(torch.cat(entropies).double(), histories) for entropies in found]


def _summed_up(entropies: Tensor, first: int) -> Entropy:
    """Of positions that see two events or more, and of as many first positions as there are histories besides."""
    everywhere = torch.cat([entropies, entropies.new_zeros(first)])
    pairs = [(values.mean().item(), values.std(correction=0).item()) for values in (entropies, everywhere)]
    (mean, std), (mean_all, std_all) = pairs if len(entropies) else ((0.0, 0.0), (0.0, 0.0))
    return Entropy(mean=mean, std=std, mean_all=mean_all, std_all=std_all)


def normalised_entropy(query: Tensor, key: Tensor, lengths: Tensor) -> Tensor:
    """Entropies of causal attention over the logarithm of visible events, averaged over heads.

    Parameters
    ----------
    query, key : Tensor (B, H, L, d)
        Padded on the right.
    lengths : Tensor (B,)
        Number of events of each row.

    Returns
    -------
    Tensor (N,)
        Of all positions with at least two visible events, row by row.

    Examples
    --------
    >>> normalised_entropy(torch.zeros(1, 2, 3, 4), torch.randn(1, 2, 3, 4), torch.tensor([3]))
    tensor([1., 1.])
    """
    B, H, L, d = query.shape
    query = query / math.sqrt(d)
    order = torch.arange(L, device=query.device)
    later = order > order[:, None]
    lowest = torch.finfo(query.dtype).min  # not -inf, which times a weight of 0 is not a number
    total = query.new_zeros(B, L)  # over heads
    for head, rows, queries in chunks(B, H, L):  # so few weights at a time that they stay in the cache
        past = slice(queries.stop)
        logits = query[rows, head, queries] @ key[rows, head, past].mT
        logits.masked_fill_(later[queries, past], lowest)
        logits -= logits.amax(-1, keepdim=True)
        weights = logits.exp()
        mass = weights.sum(-1)
        # -Σ w log w, where log w is the logit less the logarithm of the mass.
        total[rows, queries] += mass.log() - torch.linalg.vecdot(weights, logits.clamp_(min=lowest)) / mass
    counted = (order >= 1) & (order < lengths[:, None])  # (B, L)
    normalised: Tensor = total / (H * torch.log1p(order))
    return normalised[counted]


def over_test_histories(recommender: Recommender) -> Iterator[Batch]:
    """The test histories, shortest first."""
    split, device = recommender.split(), recommender.network.items.weight.device
    rows = contexts(split.histories, split.test, recommender.settings.length)
    batches = Batches(split.histories, rows, POSITIONS, count="positions")
    return (batches[index].to(device) for index in range(len(batches)))
