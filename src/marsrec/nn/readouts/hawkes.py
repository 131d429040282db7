"""The Hawkes operator as a readout; see `marsrec.nn.hawkes`."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.arrays import hawkes as one_history
from marsrec.nn.arrays.base import Arrays, FastReadout, FastRecall, FastRemember
from marsrec.nn.encoders.base import Memory, init_normal, picked
from marsrec.nn.hawkes import Hawkes, Past
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import (
    Contributions,
    Readout,
    ReadoutOutput,
    ReadoutSettings,
    TimeScales,
    first_target,
    same_width,
)
from marsrec.nn.readouts.mars import Clock


class HawkesReadoutSettings(ReadoutSettings):
    """Past events weighed by the chance that they set off the next one, at K learned half-lives; else the encoder's."""

    name: Literal["hawkes"] = "hawkes"
    heads: int = Field(4, ge=1, le=1_024)
    """Number K of half-lives."""
    clock: Clock = "last-event"
    """Moment from which ages are measured: the latest event or the request time (in training and evaluation the
    time of the target, which other models do not see)."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the user vector."""

    def build(self, dim: int, width: int, tau0: float) -> "HawkesReadout":
        """Make the readout."""
        same_width(self.name, dim, width)
        return HawkesReadout(dim, tau0, self)

    def suited_to_data(self, dense: bool) -> Mapping[str, Any]:
        """See `Part.suited_to_data`."""
        return {"heads": 8} if dense else {}

    def differences(self, usual: "HawkesReadoutSettings") -> list[str]:
        """See `Part.differences`."""
        return ["request clock"] * (self.clock == "request")


class HawkesReadout(Readout):
    """The operator on top of an encoder."""

    def __init__(self, dim: int, tau0: float, settings: HawkesReadoutSettings) -> None:
        super().__init__()
        self.settings = settings
        self.operator = Hawkes(dim, settings.heads, tau0=tau0)
        self.dropout = Dropout(settings.dropout)
        init_normal(self)
        for linear in (self.operator.effects, self.operator.taste):
            torch.nn.init.normal_(linear.weight, std=dim**-0.5)  # as long as what they map
        self.operator.reset_neutral()

    def begin(self, gaps: Tensor) -> None:
        """See `Readout.begin`: the half-lives start where the gaps are."""
        if len(gaps):
            shortest, longest = torch.quantile(gaps[:: 1 + len(gaps) // 1_000_000], gaps.new_tensor([0.05, 0.95]))
            self.operator.spread(float(shortest), float(longest))

    @property
    def sees_times(self) -> bool:
        """Yes."""
        return True

    @property
    def sees_request_time(self) -> bool:
        """On the request clock."""
        return self.settings.clock == "request"

    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """See `Readout.forward`."""
        if at_targets:
            first = first_target(batch)
            now = (batch.target_times if self.sees_request_time else batch.times)[:, first:]
            reading = self.operator(states, embedded, batch.times, now=now, first=first, checked=False)
            return ReadoutOutput(self.dropout(picked(reading.users, batch.targets[:, first:] > 0)))
        weights, evidence = self._weigh(batch)
        users = self.operator.fuse(weights @ embedded.to(weights), evidence, batch.at_last(states)).users
        return ReadoutOutput(self.dropout(users))

    def _weigh(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Weights of the events and evidence at each row's latest event, on this readout's clock."""
        clock = batch.target_times if self.sees_request_time else batch.times
        now = clock.gather(1, batch.last[:, None])[:, 0]
        return self.operator.weigh(batch.times, now, batch.lengths, checked=False)

    def contributions(
        self, states: Tensor, embedded: Tensor, batch: Batch, *, folded: bool = False
    ) -> Contributions | None:
        """See `Readout.contributions`; the first head is the background, in which all events count alike."""
        operator = self.operator
        weights, evidence = self._weigh(batch)
        state = batch.at_last(states)
        reading = operator.fuse(weights @ embedded.to(weights), evidence, state)
        effects, taste = operator.effects(embedded[0]), operator.taste(embedded[0])  # (L, d)
        values = torch.stack([taste, *[effects] * self.settings.heads]) + operator.offsets[:, None]  # (1 + K, L, d)
        user, gate = reading.users[0], reading.alive[0]
        return Contributions(user, reading.background[0], values, weights[0].to(values), gate, self.time_scales())

    def time_scales(self) -> TimeScales:
        """See `Readout.time_scales`; the background never fades."""
        lives = self.operator.half_lives().detach()
        endless = lives.new_full((1,), torch.inf)
        return TimeScales(self.operator.rates().detach(), torch.cat([endless, lives]), "hours", "linear")

    # Live.

    @property
    def streams(self) -> bool:
        """Yes."""
        return True

    def start(self, zeros: Tensor) -> Memory:
        """See `Readout.start`."""
        past = self.operator.start(zeros)
        return past.sums, past.counts, past.time, zeros

    def remember(self, memory: Memory, states: Tensor, embedded: Tensor, times: Tensor) -> Memory:
        """See `Readout.remember`."""
        past = self.operator.extend(Past(*memory[:3]), embedded, times)
        return past.sums, past.counts, past.time, states[:, -1]

    def recall(self, memory: Memory, now: Tensor) -> Tensor:
        """See `Readout.recall`."""
        past = Past(*memory[:3])
        moment = now if self.sees_request_time else past.time
        return self.operator.recall(past, memory[3], moment).users

    def fast(self, arrays: Arrays) -> FastReadout:
        """See `Readout.fast`."""
        return one_history.window(self.operator, arrays, request_clock=self.sees_request_time)

    def fast_live(self, arrays: Arrays) -> tuple[FastRemember, FastRecall]:
        """See `Readout.fast_live`."""
        recall = one_history.recall(self.operator, arrays, request_clock=self.sees_request_time)
        return one_history.remember(self.operator), recall
