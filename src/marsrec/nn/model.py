"""Item embedding, encoder, readout and scorer, put together."""

from typing import Protocol

from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.encoders.base import Encoder
from marsrec.nn.readouts.base import Readout, ReadoutOutput


class Scorer(Protocol):
    """See `marsrec.nn.scorers`."""

    def __call__(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Vectors of users and items whose dot product, plus an optional bias per item, is the score."""


class SequenceModel(nn.Module):
    """history -> item embedding -> encoder -> states -> readout -> user vectors -> scorer -> item scores.

    Row 0 of the item embedding is padding: it is never trained, never a target and never ranked.
    """

    scorer: Scorer

    def __init__(self, n_items: int, dim: int, encoder: Encoder, readout: Readout, scorer: nn.Module) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items + 1, dim, padding_idx=0)
        nn.init.normal_(self.items.weight[1:], std=0.02)
        self.encoder = encoder
        self.readout = readout
        self.scorer = scorer

    @property
    def causal(self) -> bool:
        """Whether one pass gives the states of all prefixes."""
        return self.encoder.causal

    def forward(self, batch: Batch, at_targets: bool = False) -> ReadoutOutput:
        """User vectors (B, d) at the latest events, or (N, d) at the targets, which takes a causal encoder."""
        embedded = self.items(batch.items)  # (B, L, d)
        states = self.encoder(embedded, batch)
        output: ReadoutOutput = self.readout(states, embedded, batch, at_targets)
        return output

    def score(self, users: Tensor) -> Tensor:
        """(N, d) user vectors -> (N, items + 1) scores; column 0 is padding and means nothing."""
        users, items, bias = self.scorer(users, self.items.weight)
        scores = users @ items.T
        return scores if bias is None else scores + bias

    def parameter_count(self) -> int:
        """Number of trainable parameters, the item embedding with its padding row included."""
        return sum(parameter.numel() for parameter in self.parameters())
