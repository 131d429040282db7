"""What all encoders share."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from marsrec.data.batches import Batch

NORM_EPS = 1e-12
"""What the published models add to variances in their layer norms."""

Memory = tuple[Tensor, ...]
"""What a recurrent encoder remembers of the events so far: tensors (B, ...) of a fixed size."""


class Encoder(nn.Module, ABC):
    """Embedded events become states.

    A causal encoder computes the state at a position from the events up to it, and so gives the states of all prefixes
    of a history in one pass. A recurrent one, moreover, can go on from a memory of fixed size.
    """

    causal: ClassVar[bool]
    recurrent: ClassVar[bool] = False

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        """Width of the states, which is the model's dim for nearly all."""
        self.padded_to = 0
        """Length to which the encoder pads rows by itself, as only published code does."""

    @abstractmethod
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) embedded items -> (B, L, width) states."""

    def at(self, embedded: Tensor, batch: Batch, asked: Tensor) -> Tensor:
        """(B, L, d) embedded items -> (N, width) states at the (B, L) positions that are asked for, row by row.

        Where an encoder can, it computes there alone what nothing else needs.
        """
        return picked(self(embedded, batch), asked)

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) embedded items -> (B, width) states at the latest events."""
        return self.at(embedded, batch, batch.is_last)

    def start(self, rows: int) -> Memory:
        """The memory of histories without events; only of recurrent encoders."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")

    @torch.no_grad()
    def resume(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        """Go on after remembered events: (B, L, d) embedded items -> (B, L, width) states, and the memory after them.

        The states are those that `forward` gives there for the whole history. The encoder has to be in evaluation mode:
        they come without dropout and without gradients.
        """
        if self.training:
            raise RuntimeError(
                f"{type(self).__name__} goes on from a memory in evaluation mode only: call eval() first"
            )
        return self._resume(memory, embedded)

    def _resume(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        """What `resume` does; only of recurrent encoders."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")


def picked(x: Tensor, asked: Tensor) -> Tensor:
    """(B, L, ...) -> (N, ...) where (B, L) `asked` holds, row by row.

    It equals `x[asked]`, with a backward pass that is five times faster, since no place is picked twice.
    """
    return x.flatten(0, 1).index_select(0, asked.flatten().nonzero()[:, 0])


def init_normal(module: nn.Module) -> None:
    """BERT's initialisation, which SASRec and its relatives use: N(0, 0.02), biases 0, layer norms 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
