"""SIGMA's encoder: a gated state space on the history and on a partly flipped copy, beside a GRU (Liu et al., 2025).

Shape letters: B rows, L positions, d width of the model.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder
from marsrec.nn.encoders.base import NORM_EPS, Encoder, init_normal
from marsrec.nn.encoders.echo import reordered, reversal
from marsrec.nn.encoders.mamba import StateSpace, StateSpaceSettings
from marsrec.nn.kernels.dropout import Dropout

SHARES = (0.1, 0.1, 0.8)
"""Where the weights of the GRU, of the flipped and of the forward state space start."""
PUBLISHED_FLIP = 45
"""Positions that the published code flips."""


class SigmaSettings(StateSpaceSettings):
    """One selective state space reads the history twice, the second time with the older part reversed.

    A single block has no residual around what mixes the events, as in Mamba4Rec.
    """

    name: Literal["sigma"] = "sigma"
    inner: int = Field(256, ge=1)
    """Width of the feed-forward sub-layer."""
    gate_dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the gates of the state space's outputs."""
    flipped: float = Field(0.9, ge=0, le=1)
    """Share of a history, its older part, that is reversed. The latest event stays in its place in any case."""
    published: bool = False
    """Do as the published code: rows are padded to the model's length and padding is read like events; their first 45
    positions are flipped (whatever `flipped` says) and not flipped back; the forward gate enters the flipped one; the
    weights of the three branches are free instead of shares of 1."""

    def build(self, dim: int, length: int) -> "Sigma":
        """Make the encoder."""
        return Sigma(dim, length, self)


class Block(nn.Module):
    """Three branches, their weighted sum, and a feed-forward, each followed by dropout and layer norm."""

    def __init__(self, dim: int, settings: SigmaSettings) -> None:
        super().__init__()
        self.residual = settings.layers > 1
        self.published = settings.published
        self.forward_gate, self.flipped_gate = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.gate_silu, self.gate_sigmoid = nn.Linear(dim, dim), nn.Linear(dim, dim)  # of both gates
        self.gate_dropout = Dropout(settings.gate_dropout)
        self.convolution = nn.Conv1d(dim, dim, kernel_size=3, padding=1)
        self.gru = nn.GRU(dim, dim, bias=False, batch_first=True)
        shares = torch.tensor(SHARES)
        self.shares = nn.Parameter(shares if self.published else shares.log())
        self.out = nn.Linear(dim, dim)
        self.mixed_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, settings.inner), nn.GELU(), Dropout(settings.dropout), nn.Linear(settings.inner, dim)
        )
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        init_normal(self)  # all but the state space, which is still to come
        self.state_space = StateSpace(dim, settings)
        if settings.initialisation == "published":
            init_normal(self.state_space)

    def forward(self, x: Tensor, inside: Tensor, order: Tensor) -> Tensor:
        """(B, L, d), the (B, L, 1) mask of events and their flipped order -> (B, L, d)."""
        return self._after(x, *self.branches(x, inside, order))

    def latest(self, x: Tensor, order: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) and the events' flipped order, in which the latest stays in its place -> (B, d) at the latest."""
        event = batch.at_last(x)
        forward = self.state_space.at(x, batch.is_last) * (1 + self._gate(self.forward_gate(event) + event))
        turned = self.state_space.at(reordered(x, order), batch.is_last)
        flipped = turned * (1 + self._gate(self.flipped_gate(event) + event))
        return self._after(event, batch.at_last(self._recurrent(x, batch.inside[..., None])), flipped, forward)

    def _after(self, x: Tensor, recurrent: Tensor, flipped: Tensor, forward: Tensor) -> Tensor:
        shares = self.shares if self.published else self.shares.softmax(0)
        mixed = self.dropout(self.out(shares[0] * recurrent + shares[1] * flipped + shares[2] * forward))
        x = self.mixed_norm(mixed + x if self.residual else mixed)
        normed: Tensor = self.norm(x + self.dropout(self.feed_forward(x)))
        return normed

    def branches(self, x: Tensor, inside: Tensor, order: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the GRU, the state space on the flipped events and the state space on the events say: (B, L, d) each."""
        gate = self._gate(self.forward_gate(x) + x)
        forward = self.state_space(x) * (1 + gate)
        turned = reordered(x, order)
        turned_gate = self._gate(self.flipped_gate(turned) + turned, gate if self.published else None)
        flipped = self.state_space(turned) * (1 + turned_gate)
        if not self.published:
            flipped = reordered(flipped, order)  # each event finds its own state
        return self._recurrent(x, inside), flipped, forward

    def _gate(self, linear: Tensor, opening: Tensor | None = None) -> Tensor:
        opened = (linear if opening is None else opening).sigmoid()
        gate: Tensor = self.gate_dropout(self.gate_silu(F.silu(linear)) + self.gate_sigmoid(opened))
        return gate

    def fast(self, arrays: Arrays) -> Callable[[Array, Array, bool], Array]:
        """The same for one history, of which the first so many events are flipped."""
        forward_linear, flipped_linear = arrays.of(self.forward_gate), arrays.of(self.flipped_gate)
        gate_silu, gate_sigmoid, out = arrays.of(self.gate_silu), arrays.of(self.gate_sigmoid), arrays.of(self.out)
        wide, narrow = arrays.of(self.feed_forward[0]), arrays.of(self.feed_forward[3])
        mixed_norm, norm = arrays.norm(self.mixed_norm), arrays.norm(self.norm)
        nothing = arrays.constant(self.convolution.weight.new_zeros(1, len(self.out.weight)))
        around = arrays.linear(self.convolution.weight.permute(0, 2, 1).flatten(1), self.convolution.bias)
        recur, still = arrays.gru(*self.gru.all_weights[0][:2]), nothing
        scan, start = self.state_space.fast(arrays), self.state_space.fast_start(arrays)
        shares = self.shares.softmax(0).tolist()

        def opened(linear: Array) -> Array:
            return 1.0 + gate_silu(arrays.silu(linear)) + gate_sigmoid(arrays.sigmoid(linear))

        def mix(x: Array, flips: Array, last: bool) -> Array:
            padded = arrays.concat([nothing, x, nothing], 0)
            beside = [arrays.rows(padded, 0, -2), x, arrays.rows(padded, 2)]
            recurrent = recur(around(arrays.concat(beside, 1)), still)
            turned = arrays.reversed_first(x, flips)
            forward, flipped = scan(start, x, last)[0], scan(start, turned, last)[0]
            if last:  # the latest event stays in its place
                x, recurrent = arrays.rows(x, -1), arrays.rows(recurrent, -1)
            else:
                flipped = arrays.reversed_first(flipped, flips)
            forward = forward * opened(forward_linear(x) + x)
            flipped = flipped * opened(flipped_linear(x) + x)
            mixed = out(shares[0] * recurrent + shares[1] * flipped + shares[2] * forward)
            x = mixed_norm(mixed + x if self.residual else mixed)
            return norm(x + narrow(arrays.gelu(wide(x))))

        return mix

    def _recurrent(self, x: Tensor, inside: Tensor) -> Tensor:
        # The convolution looks one event ahead: beyond the latest there must be nothing.
        around = self.convolution((x * inside).transpose(1, 2)).transpose(1, 2)
        states: Tensor = self.gru(around)[0]
        return states


class Sigma(Encoder):
    """Dropout and norm on the items, then the blocks.

    Differs from the published code, unless `published` is set: a share of each history's own events is flipped, instead
    of 45 padded positions, and flipped back afterwards; the flipped gate depends on the flipped events alone; the
    weights of the branches are positive and sum to 1. The published code stops with an error unless length equals dim.
    """

    causal = False

    def __init__(self, dim: int, length: int, settings: SigmaSettings) -> None:
        super().__init__(dim)
        self.padded_to = length if settings.published else 0
        self.length, self.flipped = length, settings.flipped
        self.dropout = Dropout(settings.dropout)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.blocks: Sequence[Block] = nn.ModuleList(Block(dim, settings) for _ in range(settings.layers))  # type: ignore[assignment]

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        length, inside = embedded.shape[1], batch.inside
        if self.padded_to:  # a row is all of its padded positions
            embedded = F.pad(embedded, (0, 0, 0, self.padded_to - length))
            inside = inside.new_ones(embedded.shape[:2])
        order = reversal(self.flips(batch.lengths), embedded.shape[1])
        return self._through(self.blocks, embedded, inside, order)[:, :length]

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """See `Encoder.latest`: the last block's gates and feed-forward are needed there alone."""
        if self.padded_to:
            return super().latest(embedded, batch)
        order = reversal(self.flips(batch.lengths), embedded.shape[1])
        x = self._through(self.blocks[:-1], embedded, batch.inside, order)
        return self.blocks[-1].latest(x, order, batch)

    def _through(self, blocks: Sequence[Block], embedded: Tensor, inside: Tensor, order: Tensor) -> Tensor:
        x: Tensor = self.norm(self.dropout(embedded))
        for block in blocks:
            x = block(x, inside[..., None], order)
        return x

    def fast(self, arrays: Arrays) -> FastEncoder | None:
        """See `Encoder.fast`; not of the published variant."""
        if self.padded_to:
            return None
        norm, blocks = arrays.norm(self.norm), [block.fast(arrays) for block in self.blocks]
        flips = arrays.constant(self.flips(torch.arange(self.length + 1)))

        def states(x: Array, times: Array, last: bool) -> Array:
            x, flipped = norm(x), arrays.take(flips, arrays.count(x))
            for block in blocks:
                x = block(x, flipped, last and block is blocks[-1])
            return x

        return states

    def flips(self, lengths: Tensor) -> Tensor:
        """(B,) number of events -> (B,) how many of them, the oldest, are reversed."""
        if self.padded_to:
            return torch.full_like(lengths, min(PUBLISHED_FLIP, self.padded_to))
        share = (self.flipped * lengths.double()).round().to(lengths.dtype)
        return torch.minimum(share, lengths - 1)
