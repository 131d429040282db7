"""Mamba4Rec's encoder: selective state spaces with feed-forward sub-layers (Gu and Dao, 2023; Liu et al., 2024).

Shape letters: B rows, L positions, d width of the model, E = expand · d channels, N states per channel, R rank of Δ.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder, FastMemory
from marsrec.nn.encoders.base import NORM_EPS, Encoder, EncoderSettings, Memory, init_normal, picked
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.kernels.numeric import widened
from marsrec.nn.kernels.selective_scan import continued_scan, selective_scan


class StateSpaceSettings(EncoderSettings):
    """What encoders made of selective state spaces share."""

    layers: int = Field(1, ge=1, le=128)
    """Number of blocks."""
    states: int = Field(32, ge=1)
    """States N per channel."""
    convolution: int = Field(4, ge=2)
    """Events that the convolution before the state space looks at."""
    expand: int = Field(2, ge=1)
    """Channels of the state space, in multiples of the model's dim."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on embeddings and sub-layer outputs."""
    initialisation: Literal["mamba", "published"] = "mamba"
    """"mamba" starts as Mamba's authors meant, with step sizes Δ spread from 0.001 to 0.1. "published" overwrites it as
    the published recommenders do: all linear layers N(0, 0.02), and so all Δ near 0.69."""

    def suited_to_data(self, dense: bool) -> Mapping[str, Any]:
        """See `Part.suited_to_data`."""
        return {"dropout": 0.2 if dense else 0.5}


class MambaSettings(StateSpaceSettings):
    """Selective state spaces: each event updates a state of fixed size. There are no positions.

    A single block has no residual around its state space, as in Mamba4Rec.
    """

    name: Literal["mamba"] = "mamba"
    inner: int = Field(256, ge=1)
    """Width of the feed-forward sub-layer."""

    def build(self, dim: int, length: int) -> "Mamba":
        """Make the encoder, which is the same for any length."""
        return Mamba(dim, self)


def causal_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Each channel as a weighted sum of its own last W values: (B, L, E), (E, W) and (E,) -> (B, L, E).

    Before the first event there are zeros. As an image of width 1 whose channels lie side by side, as they do here,
    torch convolves in half the time that it needs for rows of channels.

    Examples
    --------
    >>> x = torch.tensor([[[1.0], [2.0], [4.0]]])
    >>> causal_convolution(x, torch.tensor([[0.5, 1.0]]), torch.zeros(1)).flatten()
    tensor([1.0000, 2.5000, 5.0000])
    """
    padded = F.pad(x, (0, 0, weight.shape[1] - 1, 0))
    image = padded[:, :, None].permute(0, 3, 1, 2)  # (B, E, W - 1 + L, 1)
    return F.conv2d(image, weight[:, None, :, None], bias, groups=len(weight))[..., 0].transpose(1, 2)


class StateSpace(nn.Module):
    """Mamba-1: a gated, causally convolved selective scan."""

    def __init__(self, dim: int, settings: StateSpaceSettings) -> None:
        super().__init__()
        channels, states = settings.expand * dim, settings.states
        self.rank = math.ceil(dim / 16)
        self.in_projection = nn.Linear(dim, 2 * channels, bias=False)
        width = settings.convolution
        bound = 1 / math.sqrt(width)
        self.kernel = nn.Parameter(torch.empty(channels, width).uniform_(-bound, bound))
        self.kernel_bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))
        self.selection = nn.Linear(channels, self.rank + 2 * states, bias=False)
        self.step_size = nn.Linear(self.rank, channels)
        self.log_rates = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(channels, 1))
        self.skip = nn.Parameter(torch.ones(channels))
        self.out_projection = nn.Linear(channels, dim, bias=False)
        nn.init.uniform_(self.step_size.weight, -(self.rank**-0.5), self.rank**-0.5)
        steps = torch.empty(channels).uniform_(math.log(0.001), math.log(0.1)).exp()
        with torch.no_grad():
            self.step_size.bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # softplus of it is `steps`

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        x, gate = self.in_projection(x).chunk(2, dim=-1)  # (B, L, E) each
        x = F.silu(causal_convolution(x, self.kernel, self.kernel_bias))
        return self._out(selective_scan(x, *self._selected(x)), gate)

    def at(self, x: Tensor, where: Tensor) -> Tensor:
        """(B, L, d) -> (N, d) where (B, L) `where` holds: gate and output are computed there alone."""
        inputs, gate = self.in_projection.weight.chunk(2)
        scanned = F.silu(causal_convolution(F.linear(x, inputs), self.kernel, self.kernel_bias))
        scanned = picked(selective_scan(scanned, *self._selected(scanned)), where)
        return self._out(scanned, F.linear(picked(x, where), gate))

    def start(self, rows: int) -> Memory:
        """See `Encoder.start`: the latest inputs of the convolution, and the states of the scan."""
        channels, width = self.kernel.shape
        (rates,) = widened(self.log_rates)  # the scan's own kind of number, also where the model has half precision
        return self.kernel.new_zeros(rows, width - 1, channels), rates.new_zeros(rows, *rates.shape)

    def resume(self, memory: Memory, x: Tensor) -> tuple[Tensor, Memory]:
        """See `Encoder.resume`."""
        recent, carried = memory
        before = recent.shape[1]
        x, gate = self.in_projection(x).chunk(2, dim=-1)
        x = torch.cat([recent, x], dim=1)
        recent = x[:, -before:]
        x = F.silu(causal_convolution(x, self.kernel, self.kernel_bias)[:, before:])
        y, carried = continued_scan(carried, x, *self._selected(x))
        return self._out(y, gate), (recent, carried)

    def fast(self, arrays: Arrays) -> FastMemory:
        """What `resume` does for one history, in the operations of `marsrec.nn.arrays`."""
        rank, states = self.rank, self.log_rates.shape[1]
        inputs, gates = (arrays.linear(weight) for weight in self.in_projection.weight.chunk(2))
        step, write, read = (arrays.linear(w) for w in torch.split(self.selection.weight, [rank, states, states]))
        convolve = arrays.convolution(self.kernel, self.kernel_bias)
        step_size, out = arrays.of(self.step_size), arrays.of(self.out_projection)
        scan = arrays.scan(-self.log_rates.exp(), self.skip)
        before = self.kernel.shape[1] - 1

        def go_on(memory: tuple[Array, ...], x: Array, last: bool) -> tuple[Array, tuple[Array, ...]]:
            recent, state = memory
            given = inputs(x)
            source = arrays.silu(convolve(given, recent))
            recent = arrays.rows(arrays.concat([recent, given], 0), -before)
            delta = arrays.softplus(step_size(step(source)))
            y, state = scan(source, delta, write(source), read(source), state)
            if last:
                x, y = arrays.rows(x, -1), arrays.rows(y, -1)
            return out(y * arrays.silu(gates(x))), (recent, state)

        return go_on

    def fast_start(self, arrays: Arrays) -> tuple[Array, ...]:
        """What `start` gives one history."""
        return tuple(arrays.constant(part[0]) for part in self.start(1))

    def _selected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Δ, A, B, C and D of these inputs."""
        states = self.log_rates.shape[1]
        step, write, read = self.selection(x).split([self.rank, states, states], dim=-1)
        return F.softplus(self.step_size(step)), -self.log_rates.exp(), write, read, self.skip

    def _out(self, y: Tensor, gate: Tensor) -> Tensor:
        out: Tensor = self.out_projection(y * F.silu(gate))
        return out


class Block(nn.Module):
    """State space and feed-forward, each followed by dropout, residual and layer norm."""

    def __init__(self, dim: int, settings: MambaSettings) -> None:
        super().__init__()
        self.residual = settings.layers > 1
        self.state_space = StateSpace(dim, settings)
        self.state_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, settings.inner), nn.GELU(), Dropout(settings.dropout), nn.Linear(settings.inner, dim)
        )
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        init_normal(self if settings.initialisation == "published" else self.feed_forward)

    def forward(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """(B, L, d) -> (B, L, d), or (N, d) at the positions `where`: all after the scan is computed there alone."""
        if where is None:
            return self._after(x, self.state_space(x))
        return self._after(picked(x, where), self.state_space.at(x, where))

    def start(self, rows: int) -> Memory:
        """See `Encoder.start`."""
        return self.state_space.start(rows)

    def resume(self, memory: Memory, x: Tensor) -> tuple[Tensor, Memory]:
        """See `Encoder.resume`."""
        mixed, memory = self.state_space.resume(memory, x)
        return self._after(x, mixed), memory

    def fast(self, arrays: Arrays) -> FastMemory:
        """What `resume` does for one history, in the operations of `marsrec.nn.arrays`."""
        mix, state_norm, norm = self.state_space.fast(arrays), arrays.norm(self.state_norm), arrays.norm(self.norm)
        wide, narrow = arrays.of(self.feed_forward[0]), arrays.of(self.feed_forward[3])

        def go_on(memory: tuple[Array, ...], x: Array, last: bool) -> tuple[Array, tuple[Array, ...]]:
            mixed, memory = mix(memory, x, last)
            if self.residual:
                mixed = mixed + (arrays.rows(x, -1) if last else x)
            x = state_norm(mixed)
            return norm(x + narrow(arrays.gelu(wide(x)))), memory

        return go_on

    def _after(self, x: Tensor, mixed: Tensor) -> Tensor:
        mixed = self.dropout(mixed)
        x = self.state_norm(mixed + x if self.residual else mixed)
        normed: Tensor = self.norm(x + self.dropout(self.feed_forward(x)))
        return normed


class Mamba(Encoder):
    """Dropout and norm on the items, then the blocks."""

    causal = True
    recurrent = True

    def __init__(self, dim: int, settings: MambaSettings) -> None:
        super().__init__(dim)
        self.dropout = Dropout(settings.dropout)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.blocks: Sequence[Block] = nn.ModuleList(Block(dim, settings) for _ in range(settings.layers))  # type: ignore[assignment]

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        states: Tensor = self.blocks[-1](self._before_last(embedded))
        return states

    def at(self, embedded: Tensor, batch: Batch, where: Tensor) -> Tensor:
        """See `Encoder.at`."""
        states: Tensor = self.blocks[-1](self._before_last(embedded), where)
        return states

    def _before_last(self, embedded: Tensor) -> Tensor:
        """What the last block takes."""
        x: Tensor = self.norm(self.dropout(embedded))
        for block in self.blocks[:-1]:
            x = block(x)
        return x

    def start(self, rows: int) -> Memory:
        """See `Encoder.start`: two tensors per block."""
        return tuple(part for block in self.blocks for part in block.start(rows))

    def go_on(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        """See `Encoder.resume`."""
        x: Tensor = self.norm(embedded)
        after: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            x, parts = block.resume(memory[2 * index : 2 * index + 2], x)
            after.extend(parts)
        return x, tuple(after)

    def fast(self, arrays: Arrays) -> FastEncoder:
        """See `Encoder.fast`."""
        go_on = self.fast_live(arrays)
        start = tuple(part for block in self.blocks for part in block.state_space.fast_start(arrays))

        def states(x: Array, times: Array, last: bool) -> Array:
            return go_on(start, x, last)[0]

        return states

    def fast_live(self, arrays: Arrays) -> FastMemory:
        """See `Encoder.fast_live`."""
        norm, blocks = arrays.norm(self.norm), [block.fast(arrays) for block in self.blocks]

        def go_on(memory: tuple[Array, ...], x: Array, last: bool) -> tuple[Array, tuple[Array, ...]]:
            x, after = norm(x), memory[:0]
            for place, block in enumerate(blocks):
                x, parts = block(memory[2 * place : 2 * place + 2], x, last and place == len(blocks) - 1)
                after += parts
            return x, after

        return go_on
