"""NARM's readout: attention of the latest state to all states, beside the latest state itself (Li et al., 2017).

Shape letters: B rows, L positions, N targets, d width of the model, W width of the states.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastReadout
from marsrec.nn.encoders.base import picked
from marsrec.nn.kernels.additive_attention import additive_attention
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import Readout, ReadoutOutput, ReadoutSettings, first_target


class NarmSettings(ReadoutSettings):
    """What the session is about, by attention from the latest state, and the latest state."""

    maps_states = True

    name: Literal["narm"] = "narm"
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout on the two parts of the user vector, before the linear layer."""

    def build(self, dim: int, width: int, tau0: float) -> "Narm":
        """Make the readout."""
        return Narm(dim, width, self)


class Narm(Readout):
    """user_t = B [Σ_{j<=t} α_tj h_j ; h_t] with α_tj = v · sigmoid(A1 h_j + A2 h_t), which no softmax normalises."""

    def __init__(self, dim: int, width: int, settings: NarmSettings) -> None:
        super().__init__()
        self.key = nn.Linear(width, width, bias=False)  # A1
        self.query = nn.Linear(width, width, bias=False)  # A2
        self.score = nn.Linear(width, 1, bias=False)  # v
        self.dropout = Dropout(settings.dropout)
        self.out = nn.Linear(2 * width, dim, bias=False)  # B
        for weight in self.parameters():
            nn.init.xavier_normal_(weight)

    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """See `Readout.forward`."""
        summary, latest = self._at_targets(states, batch) if at_targets else self._at_last(states, batch)
        return ReadoutOutput(self.out(self.dropout(torch.cat([summary, latest], dim=-1))))

    def _at_last(self, states: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B, L, W) -> (B, W) each."""
        latest = batch.at_last(states)
        scores = self.score(torch.sigmoid(self.key(states) + self.query(latest)[:, None])).mT  # (B, 1, L)
        scores = scores.masked_fill(~batch.inside[:, None], 0)
        return (scores @ states)[:, 0], latest

    def _at_targets(self, states: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """(B, L, W) -> (N, W) each. Padding stands after all targets of a row, where no attention goes."""
        first = first_target(batch)
        trained = batch.targets > 0
        query = self.query(states[:, first:])
        scores = additive_attention(self.key(states), query, self.score.weight[0])  # (B, L - first, L)
        return picked(scores @ states, trained[:, first:]), picked(states, trained)

    def fast(self, arrays: Arrays) -> FastReadout:
        """See `Readout.fast`."""
        key, query, score, out = (arrays.of(layer) for layer in (self.key, self.query, self.score, self.out))

        def users(states: Array, embedded: Array, times: Array, now: Array) -> Array:
            latest = arrays.rows(states, -1)
            scores = score(arrays.sigmoid(key(states) + query(latest)))  # (L, 1)
            return out(arrays.concat([arrays.transposed(scores) @ states, latest], 1))

        return users
