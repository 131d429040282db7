"""What all encoders share."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from marsrec.data.batches import Batch


class Encoder(nn.Module, ABC):
    """Embedded events become states.

    A causal encoder computes the state at a position from the events up to it, and so gives the states of all prefixes
    of a history in one pass.
    """

    causal: ClassVar[bool]

    @abstractmethod
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) embedded items -> (B, L, d) states."""


def init_normal(module: nn.Module) -> None:
    """BERT's initialisation, which SASRec and its relatives use: N(0, 0.02), biases 0, layer norms 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
