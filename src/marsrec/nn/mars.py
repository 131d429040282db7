r"""MARS, multi-rate aggregation of recency signals: Section 3 of the paper in one file.

The operator takes the states of any sequence encoder and the times of the events, and returns the user vector::

    e_i   = log(1 + (now - t_i) / τ0)                          elapsed time, compressed        (Eq. logtime)
    λ_k(u) = λ_k · exp(σ · tanh(MLP(h_last))_k)                 rates, modulated per user       (Eq. userlambda)
    w_k,i = softmax over events of  -λ_k(u) · e_i / τ_k         what head k looks at            (Eq. mtda)
    Z_k   = Σ_i w_k,i h_i                                       K summaries
    g_k   = vᵀ tanh(W_g [Z_k; tEnc(e_last); item_last; h_last]) gate                            (Eq. gate)
    h_u   = h_last + Σ_k softmax(g)_k Z_k                       user vector

Exponential in *log* time is a power law in real time: a head weighs an event of age x hours by (1 + x)^(-ρ) with the
exponent ρ = λ_k(u) / τ_k. With `time_scale="linear"` it is exp(-ρ x), which is what the paper's propositions speak of.

Shape letters: B users, L positions, Q positions that are read out, K heads, d dimensions.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marsrec.nn.kernels.decayed_average import TimeScale, decayed_average
from marsrec.nn.mixture import GENTLE, STEEPEST
from marsrec.nn.order import check_order
from marsrec.nn.streaming import mixture_weights, streaming_average

Form = Literal["dense", "streaming", "auto"]

TIME_FEATURES = 16  # width of tEnc
HIDDEN = 64  # width of the gate and of the modulation
STREAM_FROM = 400  # length from which form="auto" streams on a CPU, where both cost about the same
STREAM_STEEP_FROM = 1600  # the same for exponents that are not gentle
SIGMA = 0.5  # bound of the modulation: rates change by a factor between exp(-σ) and exp(σ)


@dataclass(frozen=True)
class Reading:
    """What the operator saw and decided. Q is 1 unless every position is read out."""

    users: Tensor
    """(B, Q, d) user vectors."""
    rates: Tensor
    """(B, Q, K) exponents ρ = λ_k(u) / τ_k."""
    gate: Tensor
    """(B, Q, K) weights of the heads, summing to 1."""
    weights: Tensor | None
    """(B, K, L) weights of the events in each head, summing to 1; None where every position is read out."""


class MARS(nn.Module):
    """Weigh an encoder's states by real elapsed time at K learned rates, and fuse the K summaries through a gate.

    Parameters
    ----------
    dim : int
        Width of the states.
    heads : int
        Number K of decay rates.
    time_scale : {"log", "linear"}
        "log" is the paper's model, a power law of age; "linear" is an exponential of age.
    tau0 : float
        One hour, in the unit of the times that will be given (3600 for seconds).
    real_time : bool
        False is ablation b1: an event's age is the number of events after it, in units of `tau0`.
    modulation : bool
        False is ablation b2: all users share the rates.
    values : bool
        Not in the paper: the summaries are of W_v h_i, learned from the identity on, instead of h_i.
    form : {"auto", "dense", "streaming"}
        "dense" weighs all pairs of events; "streaming" sums them up by a mixture of fixed exponentials, in time linear
        in L (see `marsrec.nn.streaming`); "auto" streams where every position of a long history is read out on a CPU.

    Examples
    --------
    Put it on top of anybody's states. Times are integers in seconds; `lengths` tells padding on the right apart.

    >>> _ = torch.manual_seed(0)
    >>> operator = MARS(dim=8, heads=3)
    >>> states = torch.randn(2, 5, 8)
    >>> times = torch.tensor([[0, 60, 3600, 7200, 90000], [0, 10, 20, 20, 20]])
    >>> users = operator(states, times, lengths=torch.tensor([5, 3]))
    >>> users.shape
    torch.Size([2, 8])

    The moment of the request can be later than the last event, and `read` also tells what the heads looked at:

    >>> reading = operator.read(states, times, now=times[:, -1] + 86400, lengths=torch.tensor([5, 3]))
    >>> reading.weights.shape, reading.rates.shape, reading.gate.shape
    (torch.Size([2, 3, 5]), torch.Size([2, 1, 3]), torch.Size([2, 1, 3]))
    """

    def __init__(
        self,
        dim: int,
        heads: int = 4,
        *,
        time_scale: TimeScale = "log",
        tau0: float = 3600.0,
        real_time: bool = True,
        modulation: bool = True,
        values: bool = False,
        form: Form = "auto",
    ) -> None:
        super().__init__()
        if time_scale not in get_args(TimeScale) or form not in get_args(Form) or dim < 1 or heads < 1:
            raise ValueError(
                f"MARS wants dim and heads of at least 1, a time_scale of {get_args(TimeScale)} and a form of "
                f"{get_args(Form)}; found {dim}, {heads}, {time_scale!r} and {form!r}"
            )
        if form == "streaming" and time_scale != "log":
            raise ValueError('form="streaming" needs time_scale="log": no fixed set of exponentials serves linear time')
        self.dim, self.form = dim, form
        self.time_scale, self.tau0, self.real_time = time_scale, tau0, real_time
        self.raw_rates = nn.Parameter(torch.linspace(-1.0, 2.0, heads))  # λ̃
        self.raw_temperatures = nn.Parameter(torch.zeros(heads))  # τ̃
        self.modulation: nn.Sequential | None = None
        if modulation:
            self.modulation = nn.Sequential(nn.Linear(dim, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, heads))
        self.value_map = nn.Linear(dim, dim, bias=False) if values else None  # W_v
        self.time_encoder = nn.Sequential(
            nn.Linear(1, TIME_FEATURES), nn.GELU(), nn.Linear(TIME_FEATURES, TIME_FEATURES)
        )
        self.gate_hidden = nn.Linear(dim + TIME_FEATURES + dim + dim, HIDDEN)  # W_g
        self.gate_out = nn.Linear(HIDDEN, 1, bias=False)  # v
        self.reset_neutral()

    def reset_neutral(self) -> None:
        """Let training start from λ_k(u) = λ_k and from values that are the states. Call it after an own init."""
        if self.value_map is not None:
            nn.init.eye_(self.value_map.weight)
        if self.modulation is not None:
            last = self.modulation[-1]
            assert isinstance(last, nn.Linear)
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def base_rates(self) -> Tensor:
        """(K,) exponents λ_k / τ_k before modulation."""
        return F.softplus(self.raw_rates) / (F.softplus(self.raw_temperatures) + 0.1)

    def rates(self, last_states: Tensor) -> Tensor:
        """Exponents ρ_k = λ_k(u) / τ_k of users with these last states: (..., d) -> (..., K)."""
        base = self.base_rates()
        if self.modulation is None:
            return base.expand(*last_states.shape[:-1], -1)
        modulation: Tensor = self.modulation(last_states)
        return base * torch.exp(SIGMA * torch.tanh(modulation))

    def values(self, states: Tensor) -> Tensor:
        """What is summed up of the states: they themselves, unless they are mapped first."""
        return states if self.value_map is None else self.value_map(states)

    def streams(self) -> bool:
        """Whether the streaming form may stand for this operator: on the log scale, with no rate that it would clip."""
        if self.form == "dense":
            return False
        steepest = self.base_rates().max().item() * (math.exp(SIGMA) if self.modulation is not None else 1.0)
        return self.form == "streaming" or (self.time_scale == "log" and steepest <= STEEPEST)

    @property
    def age_unit(self) -> Literal["hours", "events"]:
        """What ages are measured in: hours, or events if it does not see real time."""
        return "hours" if self.real_time else "events"

    def half_lives(self, rates: Tensor) -> Tensor:
        """Age in hours (or events) at which a head of this exponent weighs an event half as much as a new one.

        Examples
        --------
        >>> MARS(dim=8, heads=1).half_lives(torch.tensor([0.5, 1.0]))
        tensor([3., 1.])
        """
        return torch.exp2(1 / rates) - 1 if self.time_scale == "log" else math.log(2) / rates

    def ages(self, times: Tensor, now: Tensor) -> Tensor:
        """Compressed elapsed times. The subtraction is exact; an event after `now` counts as happening now."""
        wide = torch.promote_types(self.raw_rates.dtype, torch.float32)  # float16 ends at 65,504, seconds of 18 hours
        elapsed = (now - times).clamp(min=0).to(wide) / self.tau0
        return torch.log1p(elapsed) if self.time_scale == "log" else elapsed

    def read(
        self,
        states: Tensor,
        times: Tensor,
        *,
        now: Tensor | None = None,
        lengths: Tensor | None = None,
        last_items: Tensor | None = None,
        every: bool = False,
        first: int = 0,
        checked: bool = True,
    ) -> Reading:
        """Read out user vectors and all that led to them.

        Parameters
        ----------
        states : Tensor (B, L, d)
            What the encoder made of the events; padding on the right.
        times : Tensor (B, L)
            Times of the events as integers, never decreasing within a row.
        now : Tensor (B,), or (B, Q) with `every`
            Integers: from when ages are measured. None is the paper's clock, the time of the latest event; the moment
            of the request is the other choice.
        lengths : Tensor (B,), optional
            Number of events of each user, between 1 and L; all L if not given. With `every` it tells `checked` what is
            padding.
        last_items : Tensor (B, d), or (B, Q, d) with `every`
            Embedding of the latest item, for the gate. Zeros if not given.
        every : bool
            Read out at every position, as if the history ended there. Needs states from a causal encoder.
        first : int
            With `every`: begin at this position, so that Q = L - first.
        checked : bool
            Raise if times go back within a row, if a moment of `now` is before the event that it sees, or if lengths do
            not fit. False spares the look at values where a loop makes batches that are in order; then an event after
            `now` counts as happening now.
        """
        if states.ndim != 3 or states.shape[2] != self.dim or times.shape != states.shape[:2]:
            found = f"{tuple(states.shape)} and {tuple(times.shape)}"
            raise ValueError(f"MARS(dim={self.dim}) wants states (B, L, {self.dim}) and times (B, L); found {found}")
        if times.is_floating_point():
            raise ValueError(f"times are integers, in which moments are exact; found {times.dtype}")
        if states.shape[1] == 0 and not every:
            raise ValueError("times have no position: a user without events has no latest one to read out at")
        B, L, d = states.shape
        readouts = (B, L - first) if every else (B,)
        if now is not None and (now.shape != readouts or now.is_floating_point()):
            raise ValueError(
                f"now is integers {readouts}, a moment for each user vector; found {now.dtype} {tuple(now.shape)}"
            )
        if last_items is not None and last_items.shape != (*readouts, d):
            raise ValueError(f"last_items is {(*readouts, d)}, one per user vector; found {tuple(last_items.shape)}")
        if checked:
            check_order(times, now, lengths, every=every, first=first)
        order = torch.arange(L, device=states.device)
        if not self.real_time:
            times = order.expand_as(times) * round(self.tau0)
        if every:
            positions = order[first:].expand(B, -1)
            last_states = states[:, first:]
        else:
            positions = (lengths - 1 if lengths is not None else order[-1:].expand(B))[:, None]
            last_states = states.gather(1, positions[:, :, None].expand(-1, -1, d))
            now = now[:, None] if now is not None else None
            last_items = last_items[:, None] if last_items is not None else None
        if now is None or not self.real_time:
            now = times.gather(1, positions)
        if last_items is None:
            last_items = torch.zeros_like(last_states)
        rates = self.rates(last_states)  # (B, Q, K)
        values, weights = self.values(states), None
        if every:
            summaries = self.summaries(values, times, now, rates)
        else:
            weights = self._weights_at_last(times, now, positions, rates)  # (B, K, L)
            summaries = (weights @ values)[:, None]
        latest = self.ages(times.gather(1, positions), now)  # (B, Q)
        users, gate = self.fuse(summaries, latest, last_items, last_states)
        return Reading(users, rates, gate, weights)

    def weights(self, times: Tensor, now: Tensor, positions: Tensor, rates: Tensor) -> Tensor:
        """Weights of events at (B, L) `times` from (B, Q) `positions` at the moments `now`: (B, K, Q, L)."""
        order = torch.arange(times.shape[1], device=times.device)
        if not self.real_time:
            times, now = order[None] * round(self.tau0), positions * round(self.tau0)
        # An event may be looked at from its own position on; with padding on the right this hides padding as well.
        hidden = order > positions[:, :, None]  # (B, Q, L)
        ages = self.ages(times[:, None, :], now[:, :, None])  # (B, Q, L)
        bias = torch.zeros_like(ages).masked_fill_(hidden, -math.inf)
        exponents = rates.to(ages.dtype).transpose(1, 2)[..., None]
        return torch.addcmul(bias[:, None], exponents, ages[:, None], value=-1.0).softmax(dim=-1).to(rates.dtype)

    def _weights_at_last(self, times: Tensor, now: Tensor, positions: Tensor, rates: Tensor) -> Tensor:
        """Weights (B, K, L) at (B, 1) `positions`, in this operator's form."""
        if self.form != "streaming":
            return self.weights(times, now, positions, rates)[:, :, 0]
        weights = mixture_weights(times, now[:, 0], positions[:, 0] + 1, rates[:, 0], tau0=self.tau0)
        return weights.to(self.raw_rates.dtype)

    def summaries(self, values: Tensor, times: Tensor, now: Tensor, rates: Tensor) -> Tensor:
        """Summaries Z of all heads at the last Q positions, without their weights in memory: (B, Q, K, d)."""
        first = values.shape[1] - rates.shape[1]
        streams = self.form == "streaming"
        if self.form == "auto" and self.time_scale == "log" and values.is_cpu and values.shape[1] >= STREAM_FROM:
            long = values.shape[1] >= STREAM_STEEP_FROM
            streams = bool((rates <= (STEEPEST if long else GENTLE)).all())  # beyond STEEPEST the forms differ
        if streams:
            summaries = streaming_average(values, times, now, rates, first=first, tau0=self.tau0)
        else:
            scale = self.time_scale
            summaries = decayed_average(values, times, now, rates, first=first, tau0=self.tau0, time_scale=scale)
        return summaries.to(self.raw_rates.dtype)

    def fuse(self, summaries: Tensor, latest: Tensor, last_items: Tensor, last_states: Tensor) -> tuple[Tensor, Tensor]:
        """User vectors (B, Q, d) and weights of the heads (B, Q, K), from summaries (B, Q, K, d) and ages (B, Q)."""
        d, dtype = summaries.shape[-1], self.raw_rates.dtype
        latest = latest.clamp(max=torch.finfo(dtype).max).to(dtype)
        context = torch.cat([self.time_encoder(latest[..., None]), last_items, last_states], dim=-1)
        # W_g [Z_k; c] = W_Z Z_k + W_c c: the context's share is the same for all heads and computed once.
        weight, bias = self.gate_hidden.weight, self.gate_hidden.bias
        shared = F.linear(context, weight[:, d:], bias)[..., None, :]
        hidden = torch.tanh(F.linear(summaries, weight[:, :d]) + shared)  # (B, Q, K, h)
        gate = self.gate_out(hidden)[..., 0].softmax(dim=-1)  # (B, Q, K)
        return last_states + (gate[..., None] * summaries).sum(dim=-2), gate

    def forward(
        self,
        states: Tensor,
        times: Tensor,
        *,
        now: Tensor | None = None,
        lengths: Tensor | None = None,
        last_items: Tensor | None = None,
        every: bool = False,
        first: int = 0,
        checked: bool = True,
    ) -> Tensor:
        """User vectors: (B, d), or (B, Q, d) with `every`. The arguments are those of `read`."""
        reading = self.read(
            states, times, now=now, lengths=lengths, last_items=last_items, every=every, first=first, checked=checked
        )
        return reading.users if every else reading.users[:, 0]


def diversity_loss(weights: Tensor, rows: Tensor | None = None) -> Tensor:
    """Negative sum of the Jensen-Shannon divergences over ordered pairs of heads, in nats (Eq. loss, L_div).

    Parameters
    ----------
    weights : Tensor (B, K, L)
        Weights of the events in each head.
    rows : Tensor (B,), optional
        How much each user counts; all the same if not given.
    """
    # The slope of -w log w is infinite at 0, which is where hidden events are.
    weights = weights.clamp(min=torch.finfo(weights.dtype).tiny)
    entropy = torch.special.entr(weights).sum(-1)  # (B, K)
    first, second = torch.triu_indices(weights.shape[1], weights.shape[1], offset=1, device=weights.device)
    middle = torch.special.entr((weights[:, first] + weights[:, second]) / 2).sum(-1)  # (B, pairs)
    divergence: Tensor = 2 * (middle - (entropy[:, first] + entropy[:, second]) / 2).sum(-1)  # each pair in both orders
    return -divergence.mean() if rows is None else -(divergence * rows).sum() / rows.sum()


def balance_loss(gate: Tensor) -> Tensor:
    """K · Σ_k (mean gate weight of head k)², at least 1 and 1 when all heads are used alike: (N, K) -> scalar."""
    return gate.shape[-1] * gate.mean(dim=0).square().sum()
