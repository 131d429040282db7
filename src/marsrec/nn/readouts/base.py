"""What all readouts share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.data.moments import AgeUnit
from marsrec.errors import SettingsError
from marsrec.nn.arrays.base import Arrays, FastReadout, FastRecall, FastRemember
from marsrec.nn.encoders.base import Memory
from marsrec.nn.parts import Part


@dataclass(frozen=True)
class ReadoutOutput:
    """User vectors, and what the readout adds to the loss, by name and already weighted."""

    users: Tensor
    """(B, d) at the latest events, or (N, d) at the positions that have targets, row by row."""
    losses: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class TimeScales:
    """How fast K heads let the past fade."""

    rates: Tensor
    """(K,) exponents ρ: an event of age x weighs (1 + x)^(-ρ) on the log scale, exp(-ρ x) on the linear one."""
    half_lives: Tensor
    """(K,) ages at which an event weighs half as much as a new one."""
    age_unit: AgeUnit
    """What ages are counted in."""
    scale: Literal["log", "linear"]


@dataclass(frozen=True)
class Contributions:
    """The user vector of one history as a sum: rest + Σ_k Σ_i gate_k weights_k,i values_i. L events, K heads."""

    user: Tensor
    """(d,) the sum."""
    rest: Tensor
    """(d,) what belongs to no single event; MARS has the last state here."""
    values: Tensor
    """(L, d), or (K, L, d) where each head has its own."""
    weights: Tensor
    """(K, L)."""
    gate: Tensor
    """(K,)."""
    scales: TimeScales | None = None
    """Of the heads, for this user; None where heads are not time scales."""

    def total(self) -> Tensor:
        """(d,) the sum, added up."""
        return self.rest + self.gate @ (self.weights[..., None] * self.values).sum(-2)


class ReadoutSettings(Part, ABC):
    """Settings of a readout; a subclass with a name is a readout that can be chosen."""

    kind = "readout"
    plain: ClassVar[bool] = False
    """Whether the user vector is the latest state as it is, so that an objective may train states alone."""
    maps_states: ClassVar[bool] = False
    """Whether it maps states of any width to the model's dim, so that no encoder need do so."""

    @abstractmethod
    def build(self, dim: int, width: int, tau0: float) -> "Readout":
        """Make the readout for items `dim` wide, states `width` wide, and times of which `tau0` make an hour."""


class Readout(nn.Module, ABC):
    """States become the user vector.

    A readout that streams can do so from a memory of fixed size. One that overrides `contributions` is explained.
    """

    state_alone: ClassVar[bool] = False
    """Whether the user vector comes of the state at the latest event, or at a target, alone: then `users` makes it, and
    no other state need be computed."""

    @property
    def sees_times(self) -> bool:
        """Whether user vectors depend on the times of the events by more than what states tell of them."""
        return False

    @property
    def sees_request_time(self) -> bool:
        """Whether the moment of the request decides; else the latest event is the present."""
        return False

    @property
    def streams(self) -> bool:
        """Whether `start`, `remember` and `recall` work."""
        return False

    @property
    def splits(self) -> bool:
        """Whether `contributions` gives any."""
        return type(self).contributions is not Readout.contributions

    def begin(self, gaps: Tensor) -> None:  # most readouts take no notice
        """Look at the hours between events that follow each other, as far as they lie apart, before training begins."""

    @abstractmethod
    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """(B, L, d) states and embedded items -> user vectors at the latest events or at the targets."""

    def users(self, states: Tensor) -> ReadoutOutput:
        """(N, d) states -> user vectors, where these are made of one state each."""
        raise NotImplementedError(f"{type(self).__name__} needs all states")

    def fast(self, arrays: Arrays) -> FastReadout | None:
        """User vectors of one history, in the operations of `marsrec.nn.arrays`; None where torch has to do it."""
        return None

    def contributions(
        self, states: Tensor, embedded: Tensor, batch: Batch, *, folded: bool = False
    ) -> Contributions | None:
        """What each event adds to the user vector of a batch of one history; None where that cannot be said.

        With `folded` the events are weighed as the memory of `remember` weighs them.
        """
        return None

    def time_scales(self) -> TimeScales | None:
        """How fast the heads let the past fade, before they are fitted to a user; None for other readouts."""
        return None

    def memory_kind(self) -> bytes:
        """What a memory depends on beside the weights, so that none is read by another version that it does not fit."""
        return b""

    def start(self, zeros: Tensor) -> Memory:
        """The memory of histories without events, from (B, d) zeros of the states' kind."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")

    def remember(self, memory: Memory, states: Tensor, embedded: Tensor, times: Tensor) -> Memory:
        """Take in events: (B, L, d) states and embedded items, and their (B, L) times."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")

    def recall(self, memory: Memory, now: Tensor) -> Tensor:
        """User vectors (B, d) for requests at the moments `now` (B,)."""
        raise NotImplementedError(f"{type(self).__name__} has no memory of fixed size")

    def fast_live(self, arrays: Arrays) -> tuple[FastRemember, FastRecall] | None:
        """`remember` and `recall` for one history, without the axis of rows; None where torch has to do it."""
        return None


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
