"""Item embedding, encoder, readout and scorer, put together."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from operator import neg
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from marsrec.data.batches import Batch
from marsrec.nn.encoders.base import Encoder, Memory
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import Readout, ReadoutOutput

ModelMemory = tuple[Memory, Memory]
"""What a recurrent model remembers of histories: the encoder's part and the readout's."""


class Scorer(Protocol):
    """See `marsrec.nn.scorers`."""

    def __call__(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Vectors of users and items whose dot product, plus an optional bias per item, is the score."""


AT_ONCE = 16_384
"""Positions that are encoded at once where a row is trained on one target, which makes for many of them."""
SIMILAR = 0.5
"""How long the shortest of rows that are encoded together is, at least, as a share of the longest."""
HELD = 65_536
"""Positions of one pass from which on the backward pass computes again what it needs, instead of holding it."""


def by_length(
    encode: Callable[[Tensor, Tensor], Tensor], embedded: Tensor, lengths: Tensor, at_least: int = 0
) -> Tensor:
    """`encode(embedded, all rows)`, some rows of similar length at a time, so that little of it is padding.

    A step on 2,048 rows of 200 events would hold many gigabytes: there the backward pass encodes them once more.

    Parameters
    ----------
    encode : callable
        Takes some rows of `embedded`, cut to the longest of them, and which they are; gives their states (b, l, d), or
        a vector (b, d) for each.
    embedded : Tensor (B, L, d)
        Embedded items.
    lengths : Tensor (B,)
        How much of each row counts.
    at_least : int
        Length to which `encode` pads rows by itself.
    """
    order = lengths.argsort(descending=True, stable=True)
    longest: list[int] = lengths[order].tolist()
    costs = [max(length, at_least) for length in longest]
    again = torch.is_grad_enabled() and sum(costs) >= HELD
    parts: list[Tensor] = []
    start = 0
    while start < len(longest):
        width, cost = longest[start], costs[start]
        similar = bisect_right(costs, -SIMILAR * cost, lo=start + 1, key=neg)  # the first row that is much shorter
        rows = order[start : min(similar, start + max(1, AT_ONCE // cost))]
        chosen = embedded[rows, :width]
        states = checkpoint(encode, chosen, rows, use_reentrant=False) if again else encode(chosen, rows)
        parts.append(states if states.ndim == 2 else F.pad(states, (0, 0, 0, embedded.shape[1] - width)))
        start += len(rows)
    return torch.cat(parts)[order.argsort()]


class SequenceModel(nn.Module):
    """history -> item embedding -> encoder -> states -> readout -> user vectors -> scorer -> item scores.

    Row 0 of the item embedding is padding: it is never trained, never a target and never ranked.
    """

    scorer: Scorer

    def __init__(
        self,
        n_items: int,
        dim: int,
        encoder: Encoder,
        readout: Readout,
        scorer: nn.Module,
        *,
        item_std: float = 0.02,
        item_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items + 1, dim, padding_idx=0)
        nn.init.normal_(self.items.weight[1:], std=item_std)
        self.item_dropout = Dropout(item_dropout)
        self.encoder = encoder
        self.readout = readout
        self.scorer = scorer

    @property
    def causal(self) -> bool:
        """Whether one pass gives the states of all prefixes."""
        return self.encoder.causal

    def forward(self, batch: Batch, at_targets: bool = False) -> ReadoutOutput:
        """User vectors (B, d) at the latest events, or (N, d) at the targets, which takes a causal encoder."""
        if self.readout.latest_alone and not at_targets:
            return ReadoutOutput(self._encoded(self.encoder.latest, batch)[1])
        embedded, states = self.encode(batch)
        output: ReadoutOutput = self.readout(states, embedded, batch, at_targets)
        return output

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embedded items (B, L, d) and states (B, L, width)."""
        return self._encoded(self.encoder, batch)

    def _encoded(self, encode: Callable[[Tensor, Batch], Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        embedded = self.item_dropout(self.items(batch.items))
        length = self.encoder.padded_to
        if self.causal or not (self.training or length):
            return embedded, encode(embedded, batch)
        alone = replace(batch, twins=None)
        return embedded, by_length(lambda part, rows: encode(part, alone[rows]), embedded, batch.lengths, length)

    # Live: a memory of fixed size instead of the history.

    @property
    def recurrent(self) -> bool:
        """Whether `start`, `resume` and `recall` work: an event costs the same however many came before."""
        return self.encoder.recurrent and self.readout.streams

    def start(self, rows: int) -> ModelMemory:
        """The memory of histories without events."""
        table = self.items.weight
        return self.encoder.start(rows), self.readout.start(table.new_zeros(rows, table.shape[1]))

    @torch.no_grad()
    def resume(self, memory: ModelMemory, items: Tensor, times: Tensor) -> ModelMemory:
        """Take in (B, L) events after those remembered."""
        embedded = self.items(items)
        states, encoded = self.encoder.resume(memory[0], embedded)
        return encoded, self.readout.remember(memory[1], states, embedded, times)

    @torch.no_grad()
    def recall(self, memory: ModelMemory, now: Tensor) -> Tensor:
        """User vectors (B, d) for requests at the moments `now` (B,), not before the latest events."""
        return self.readout.recall(memory[1], now)

    def score(self, users: Tensor) -> Tensor:
        """(N, d) user vectors -> (N, items + 1) scores; column 0 is padding and means nothing."""
        users, items, bias = self.scorer(users, self.items.weight)
        scores = users @ items.T
        return scores if bias is None else scores + bias

    def parameter_count(self) -> int:
        """Number of trainable parameters, the item embedding with its padding row included."""
        return sum(parameter.numel() for parameter in self.parameters())
