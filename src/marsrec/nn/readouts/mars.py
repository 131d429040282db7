"""The MARS operator as a readout: its clock, its dropout and its two auxiliary losses."""

import copy
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn import streaming
from marsrec.nn.arrays import mars as one_history
from marsrec.nn.arrays.base import Arrays, FastReadout, FastRecall, FastRemember
from marsrec.nn.encoders.base import Memory, init_normal, picked
from marsrec.nn.kernels.decayed_average import TimeScale
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.mars import MARS, Form, Reading, balance_loss, diversity_loss
from marsrec.nn.mixture import nodes
from marsrec.nn.readouts.base import (
    Contributions,
    Readout,
    ReadoutOutput,
    ReadoutSettings,
    TimeScales,
    first_target,
    same_width,
)

Clock = Literal["last-event", "request"]


class MarsSettings(ReadoutSettings):
    """States weighed by real elapsed time at K learned rates, fused through a gate."""

    name: Literal["mars"] = "mars"
    heads: int = Field(4, ge=1, le=1_024)
    """Number K of decay rates."""
    time_scale: TimeScale = "log"
    """"log" is the paper's model (a power law of age), "linear" an exponential of age."""
    clock: Clock = "last-event"
    """Moment from which ages are measured: the latest event (the paper) or the moment of the request (in training and
    evaluation the time of the target, which other models do not see)."""
    real_time: bool = True
    """False is ablation b1: ages are counted in events."""
    modulation: bool = True
    """False is ablation b2: all users share the rates."""
    values: bool = False
    """True sums up mapped states W_v h_i instead of the states; not in the paper."""
    diversity: float = Field(0.01, ge=0)
    """η_div, the weight of the diversity loss; 0 is ablation b3."""
    balance: float = Field(0.01, ge=0)
    """η_bal, the weight of the balance loss; 0 is ablation b4."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the user vector, which the paper does not have: nor have public data sets, nor recipes on dense data,
    which are underfitted rather than overfitted."""
    form: Form = "auto"
    """How the weighted sums are computed: "dense" from all pairs of events, "streaming" in time linear in the length by
    a mixture of fixed exponentials (log scale only), "auto" streaming where training windows are long, and in live
    sessions. With "dense" sessions keep the latest events and compute from them."""

    def build(self, dim: int, width: int, tau0: float) -> "Mars":
        """Make the readout."""
        same_width(self.name, dim, width)
        if self.form == "streaming" and self.time_scale != "log":
            raise SettingsError('readout.form "streaming" needs readout.time_scale "log"; use form "dense" or "auto".')
        if self.clock == "request" and not self.real_time:
            raise SettingsError("readout.clock=request needs the time, which readout.real_time=false does not see.")
        return Mars(dim, tau0, self)

    def suited_to_data(self, dense: bool) -> Mapping[str, Any]:
        """See `Part.suited_to_data`."""
        return {"heads": 8, "dropout": 0.0} if dense else {}

    def differences(self, usual: Self) -> list[str]:
        """See `Part.differences`: what the paper's model does not have."""
        return [*["request clock"] * (self.clock == "request"), *["values"] * self.values]


class Mars(Readout):
    """MARS on top of an encoder."""

    def __init__(self, dim: int, tau0: float, settings: MarsSettings) -> None:
        super().__init__()
        self.settings = settings
        self.operator = MARS(
            dim,
            settings.heads,
            time_scale=settings.time_scale,
            tau0=tau0,
            real_time=settings.real_time,
            modulation=settings.modulation,
            values=settings.values,
            form=settings.form,
        )
        self.dropout = Dropout(settings.dropout)
        init_normal(self)
        self.operator.reset_neutral()

    def read(self, states: Tensor, embedded: Tensor, batch: Batch, form: Form | None = None) -> Reading:
        """Everything the operator saw and decided at the latest events, on this readout's clock."""
        now = batch.target_times.gather(1, batch.last[:, None])[:, 0] if self.sees_request_time else None
        last_items = batch.at_last(embedded)
        operator = self.operator
        if form is not None:
            operator = copy.copy(operator)
            operator.form = form
        return operator.read(states, batch.times, now=now, lengths=batch.lengths, last_items=last_items, checked=False)

    @property
    def sees_times(self) -> bool:
        """Yes, but for ablation b1."""
        return self.settings.real_time

    @property
    def sees_request_time(self) -> bool:
        """On the request clock."""
        return self.settings.clock == "request"

    def contributions(
        self, states: Tensor, embedded: Tensor, batch: Batch, *, folded: bool = False
    ) -> Contributions | None:
        """See `Readout.contributions`."""
        reading = self.read(states, embedded, batch, "streaming" if folded else None)
        assert reading.weights is not None
        return Contributions(
            user=reading.users[0, 0],
            rest=batch.at_last(states)[0],
            values=self.operator.values(states)[0],
            weights=reading.weights[0],
            gate=reading.gate[0, 0],
            scales=self._scales(reading.rates[0, 0]),
        )

    def time_scales(self) -> TimeScales:
        """See `Readout.time_scales`."""
        return self._scales(self.operator.base_rates().detach())

    def _scales(self, rates: Tensor) -> TimeScales:
        operator = self.operator
        return TimeScales(rates, operator.half_lives(rates), operator.age_unit, operator.time_scale)

    def memory_kind(self) -> bytes:
        """The rates at which the sums of a memory decay, rounded: machines differ in the last digits."""
        return nodes().astype(np.float32).tobytes()

    def forward(self, states: Tensor, embedded: Tensor, batch: Batch, at_targets: bool) -> ReadoutOutput:
        """See `Readout.forward`."""
        trained = batch.targets > 0  # (B, L)
        if not at_targets:
            reading = self.read(states, embedded, batch)
            users, gate = reading.users[:, 0], reading.gate[:, 0]
        else:
            first = first_target(batch)
            now = batch.target_times if self.sees_request_time else batch.times
            reading = self.operator.read(
                states,
                batch.times,
                now=now[:, first:],
                last_items=embedded[:, first:],
                every=True,
                first=first,
                checked=False,  # RecBole's order of ties goes back in time
            )
            users, gate = (picked(part, trained[:, first:]) for part in (reading.users, reading.gate))
        losses = {}
        if self.training and self.settings.diversity and self.settings.heads > 1:
            weights = self._weights_at_one_target(reading.rates, batch, now, first) if at_targets else reading.weights
            assert weights is not None
            losses["diversity"] = self.settings.diversity * diversity_loss(weights, trained.sum(1))
        if self.training and self.settings.balance:
            losses["balance"] = self.settings.balance * balance_loss(gate)
        return ReadoutOutput(self.dropout(users), losses)

    def _weights_at_one_target(self, rates: Tensor, batch: Batch, now: Tensor, first: int) -> Tensor:
        """Weights (B, K, L) at a position of each row that is drawn among its targets.

        The diversity loss over all positions would cost more than the rest of the step. At one position per row,
        counted for all targets of the row, it has the same expectation.
        """
        chosen = torch.multinomial((batch.targets > 0).float(), 1)  # (B, 1)
        at_chosen = rates.gather(1, (chosen - first)[..., None].expand(-1, -1, rates.shape[-1]))
        return self.operator.weights(batch.times, now.gather(1, chosen), chosen, at_chosen)[:, :, 0]

    # Live: the streaming form of the operator, and what the gate wants to know of the latest event.

    @property
    def streams(self) -> bool:
        """Whether the operator has a streaming form."""
        return self.operator.streams()

    def start(self, zeros: Tensor) -> Memory:
        """See `Readout.start`."""
        past = streaming.start(zeros, tau0=self.operator.tau0)
        return past.sums, past.counts, past.time, zeros, zeros

    def remember(self, memory: Memory, states: Tensor, embedded: Tensor, times: Tensor) -> Memory:
        """See `Readout.remember`."""
        past = self._past(memory)
        if not self.settings.real_time:  # ages are counted in events; the node that does not decay counts them
            before = past.counts[:, :1].long()
            times = (before + torch.arange(times.shape[1], device=times.device)) * round(self.operator.tau0)
        past = streaming.extend(past, self.operator.values(states), times)
        return past.sums, past.counts, past.time, states[:, -1], embedded[:, -1]

    def recall(self, memory: Memory, now: Tensor) -> Tensor:
        """See `Readout.recall`."""
        past = self._past(memory)
        last_states, last_items = memory[3:]
        if self.settings.clock == "last-event" or not self.settings.real_time:
            now = past.time
        rates = self.operator.rates(last_states)
        summaries = streaming.average(past, rates, now).to(last_states.dtype)  # (B, K, d)
        latest = self.operator.ages(past.time, now)
        single = (part[:, None] for part in (summaries, latest, last_items, last_states))  # one position each
        users, _ = self.operator.fuse(*single)
        return users[:, 0]

    def fast(self, arrays: Arrays) -> FastReadout | None:
        """See `Readout.fast`; not with form "streaming", whose weights are those of a mixture."""
        if self.operator.form == "streaming":
            return None
        return one_history.window(self.operator, arrays, request_clock=self.sees_request_time)

    def fast_live(self, arrays: Arrays) -> tuple[FastRemember, FastRecall]:
        """See `Readout.fast_live`."""
        recall = one_history.recall(self.operator, arrays, request_clock=self.sees_request_time)
        return one_history.remember(self.operator, arrays), recall

    def _past(self, memory: Memory) -> streaming.Past:
        sums, counts, time = memory[:3]
        return streaming.Past(sums, counts, time, self.operator.tau0)
