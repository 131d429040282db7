"""CORE's readout: the user vector is a weighted average of embedded items (Hou et al., 2022).

Shape letters: B rows, L positions, Q positions that are read out, d width of the items.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastReadout
from marsrec.nn.encoders.base import picked
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import Readout, ReadoutOutput, ReadoutSettings, first_target


class CoreSettings(ReadoutSettings):
    """States only decide how much each item counts, so that users and items live in one space."""

    name: Literal["core"] = "core"
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the user vector."""

    def build(self, dim: int, width: int, tau0: float) -> "Core":
        """Make the readout, which takes states of any width."""
        return Core(width, self.dropout)


class Core(Readout):
    """A softmax over one logit per state weighs the items; the norm of the average is the cosine scorer's business."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.logit = nn.Linear(width, 1)  # starts uniform within ±1/sqrt(width), as CORE's authors do

    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """See `Readout.forward`."""
        logits: Tensor = self.logit(states).mT  # (B, 1, L)
        if not at_targets:
            weights = logits.masked_fill(~batch.inside[:, None], -torch.inf).softmax(-1)
            return ReadoutOutput(self.dropout((weights @ embedded)[:, 0]))
        trained = batch.targets > 0  # (B, L)
        L = trained.shape[1]
        first = first_target(batch)
        later = torch.ones(L - first, L, dtype=torch.bool, device=logits.device).triu(first + 1)
        weights = logits.masked_fill(later, -torch.inf).softmax(-1)  # (B, Q, L)
        users = weights @ embedded  # (B, Q, d)
        return ReadoutOutput(self.dropout(picked(users, trained[:, first:])))

    def fast(self, arrays: Arrays) -> FastReadout:
        """See `Readout.fast`."""
        logit = arrays.of(self.logit)

        def average(states: Array, embedded: Array, times: Array, now: Array) -> Array:
            return arrays.softmax(arrays.transposed(logit(states))) @ embedded

        return average
