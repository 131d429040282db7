"""The last state is the user vector, as in SASRec, GRU4Rec and Mamba4Rec."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Arrays, FastReadout, FastRecall, FastRemember
from marsrec.nn.encoders.base import Memory, picked
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import Readout, ReadoutOutput, ReadoutSettings, same_width


class LastSettings(ReadoutSettings):
    """The state at the latest event; "backbone only" in the paper's ablation."""

    plain = True

    name: Literal["last"] = "last"
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the user vector."""

    def build(self, dim: int, width: int, tau0: float) -> "Last":
        """Make the readout."""
        same_width(self.name, dim, width)
        return Last(self.dropout)


class Last(Readout):
    """Take the state at the latest event."""

    state_alone = True

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """See `Readout.forward`."""
        return self.users(picked(states, batch.targets > 0) if at_targets else batch.at_last(states))

    def users(self, states: Tensor) -> ReadoutOutput:
        """See `Readout.users`."""
        return ReadoutOutput(self.dropout(states))

    @property
    def streams(self) -> bool:
        """Yes: the last state is all there is to remember."""
        return True

    def start(self, zeros: Tensor) -> Memory:
        """See `Readout.start`."""
        return (zeros,)

    def remember(self, memory: Memory, states: Tensor, embedded: Tensor, times: Tensor) -> Memory:
        """See `Readout.remember`."""
        return (states[:, -1],)

    def recall(self, memory: Memory, now: Tensor) -> Tensor:
        """See `Readout.recall`."""
        return memory[0]

    def fast(self, arrays: Arrays) -> FastReadout:
        """See `Readout.fast`."""
        return lambda states, embedded, times, now: arrays.rows(states, -1)

    def fast_live(self, arrays: Arrays) -> tuple[FastRemember, FastRecall]:
        """See `Readout.fast_live`."""
        return lambda memory, states, embedded, times: (states[-1],), lambda memory, now: memory[0][None]
