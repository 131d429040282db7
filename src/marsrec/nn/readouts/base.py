"""What all readouts share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.encoders.base import Memory


@dataclass(frozen=True)
class ReadoutOutput:
    """User vectors, and what the readout adds to the loss, by name and already weighted."""

    users: Tensor
    """(B, d) at the latest events, or (N, d) at the positions that have targets, row by row."""
    losses: dict[str, Tensor] = field(default_factory=dict)


class Readout(nn.Module, ABC):
    """States become the user vector.

    A readout that streams can do so from a memory of fixed size.
    """

    state_alone: ClassVar[bool] = False
    """Whether the user vector is the state at the latest event, or at a target, so that no other need be computed."""

    @property
    def streams(self) -> bool:
        """Whether `start`, `remember` and `recall` work."""
        return False

    @abstractmethod
    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """(B, L, d) states and embedded items -> user vectors at the latest events or at the targets."""

    def start(self, zeros: Tensor) -> Memory:
        """The memory of histories without events, from (B, d) zeros of the states' kind."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")

    def remember(self, memory: Memory, states: Tensor, embedded: Tensor, times: Tensor) -> Memory:
        """Take in events: (B, L, d) states and embedded items, and their (B, L) times."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")

    def recall(self, memory: Memory, now: Tensor) -> Tensor:
        """User vectors (B, d) for requests at the moments `now` (B,)."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")


def same_width(readout: str, dim: int, width: int) -> None:
    """Refuse states of another width than the item embedding, for readouts whose user vectors are made of states."""
    if width != dim:
        raise SettingsError(
            f"readout {readout!r} takes states as wide as the model's dim, {dim}; the encoder's are {width} wide. "
            "For gru give encoder.project=true."
        )


def first_target(batch: Batch) -> int:
    """The first position at which some row has a target.

    Rows of long histories have targets only in their latter part, and are read out only there.
    """
    return int((batch.targets > 0).any(dim=0).int().argmax())
