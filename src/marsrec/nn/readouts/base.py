"""What all readouts share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from torch import Tensor, nn

from marsrec.data.batches import Batch


@dataclass(frozen=True)
class ReadoutOutput:
    """User vectors, and what the readout adds to the loss, by name and already weighted."""

    users: Tensor
    """(B, d) at the latest events, or (N, d) at the positions that have targets, row by row."""
    losses: dict[str, Tensor] = field(default_factory=dict)


class Readout(nn.Module, ABC):
    """States become the user vector."""

    @abstractmethod
    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """(B, L, d) states and embedded items -> user vectors at the latest events or at the targets."""


def at_last(states: Tensor, batch: Batch) -> Tensor:
    """(B, L, d) -> (B, d), what stands at each row's latest event."""
    return states.gather(1, batch.last[:, None, None].expand(-1, 1, states.shape[-1]))[:, 0]
