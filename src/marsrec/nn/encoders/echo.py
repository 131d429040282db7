"""EchoMamba4Rec's encoder: frequency filter, state spaces in both directions, gated linear unit (Wang et al., 2024).

Shape letters: B rows, L positions of the batch, d width of the model, T the model's length.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder, Map
from marsrec.nn.encoders.base import NORM_EPS, Encoder, init_normal
from marsrec.nn.encoders.mamba import StateSpace, StateSpaceSettings
from marsrec.nn.kernels.dropout import Dropout


class EchoSettings(StateSpaceSettings):
    """Frequencies weighed by learned factors, then state spaces that read the history forwards and backwards.

    At the last event of a single block the backward one has read that event alone.
    """

    name: Literal["echo"] = "echo"
    published: bool = False
    """Do as the published code: rows are padded to the model's length and padding is read like events, also first by
    the backward state space; n layers hold n pairs of state spaces each; the last dropout takes the residual too."""

    def build(self, dim: int, length: int) -> "Echo":
        """Make the encoder."""
        return Echo(dim, length, self)


def reversal(counts: Tensor, length: int) -> Tensor:
    """Where `reordered` reads so that the first `counts` (B,) positions of each row are reversed: (B · L,).

    Done twice, it undoes itself.

    Examples
    --------
    >>> rows = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7]])
    >>> reordered(rows[..., None], reversal(torch.tensor([3, 2]), 4))[..., 0]
    tensor([[3, 2, 1, 0],
            [5, 4, 6, 7]])
    """
    position = torch.arange(length, device=counts.device)
    source = torch.where(position < counts[:, None], counts[:, None] - 1 - position, position)  # (B, L)
    return (source + length * torch.arange(len(counts), device=counts.device)[:, None]).flatten()


def reordered(x: Tensor, order: Tensor) -> Tensor:
    """(B, L, d) -> (B, L, d) with the positions in another order; see `reversal`."""
    return x.flatten(0, 1).index_select(0, order).view_as(x)


class FrequencyFilter(nn.Module):
    """Each channel's frequencies over the model's length, times learned complex weights.

    The frequencies are those of T positions however short a batch is, so that a weight always means the same period.
    """

    def __init__(self, dim: int, length: int) -> None:
        super().__init__()
        self.length = length
        self.weight = nn.Parameter(0.02 * torch.randn(length // 2 + 1, dim, 2))  # real and imaginary parts

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d), zero at padding -> (B, L, d)."""
        x = x.to(self.weight.dtype)
        weight = torch.view_as_complex(self.weight)  # (T // 2 + 1, d)
        length = x.shape[1]
        if 2 * length > self.length:
            spectrum = torch.fft.rfft(x, n=self.length, dim=1) * weight
            filtered: Tensor = torch.fft.irfft(spectrum, n=self.length, dim=1)
            return filtered[:, :length]
        # A product of frequencies is a circular convolution: on short rows a matrix product per channel is far faster.
        kernel = torch.fft.irfft(weight, n=self.length, dim=0)  # (T, d)
        position = torch.arange(length, device=x.device)
        mixing = kernel.T[:, (position[:, None] - position) % self.length]  # (d, L, L)
        return torch.bmm(mixing, x.permute(2, 1, 0)).permute(2, 1, 0)

    def fast(self, arrays: Arrays) -> Map:
        """The same for one history, as a circular convolution."""
        kernel = arrays.constant(torch.fft.irfft(torch.view_as_complex(self.weight), n=self.length, dim=0))  # (T, d)

        def filtered(x: Array) -> Array:
            place = arrays.range(0, arrays.count(x))
            lags = (arrays.wider(place, 1) - place) % self.length
            return arrays.sum(arrays.take(kernel, lags) * arrays.wider(x, 0), 1)

        return filtered


class Bidirectional(nn.Module):
    """Two state spaces, one of which reads the history from its latest event back; their normed outputs are added."""

    def __init__(self, dim: int, settings: EchoSettings) -> None:
        super().__init__()
        self.forwards, self.backwards = StateSpace(dim, settings), StateSpace(dim, settings)
        self.forwards_norm, self.backwards_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = Dropout(settings.dropout)
        if settings.initialisation == "published":
            init_normal(self)

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        """(B, L, d) and the order in which to read backwards -> (B, L, d)."""
        backwards = reordered(self.backwards(reordered(x, order)), order)
        return self._mixed(x, self.forwards(x), backwards)

    def latest(self, x: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, d) at the latest events, with which reading backwards begins."""
        event = batch.at_last(x)
        return self._mixed(event, self.forwards.at(x, batch.is_last), self.backwards(event[:, None])[:, 0])

    def fast(self, arrays: Arrays) -> Callable[[Array, bool], Array]:
        """The same for one history; the backward state space begins with the last event, which may be all."""
        forwards, backwards = self.forwards.fast(arrays), self.backwards.fast(arrays)
        start = self.forwards.fast_start(arrays)
        forwards_norm, backwards_norm = arrays.norm(self.forwards_norm), arrays.norm(self.backwards_norm)

        def both(x: Array, last: bool) -> Array:
            event = arrays.rows(x, -1) if last else x
            back = arrays.reversed_first(event, arrays.count(event))
            back = arrays.reversed_first(backwards(start, back, False)[0], arrays.count(event))
            return forwards_norm(forwards(start, x, last)[0] + event) + backwards_norm(back + event)

        return both

    def _mixed(self, x: Tensor, forwards: Tensor, backwards: Tensor) -> Tensor:
        forwards, backwards = self.dropout(forwards) + x, self.dropout(backwards) + x
        mixed: Tensor = self.forwards_norm(forwards) + self.backwards_norm(backwards)
        return mixed


class GatedLinear(nn.Module):
    """Gated linear unit, residual and layer norm."""

    def __init__(self, dim: int, settings: EchoSettings) -> None:
        super().__init__()
        self.published = settings.published
        self.value_and_gate = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        init_normal(self)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        out = self.out(F.glu(self.value_and_gate(x)))
        normed: Tensor = self.norm(self.dropout(out + x) if self.published else self.dropout(out) + x)
        return normed

    def fast(self, arrays: Arrays) -> Map:
        """The same for one history."""
        (value, gate), out, norm = self._halves(arrays), arrays.of(self.out), arrays.norm(self.norm)
        return lambda x: norm(out(value(x) * arrays.sigmoid(gate(x))) + x)

    def _halves(self, arrays: Arrays) -> list[Map]:
        weights, biases = self.value_and_gate.weight.chunk(2), self.value_and_gate.bias.chunk(2)
        return [arrays.linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]


class Layer(nn.Module):
    """Frequency filter, state spaces in both directions, gated linear unit."""

    def __init__(self, dim: int, length: int, settings: EchoSettings) -> None:
        super().__init__()
        self.filter = FrequencyFilter(dim, length)
        self.filter_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        pairs = settings.layers if settings.published else 1
        self.pairs: Sequence[Bidirectional] = nn.ModuleList(Bidirectional(dim, settings) for _ in range(pairs))  # type: ignore[assignment]
        self.gated = GatedLinear(dim, settings)
        self.dropout = Dropout(settings.dropout)

    def forward(self, x: Tensor, inside: Tensor, order: Tensor) -> Tensor:
        """(B, L, d), the (B, L, 1) mask of events and their reversed order -> (B, L, d)."""
        x = self._filtered(x, inside)
        for pair in self.pairs:
            x = pair(x, order)
        gated: Tensor = self.gated(x)
        return gated

    def latest(self, x: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, d) at the latest events, of a layer with one pair."""
        (pair,) = self.pairs
        gated: Tensor = self.gated(pair.latest(self._filtered(x, batch.inside[..., None]), batch))
        return gated

    def fast(self, arrays: Arrays) -> Callable[[Array, bool], Array]:
        """The same for one history, of a layer with one pair."""
        (pair,) = (pair.fast(arrays) for pair in self.pairs)
        spread, norm, gated = self.filter.fast(arrays), arrays.norm(self.filter_norm), self.gated.fast(arrays)
        return lambda x, last: gated(pair(norm(spread(x) + x), last))

    def _filtered(self, x: Tensor, inside: Tensor) -> Tensor:
        # The filter spreads every position over all: padding must be nothing before it.
        normed: Tensor = self.filter_norm(self.dropout(self.filter(x * inside)) + x)
        return normed


class Echo(Encoder):
    """Dropout and norm on the items, then the layers.

    Differs from the published code, unless `published` is set: padding is zero before the filter; only the events of a
    history are reversed, so that the backward state space starts at the latest event and not with padding.
    """

    causal = False

    def __init__(self, dim: int, length: int, settings: EchoSettings) -> None:
        super().__init__(dim)
        self.padded_to = length if settings.published else 0
        self.dropout = Dropout(settings.dropout)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.layers: Sequence[Layer] = nn.ModuleList(Layer(dim, length, settings) for _ in range(settings.layers))  # type: ignore[assignment]

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        length, inside, counts = embedded.shape[1], batch.inside, batch.lengths
        if self.padded_to:  # a row is all of its padded positions
            embedded = F.pad(embedded, (0, 0, 0, self.padded_to - length))
            counts = torch.full_like(counts, self.padded_to)
            inside = inside.new_ones(embedded.shape[:2])
        x = self._through(self.layers, embedded, inside, reversal(counts, embedded.shape[1]))
        return x[:, :length]

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """See `Encoder.latest`: in the last layer nothing needs to read backwards but the latest event."""
        if self.padded_to:
            return super().latest(embedded, batch)
        order = reversal(batch.lengths, embedded.shape[1])
        x = self._through(self.layers[:-1], embedded, batch.inside, order)
        return self.layers[-1].latest(x, batch)

    def fast(self, arrays: Arrays) -> FastEncoder | None:
        """See `Encoder.fast`; not of the published variant."""
        if self.padded_to:
            return None
        norm, layers = arrays.norm(self.norm), [layer.fast(arrays) for layer in self.layers]

        def states(x: Array, times: Array, last: bool) -> Array:
            x = norm(x)
            for layer in layers:
                x = layer(x, last and layer is layers[-1])
            return x

        return states

    def _through(self, layers: Sequence[Layer], embedded: Tensor, inside: Tensor, order: Tensor) -> Tensor:
        x: Tensor = self.norm(self.dropout(embedded))
        for layer in layers:
            x = layer(x, inside[..., None], order)
        return x
