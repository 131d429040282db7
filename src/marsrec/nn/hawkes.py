"""An operator of our own: what comes next was set off by a past event, minutes or months ago, or by none.

It is modelled on a Hawkes process and differs from MARS in two things. The gate sees how much of the past each head
still finds alive; and what is summed up is what the events were, not what the encoder made of them::

    S_k = Σ_i 2^(-(now - t_i) / half-life_k)             evidence: how much of the past is alive at time scale k
    Z_k = Σ_i 2^(-(now - t_i) / half-life_k) e_i / S_k   average of the item embeddings; Z_0 is that of all alike
    g,δ = MLP(h_last, log(1 + S))                        context: what the evidence means for this user
    α   = softmax over 0 ... K of (0, a_k + g_k + log S_k)
    h_u = α_0 (h_last + δ + U Z_0 + b_0) + Σ_k α_k (W Z_k + b_k)

So α_k reads as the chance that an event sets off the next one at time scale k, and α_0 that none does: then the encoder
and the user's taste speak. (It mixes vectors, not probabilities of items.) Nothing forces the heads apart and nothing
has to, since each half-life follows the likelihood of the data alone. In linear time a head is one exponential, so that
a user's past is K + 1 sums of item embeddings, whatever the encoder.

Shape letters: B users, L positions, Q positions that are read out, K heads, d dimensions.
"""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marsrec.nn.kernels.decayed_average import decayed_average_and_total
from marsrec.nn.kernels.numeric import widened
from marsrec.nn.order import check_order

HIDDEN = 64
"""Width of the gate."""
SPEED = 3.0
"""Half-lives have farther to go than other weights: what is learned is their logarithm, divided by this."""
SHORTEST, LONGEST = 1e-6, 100 * 365.25 * 24
"""Between what half-lives stay, in hours: a few milliseconds and a hundred years."""
APART = 4.0
"""By what factor half-lives differ at least when training starts: heads that start alike would stay alike."""
DEAD = -60.0
"""Logarithm of evidence below which nothing of the past is alive."""


@dataclass(frozen=True)
class Reading:
    """What the operator saw and decided."""

    users: Tensor
    """(..., d) user vectors."""
    background: Tensor
    """(..., d) what belongs to no single event: α_0 (h_last + δ)."""
    alive: Tensor
    """(..., 1 + K) α, what is alive: the share of the background, then of the heads; they sum to 1."""


@dataclass(frozen=True)
class Past:
    """All that the operator needs of the past of B users: decaying sums, as of the latest event."""

    sums: Tensor
    """(B, 1 + K, d) of item embeddings."""
    counts: Tensor
    """(B, 1 + K) of events; the first does not decay and counts them all."""
    time: Tensor
    """(B,) time of the latest event; means nothing before the first."""


class Hawkes(nn.Module):
    """Weigh past events by the chance that they set off the next one, at K learned half-lives; the rest is background.

    Parameters
    ----------
    dim : int
        Width of states and items.
    heads : int
        Number K of half-lives.
    tau0 : float
        One hour, in the unit of the times that will be given (3600 for seconds).

    Examples
    --------
    >>> _ = torch.manual_seed(0)
    >>> operator = Hawkes(dim=8, heads=3)
    >>> states, items = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    >>> times = torch.tensor([[0, 60, 3600, 7200, 90000], [0, 10, 20, 30, 40]])
    >>> operator(states, items, times, now=times[:, -1:] + 60, first=4).users.shape
    torch.Size([2, 1, 8])
    """

    def __init__(self, dim: int, heads: int = 4, *, tau0: float = 3600.0) -> None:
        super().__init__()
        if dim < 1 or heads < 1:
            raise ValueError(f"Hawkes wants dim and heads of at least 1; found {dim} and {heads}")
        self.dim, self.tau0 = dim, tau0
        self.raw_half_lives = nn.Parameter(torch.zeros(heads))
        self.strengths = nn.Parameter(torch.full((heads,), -2.0))  # at first little is set off
        self.context = nn.Sequential(nn.Linear(dim + heads, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, dim + heads))
        self.effects = nn.Linear(dim, dim, bias=False)  # W
        self.taste = nn.Linear(dim, dim, bias=False)  # U
        self.offsets = nn.Parameter(torch.zeros(1 + heads, dim))  # b
        self.spread(0.1, 1000.0)
        self.reset_neutral()

    def reset_neutral(self) -> None:
        """Let training start from a context that adds nothing. Call it after an own init."""
        last = self.context[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def spread(self, shortest: float, longest: float) -> None:
        """Spread the half-lives evenly, by their logarithms, between two of them in hours, or a bit wider."""
        heads = len(self.raw_half_lives)
        low, high = (math.log(min(max(life, 4 * SHORTEST), LONGEST / 4)) for life in (shortest, longest))
        middle, width = (low + high) / 2, max(high - low, (heads - 1) * math.log(APART))
        places = torch.linspace(-0.5, 0.5, heads) if heads > 1 else torch.zeros(1)
        with torch.no_grad():
            self.raw_half_lives.copy_((middle + width * places) / SPEED)

    def half_lives(self) -> Tensor:
        """(K,) hours after which an event sets off half as much, in single precision at least."""
        (logarithms,) = widened(SPEED * self.raw_half_lives)
        bounded = logarithms.clamp(math.log(SHORTEST), math.log(LONGEST))
        return (logarithms + (bounded - logarithms).detach()).exp()  # a head at a bound can be learned away from it

    def rates(self) -> Tensor:
        """(1 + K,) rates of decay per hour: none for the background, then those of the heads."""
        rates = math.log(2) / self.half_lives()
        return torch.cat([rates.new_zeros(1), rates])

    def forward(
        self,
        states: Tensor,
        items: Tensor,
        times: Tensor,
        *,
        now: Tensor,
        lengths: Tensor | None = None,
        first: int = 0,
        checked: bool = True,
    ) -> Reading:
        """Read out at the positions from `first` on, each as if the history ended there.

        Parameters
        ----------
        states, items : Tensor (B, L, d)
            What a causal encoder made of the events, and their embeddings; padding on the right.
        times : Tensor (B, L)
            Times of the events as integers, never decreasing within a row.
        now : Tensor (B, Q)
            Moment from which ages are measured at each position, Q = L - first; not before the event there.
        lengths : Tensor (B,), optional
            Number of events of each user, between 1 and L, which tells `checked` what is padding.
        first : int
            First position that is read out.
        checked : bool
            Raise if times go back within a row, if a moment of `now` is before the event that it sees, or if lengths do
            not fit. False spares the look at values where a loop makes batches that are in order; then a time that goes
            back counts as the latest before it.
        """
        self._check_shapes(times, now, (len(times), times.shape[-1] - first))
        if checked:
            check_order(times, now, lengths, every=True, first=first)
        rates, items = widened(self.rates().expand(*now.shape, -1), items)
        times = times.cummax(dim=1).values  # as sums that decay need them
        now = torch.maximum(now, times[:, first:])
        averages, evidence = decayed_average_and_total(
            items, times, now, rates, first=first, tau0=self.tau0, time_scale="linear"
        )
        return self.fuse(averages, evidence, states[:, first:])

    def weigh(self, times: Tensor, now: Tensor, lengths: Tensor, *, checked: bool = True) -> tuple[Tensor, Tensor]:
        """Weights (B, 1 + K, L) of events in each average, and evidence (B, 1 + K), at the moments `now` (B,).

        `checked` is that of `forward`.
        """
        self._check_shapes(times, now, (len(times),))
        if checked:
            check_order(times, now, lengths)
        inside = torch.arange(times.shape[1], device=times.device) < lengths[:, None]
        times = times.cummax(dim=1).values
        now = torch.maximum(now, times.gather(1, lengths[:, None] - 1)[:, 0])
        logits = -self.rates()[:, None] * self._hours(now[:, None] - times)[:, None]
        logits = logits.masked_fill(~inside[:, None], -torch.inf)
        return logits.softmax(dim=-1), logits.logsumexp(dim=-1)

    def fuse(self, averages: Tensor, evidence: Tensor, last_states: Tensor) -> Reading:
        """User vectors from averages (..., 1 + K, d), evidence (..., 1 + K) and states (..., d)."""
        evidence, averages = evidence[..., 1:].clamp(min=DEAD).to(last_states), averages.to(last_states)
        context = self.context(torch.cat([last_states, F.softplus(evidence)], dim=-1))
        change, gate = context.split([self.dim, evidence.shape[-1]], dim=-1)
        heads = self.strengths + gate + evidence
        alive = torch.cat([torch.zeros_like(heads[..., :1]), heads], dim=-1).softmax(dim=-1)
        background = alive[..., :1] * (last_states + change)
        weighed = alive[..., None] * averages
        events = self.taste(weighed[..., 0, :]) + self.effects(weighed[..., 1:, :].sum(dim=-2)) + alive @ self.offsets
        return Reading(background + events, background, alive)

    def _check_shapes(self, times: Tensor, now: Tensor, readouts: tuple[int, ...]) -> None:
        if times.ndim != 2 or times.is_floating_point():
            raise ValueError(f"times are integers (B, L); found {times.dtype} {tuple(times.shape)}")
        if now.shape != readouts or now.is_floating_point():
            raise ValueError(
                f"now is integers {readouts}, a moment for each user vector; found {now.dtype} {tuple(now.shape)}"
            )

    # Live: sums that decay.

    def start(self, zeros: Tensor) -> Past:
        """The past of users without events, from (B, d) zeros."""
        (zeros,) = widened(zeros)  # half precision counts to 2,048 only
        sums = zeros[:, None].repeat(1, 1 + len(self.strengths), 1)
        return Past(sums, sums[..., 0].clone(), torch.zeros(len(zeros), dtype=torch.int64, device=zeros.device))

    def extend(self, past: Past, items: Tensor, times: Tensor) -> Past:
        """Add events with (B, L, d) embeddings at (B, L) times; one before the latest counts as at the same time."""
        if items.shape[1] == 0:
            return past
        empty = past.counts[:, 0] == 0
        times = torch.where(empty[:, None], times, torch.maximum(times, past.time[:, None])).cummax(dim=1).values
        latest = times[:, -1]
        elapsed = torch.cat([torch.where(empty, 0, latest - past.time)[:, None], latest[:, None] - times], dim=1)
        decays = torch.exp(-self._hours(elapsed)[..., None] * self.rates())  # (B, 1 + L, 1 + K)
        before, new = decays[:, 0], decays[:, 1:]
        sums = before[..., None] * past.sums + new.transpose(1, 2) @ items.to(new)
        return replace(past, sums=sums, counts=before * past.counts + new.sum(1), time=latest)

    def recall(self, past: Past, last_states: Tensor, now: Tensor) -> Reading:
        """User vectors at the moments `now` (B,), not before the latest events."""
        tiny = torch.finfo(past.counts.dtype).tiny
        averages = past.sums / past.counts.clamp(min=tiny)[..., None]
        evidence = past.counts.clamp(min=tiny).log() - self._hours(now - past.time)[:, None] * self.rates()
        return self.fuse(averages, evidence, last_states)

    def _hours(self, elapsed: Tensor) -> Tensor:
        """Integers in hours. Half precision has no room for the seconds of a day."""
        return elapsed.clamp(min=0).to(torch.promote_types(self.strengths.dtype, torch.float32)) / self.tau0
