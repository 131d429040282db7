"""FEARec's encoder: attention and auto-correlation within bands of frequencies (Du et al., 2023).

A history of n events is one period: its frequencies are 0 .. n // 2 cycles per n events, and lags are taken modulo n.
So neither padding nor the other rows of a batch have a part in it.

Shape letters: B rows, L positions, n events of a row, d width of the model, H heads, F frequencies of a band, K lags.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder
from marsrec.nn.encoders.base import NORM_EPS, Encoder, init_normal
from marsrec.nn.encoders.transformer import AttentionBlock, AttentionSettings
from marsrec.nn.kernels.attention import attention, causal_attention
from marsrec.nn.kernels.dropout import Dropout


class FrequencySettings(AttentionSettings):
    """Attention to band-filtered events, mixed with events at the lags at which a history resembles itself."""

    name: Literal["frequency"] = "frequency"
    band: float = Field(0.6, gt=0, le=1)
    """Share of a history's frequencies that a block works with: the first block with the highest, the last with the
    lowest. At least 1 / layers, with which the bands stand side by side; above it they overlap."""
    lag_factor: float = Field(1.0, gt=0)
    """This many times ln(length of the model) is the number of lags, at least one, and no more than a history has."""
    time_weight: float = Field(0.1, ge=0, le=1)
    """Weight of the attention; the auto-correlation has the rest."""
    published: bool = False
    """As RecBole has it: no attention, all frequencies in each block, the padded length (always the model's) as the
    period, and, in training, lags that are best for all rows that are encoded together. `band` and `time_weight` then
    mean nothing."""

    def build(self, dim: int, length: int) -> "FrequencyEncoder":
        """Make the encoder."""
        return FrequencyEncoder(dim, length, self)


def ramp(block: int, layers: int, share: float, n: int) -> tuple[int, int]:
    """First frequency of a block's band, and the one after its last, of the n // 2 + 1 of a history of n events."""
    count = n // 2 + 1
    if share > 1 / layers:
        step = float(math.floor(count * (1 - share) / (layers - 1) + 1e-9))
    else:
        share, step = 1 / layers, count / layers
    first = math.floor(count * (1 - share) - block * step + 1e-9)
    after = math.floor(count - block * step + 1e-9)
    return first, max(after, first + 1)  # histories with fewer frequencies than blocks: no band is empty


class Fourier(NamedTuple):
    """Real Fourier transform of rows with periods of their own, as matrices (B, 2F, L): cosines, then sines.

    What lies outside a row or its band is zero.
    """

    analysis: Tensor
    """Times events: their coefficients in the band."""
    synthesis: Tensor
    """Coefficients times it: the events, less what lies outside the band."""


def fourier(lengths: Tensor, L: int, bands: Tensor, dtype: torch.dtype) -> Fourier:
    """Make the matrices of rows of these lengths (B,); bands[n] are the first frequency and that after the last."""
    distinct, kind = torch.unique(lengths, return_inverse=True)  # few: batches hold rows of similar length
    n, (first, after) = distinct[:, None], bands[distinct][:, :, None].unbind(1)
    f = first + torch.arange(int((after - first).max()), device=lengths.device)  # (distinct, F)
    t = torch.arange(L, device=lengths.device)
    turns = (f[:, :, None] * t) % n[:, :, None]  # exact, however long the history
    angle = 2 * math.pi * turns.to(dtype) / n[:, :, None]
    kept = (f < after)[:, :, None] & (t < n[:, :, None])
    analysis = torch.cat([angle.cos() * kept, angle.sin() * kept], dim=1)  # (distinct, 2F, L)
    # A frequency stands for its negative too, unless it is its own.
    weight = (2 - ((f == 0) | (2 * f == n)).to(dtype)) / n
    synthesis = analysis * weight.repeat(1, 2)[:, :, None]
    return Fourier(analysis[kind], synthesis[kind])


class FrequencyBlock(AttentionBlock):
    """Two ways to mix events."""

    def __init__(self, dim: int, length: int, settings: FrequencySettings) -> None:
        super().__init__(dim, settings)
        self.lags = max(1, int(settings.lag_factor * math.log(length)))
        self.time_weight = 0.0 if settings.published else settings.time_weight
        self.lags_of_batch = settings.published

    def forward(self, x: Tensor, lengths: Tensor, band: Fourier) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        L, d = x.shape[1:]
        qkv, coefficients = self._analysed(x, band)
        lags, weights = self._lags(coefficients, lengths, band)
        follower = (torch.arange(L, device=x.device)[:, None] + lags[:, None]) % lengths[:, None, None]  # (B, L, K)
        shifts = weights.new_zeros(len(x), L, L)
        shifts.scatter_add_(2, follower, weights[:, None].expand(-1, L, -1))
        mixed = shifts @ qkv[..., 2 * d :]
        if self.time_weight:
            filtered = band.synthesis.mT @ coefficients  # (B, L, 3d)
            attended = causal_attention(*self.split(filtered), self.drop)
            mixed = mixed.lerp(attended.transpose(1, 2).flatten(2), self.time_weight)
        return self.after(x, mixed)

    def latest(self, x: Tensor, lengths: Tensor, band: Fourier, last: Tensor) -> Tensor:
        """(B, L, d) -> (B, d), what `forward` gives at the places `last` (B,), which nothing real comes after."""
        (rows, length, d), device = x.shape, x.device
        row = torch.arange(rows, device=device)
        start = row * length  # of each row, where all are one after the other
        qkv, coefficients = self._analysed(x, band)
        lags, weights = self._lags(coefficients, lengths, band)
        follower = (last[:, None] + lags) % lengths[:, None]  # (B, K)
        values = qkv[..., 2 * d :].flatten(0, 1).index_select(0, (start[:, None] + follower).flatten())
        mixed = (weights[:, None] @ values.view(*follower.shape, d))[:, 0]
        if self.time_weight:
            query = band.synthesis[row, :, last][:, None] @ coefficients[..., :d]  # (B, 1, d)
            filtered = band.synthesis.mT @ coefficients[..., d:]  # (B, L, 2d)
            query, key, value = (self.by_head(part) for part in (query, *filtered.chunk(2, dim=-1)))
            later = torch.arange(length, device=device) > last[:, None]
            hidden = query.new_zeros(later.shape).masked_fill_(later, -torch.inf)[:, None, None]
            attended = attention(query, key, value, hidden, self.drop)  # (B, H, 1, d/H)
            mixed = mixed.lerp(attended.flatten(1), self.time_weight)
        return self.after(x.flatten(0, 1).index_select(0, start + last), mixed)

    def fast_filtered(self, arrays: Arrays, bands: Tensor) -> Callable[[Array, int], Array]:
        """The same for one history, whose period is all of it: (L, d) -> (Q, d) from an event on."""
        queries, keys, values = self.projections(arrays)
        after, table, d = self.fast_after(arrays), arrays.constant(bands.flatten()), self.qkv.in_features

        def mix(x: Array, first: int) -> Array:
            n = arrays.count(x)
            frequency = arrays.range(arrays.take(table, 2 * n), arrays.take(table, 2 * n + 1))  # (F,)
            turns = (arrays.wider(frequency, 1) * arrays.range(0, n)) % n
            angle = arrays.number(turns) * (2 * math.pi) / arrays.number(n)
            single = arrays.equal(frequency, 0) + arrays.equal(2 * frequency, n)
            waves = arrays.cos(angle), arrays.sin(angle)  # (F, L) each
            back = [wave * arrays.wider((2.0 - single) / arrays.number(n), 1) for wave in waves]

            query, key, value = queries(x), keys(x), values(x)
            (qc, qs), (kc, ks) = ([wave @ part for wave in waves] for part in (query, key))  # (F, d) each
            spectrum = arrays.sum(qc * kc + qs * ks, 1), arrays.sum(qs * kc - qc * ks, 1)
            correlation = (spectrum[0] @ back[0] + spectrum[1] @ back[1]) / float(d)
            close = arrays.largest(arrays.sqrt(correlation * correlation)) * (16 * torch.finfo(torch.float32).eps)
            lags = arrays.best(correlation - close * arrays.number(arrays.range(0, n)), self.lags)  # (K,)
            weights = arrays.softmax(arrays.take(correlation, lags))
            place = arrays.rows(arrays.range(0, n), first)
            followers = arrays.take(value, (arrays.wider(place, 1) + lags) % n)  # (Q, K, d)
            mixed = arrays.sum(followers * arrays.wider(weights, 1), 1)
            if self.time_weight:

                def within(part: Array) -> Array:
                    return arrays.transposed(back[0]) @ (waves[0] @ part) + arrays.transposed(back[1]) @ (
                        waves[1] @ part
                    )

                asked = arrays.rows(within(query), first)
                attended = arrays.attention(asked, within(key), within(value), self.heads, True)
                mixed = mixed + (attended - mixed) * self.time_weight
            return after(arrays.rows(x, first), mixed)

        return mix

    def _analysed(self, x: Tensor, band: Fourier) -> tuple[Tensor, Tensor]:
        """Queries, keys and values (B, L, 3d), and their coefficients (B, 2F, 3d); of the values only for attention."""
        qkv = self.qkv(x)
        return qkv, band.analysis @ (qkv if self.time_weight else qkv[..., : 2 * x.shape[-1]])

    def _lags(self, coefficients: Tensor, lengths: Tensor, band: Fourier) -> tuple[Tensor, Tensor]:
        """Lags (B, K) of highest correlation between queries and keys, and the weights of events at them."""
        d = self.qkv.in_features
        correlation = self_correlation(coefficients[..., :d], coefficients[..., d : 2 * d], band)  # (B, L)
        place = torch.arange(correlation.shape[1], device=lengths.device)
        correlation = correlation.masked_fill(place >= lengths[:, None], -torch.inf)
        lags = self._best(correlation.detach())
        return lags, correlation.gather(1, lags).softmax(-1)

    def _best(self, correlation: Tensor) -> Tensor:
        """Lags (B, K) of the highest correlations (B, L)."""
        count = min(self.lags, correlation.shape[1])
        if self.lags_of_batch and self.training:
            return correlation.mean(0).topk(count).indices.expand(len(correlation), -1)
        # In a narrow band lags tie, but for rounding: prefer the shorter, lest padding decide.
        close = 16 * torch.finfo(correlation.dtype).eps * correlation.nan_to_num(neginf=0).abs().amax(1, keepdim=True)
        return (correlation - close * torch.arange(correlation.shape[1], device=close.device)).topk(count).indices


def self_correlation(query: Tensor, key: Tensor, band: Fourier) -> Tensor:
    """(B, L) mean over channels of sum_t query[t + lag] key[t], circular and within a band, from coefficients."""
    real, crossed = (query * key).sum(-1), (query * key.roll(key.shape[1] // 2, dims=1)).sum(-1)  # (B, 2F)
    (cosines, sines), (cosine_sine, sine_cosine) = real.chunk(2, dim=-1), crossed.chunk(2, dim=-1)
    spectrum = torch.cat([cosines + sines, sine_cosine - cosine_sine], dim=-1)
    correlation = (spectrum[:, None] @ band.synthesis)[:, 0] / query.shape[-1]
    return correlation.to(band.synthesis.dtype)  # with mixed precision too: it decides between lags


class FrequencyEncoder(Encoder):
    """Item plus position, norm, dropout, then blocks, each with its band of frequencies.

    A state depends on the whole history, and so the last one alone is for reading out.
    """

    causal = False
    bands: Tensor

    def __init__(self, dim: int, length: int, settings: FrequencySettings) -> None:
        super().__init__(dim)
        self.padded_to = length if settings.published else 0
        self.positions = nn.Embedding(length, dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        blocks = (FrequencyBlock(dim, length, settings) for _ in range(settings.layers))
        self.blocks: Sequence[FrequencyBlock] = nn.ModuleList(blocks)  # type: ignore[assignment]
        layers, share = settings.layers, 1.0 if settings.published else settings.band
        bands = [[ramp(block, layers, share, n) for n in range(length + 1)] for block in range(layers)]
        self.register_buffer("bands", torch.tensor(bands), persistent=False)  # (layers, length + 1, 2)
        init_normal(self)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        x, lengths, band = self._before_last(embedded, batch)
        states: Tensor = self.blocks[-1](x, lengths, band)
        return states[:, : embedded.shape[1]]

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """See `Encoder.latest`: the last block sums up and feeds forward there alone."""
        x, lengths, band = self._before_last(embedded, batch)
        return self.blocks[-1].latest(x, lengths, band, batch.last)

    def fast(self, arrays: Arrays) -> FastEncoder | None:
        """See `Encoder.fast`; not of the published variant."""
        if self.padded_to:
            return None
        positions, norm = arrays.constant(self.positions.weight), arrays.norm(self.norm)
        pairs = zip(self.blocks, self.bands, strict=True)
        *blocks, final = (block.fast_filtered(arrays, bands) for block, bands in pairs)

        def states(x: Array, times: Array, last: bool) -> Array:
            x = norm(x + arrays.take(positions, arrays.range(0, arrays.count(x))))
            for block in blocks:
                x = block(x, 0)
            return final(x, -1 if last else 0)

        return states

    def _before_last(self, embedded: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Fourier]:
        """What the last block takes: states (B, L, d), the lengths of the periods (B,), and its band."""
        lengths = batch.lengths
        if self.padded_to:
            lengths = torch.full_like(lengths, self.padded_to)
            embedded = F.pad(embedded, (0, 0, 0, self.padded_to - embedded.shape[1]))
        L = embedded.shape[1]
        x: Tensor = self.dropout(self.norm(embedded + self.positions(torch.arange(L, device=embedded.device))))
        for block, bands in zip(self.blocks[:-1], self.bands[:-1], strict=True):
            x = block(x, lengths, fourier(lengths, L, bands, x.dtype))
        return x, lengths, fourier(lengths, L, self.bands[-1], x.dtype)
