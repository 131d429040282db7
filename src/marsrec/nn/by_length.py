"""Encoding rows of similar length together, so that little of what is encoded is padding.

Shape letters: B rows, N events of all rows, L positions, d width; b, n, l of some rows.
"""

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from operator import neg

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

AT_ONCE = 16_384
"""Positions that are encoded at once."""
SIMILAR = 0.5
"""How long the shortest of rows that are encoded together is, at least, as a share of the longest."""
HELD = 131_072
"""Positions of one pass from which on the backward pass computes again what it needs, instead of holding it."""

Encode = Callable[[Tensor, Tensor], Tensor]
"""Takes embedded items (b, l, d) of some rows, padded to the longest of them, and which rows they are."""


def by_length(encode: Encode, events: Tensor, lengths: Tensor, at_least: int = 0) -> Tensor:
    """States (B, L, d) of all rows in their own order, padded to the longest, or a vector (B, d) for each.

    Parameters
    ----------
    encode : callable
        Gives states (b, l, d) of some rows, or a vector (b, d) for each.
    events : Tensor (N, d)
        Embedded items, row by row.
    lengths : Tensor (B,)
        How many of them each row has.
    at_least : int
        Length to which `encode` pads rows by itself.
    """
    parts, order = parts_by_length(encode, events, lengths, at_least)
    longest = parts[0].shape[1]
    padded = (part if part.ndim == 2 else F.pad(part, (0, 0, 0, longest - part.shape[1])) for part in parts)
    return torch.cat(list(padded)).index_select(0, order.argsort())


def parts_by_length(encode: Encode, events: Tensor, lengths: Tensor, at_least: int = 0) -> tuple[list[Tensor], Tensor]:
    """What `encode` gives of some rows at a time, longest first, and the order of the rows in it.

    A step on 2,048 rows of 200 events would hold many gigabytes: there the backward pass encodes them once more.
    """
    order = lengths.argsort(descending=True, stable=True)
    longest: list[int] = lengths[order].tolist()
    costs = [max(length, at_least) for length in longest]
    stops = [0]
    while stops[-1] < len(costs):
        start, cost = stops[-1], costs[stops[-1]]
        similar = bisect_right(costs, -SIMILAR * cost, lo=start + 1, key=neg)  # the first that is much shorter
        stops.append(min(similar, start + max(1, AT_ONCE // cost)))
    spans = list(pairwise(stops))
    again = torch.is_grad_enabled() and sum(costs) >= HELD

    # Events are split and then padded, so that no gradient is as large as all rows padded to the longest.
    events = events.index_select(0, order.argsort().repeat_interleave(lengths).argsort(stable=True))
    pieces = torch.split(events, [sum(longest[start:stop]) for start, stop in spans])
    parts: list[Tensor] = []
    for (start, stop), piece in zip(spans, pieces, strict=True):
        rows = order[start:stop]
        inside = torch.arange(longest[start], device=lengths.device) < lengths[rows][:, None]
        padded = events.new_zeros(*inside.shape, events.shape[1]).index_put((inside,), piece)
        parts.append(checkpoint(encode, padded, rows, use_reentrant=False) if again else encode(padded, rows))
    return parts, order
