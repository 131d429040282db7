"""What all encoders share."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Arrays, FastEncoder, FastMemory
from marsrec.nn.parts import Part

if TYPE_CHECKING:
    from marsrec.nn.readouts.base import ReadoutSettings

NORM_EPS = 1e-12
"""What the published models add to variances in their layer norms."""

Memory = tuple[Tensor, ...]
"""What a recurrent encoder remembers of the events so far: tensors (B, ...) of a fixed size."""


class EncoderSettings(Part, ABC):
    """Settings of an encoder; a subclass with a name is an encoder that can be chosen."""

    kind = "encoder"
    trained_by: ClassVar[str | None] = None
    """Name of the only objective that trains it; None where any does that reads states."""

    @abstractmethod
    def build(self, dim: int, length: int) -> "Encoder":
        """Make the encoder for items `dim` wide and histories of at most `length` events."""

    def suited_to_readout(self, readout: "ReadoutSettings") -> Mapping[str, Any]:
        """Values that suit a readout better than the defaults; one that is given wins."""
        return {}

    def differences(self, usual: Self) -> list[str]:
        """See `Part.differences`: the number of layers."""
        layers = getattr(self, "layers", None)
        if layers == getattr(usual, "layers", None):
            return []
        return [f"{layers} layer{'' if layers == 1 else 's'}"]


class Encoder(nn.Module, ABC):
    """Embedded events become states.

    A causal encoder computes the state at a position from the events up to it, and so gives the states of all prefixes
    of a history in one pass. A recurrent one, moreover, can go on from a memory of fixed size.
    """

    causal: ClassVar[bool]
    recurrent: ClassVar[bool] = False
    sees_times: ClassVar[bool] = False
    """Whether states depend on the times of the events; else on their order alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        """Width of the states, which is the model's dim for nearly all."""
        self.padded_to = 0
        """Length to which the encoder pads rows by itself, as only published code does."""

    @abstractmethod
    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) embedded items -> (B, L, width) states."""

    def at(self, embedded: Tensor, batch: Batch, where: Tensor) -> Tensor:
        """(B, L, d) embedded items -> (N, width) states at the positions where (B, L) `where` holds, row by row.

        Where an encoder can, it computes there alone what nothing else needs.
        """
        return picked(self(embedded, batch), where)

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) embedded items -> (B, width) states at the latest events."""
        return self.at(embedded, batch, batch.is_last)

    def fast(self, arrays: Arrays) -> FastEncoder | None:
        """The same for one history, in the operations of `marsrec.nn.arrays`; None where torch has to do it."""
        return None

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
        return self.go_on(memory, embedded)

    def fast_live(self, arrays: Arrays) -> FastMemory | None:
        """What `go_on` does for one history, without the axis of rows; None where torch has to do it."""
        return None

    def go_on(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        """What `resume` does, in evaluation mode; only of recurrent encoders."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")


class SlotEncoder(Encoder):
    """An encoder of histories in which slots are masked, and of what is behind the masks."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__(width)
        self.length = length
        """The largest number of events."""

    @abstractmethod
    def masked(self, embedded: Tensor, masked: Tensor) -> Tensor:
        """(..., d) embedded items with the mask in place of those at which (...) `masked` holds."""

    @abstractmethod
    def slots(self, embedded: Tensor, lengths: Tensor, where: Tensor | None = None) -> Tensor:
        """(B, S, d) embedded items and masks, of which each row's first (B,) `lengths` count -> (B, S, d) states.

        With (B, S) `where`, the states (N, d) where it holds, row by row.
        """


def picked(x: Tensor, where: Tensor) -> Tensor:
    """(B, L, ...) -> (N, ...) where (B, L) `where` holds, row by row.

    It equals `x[where]`, with a backward pass that is five times faster, since no place is picked twice.
    """
    return x.flatten(0, 1).index_select(0, where.flatten().nonzero()[:, 0])


def init_normal(module: nn.Module) -> None:
    """BERT's initialisation, which SASRec and its relatives use: N(0, 0.02), biases 0, layer norms 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.normal_(part.weight, std=0.02)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
