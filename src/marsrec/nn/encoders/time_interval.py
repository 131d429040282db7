"""TiSASRec's encoder: self-attention that knows the time intervals between events (Li, Wang and McAuley, 2020).

    score_ij = q_i · (k_j + pK_j + rK[r_ij]) / sqrt(d/H),    out_i = Σ_j softmax(score)_ij (v_j + pV_j + rV[r_ij])

with tables pK, pV of positions and rK, rV of time intervals, shared by all layers.

Shape letters: B rows, L positions, d width of the model, H heads.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder
from marsrec.nn.encoders.base import NORM_EPS, Encoder, init_normal
from marsrec.nn.encoders.transformer import AttentionBlock, AttentionSettings
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.kernels.interval_attention import interval_attention

NEVER = torch.iinfo(torch.int64).max

Scale = Literal["user", "raw"]


class TimeIntervalSettings(AttentionSettings):
    """Causal self-attention on items, positions and the time between each two events."""

    name: Literal["time-interval"] = "time-interval"
    span: int = Field(256, ge=1)
    """The largest interval that is distinguished; longer ones count as this."""
    scale: Scale = "user"
    """What an interval of 1 is: "user" is the shortest time between two successive events of the user so far, as the
    authors mean it; "raw" is the unit of the times, mostly a second, as in a published port, where nearly all intervals
    count as `span`."""

    def build(self, dim: int, length: int) -> "TimeInterval":
        """Make the encoder."""
        return TimeInterval(dim, length, self)


def time_intervals(times: Tensor, span: int, scale: Scale = "user") -> Tensor:
    """Intervals from each event to the ones before it, in whole multiples of the user's shortest gap up to then.

    The gap is a running minimum over neighbours that differ in time, so that a query sees no later event; at the end of
    a history it is the shortest gap of the whole. Before the first one all times are equal and all intervals 0.

    Parameters
    ----------
    times : Tensor (B, L)
        Integer times of the events, oldest first.
    span : int
        Longer intervals become this.
    scale : {"user", "raw"}
        "raw" takes the times as they are.

    Returns
    -------
    Tensor (B, L, L)
        Interval of query i and key j, rounded to nearest and half up; 0 in the future.

    Examples
    --------
    >>> time_intervals(torch.tensor([[0, 60, 90, 1000]]), span=10)[0]
    tensor([[ 0,  0,  0,  0],
            [ 1,  0,  0,  0],
            [ 3,  1,  0,  0],
            [10, 10, 10,  0]], dtype=torch.int32)
    """
    elapsed = times[:, :, None] - times[:, None]
    if scale == "user":
        gaps = times.diff(dim=1, prepend=times[:, :1])
        shortest = torch.where(gaps > 0, gaps, NEVER).cummin(dim=1).values[:, :, None]
        elapsed = (elapsed + shortest // 2).div(shortest, rounding_mode="floor")  # exact, however large the times
    return elapsed.clamp(0, span).to(torch.int32)


class Known(NamedTuple):
    """What all blocks know of a batch, for keys and for values."""

    positions: tuple[Tensor, Tensor]
    """(B, L, d)."""
    intervals: Tensor
    """(B, L, L), see `time_intervals`."""
    tables: tuple[Tensor, Tensor]
    """(H, span + 1, d/H), a row for each interval."""


class Block(AttentionBlock):
    """Causal self-attention that knows positions and intervals."""

    def forward(self, x: Tensor, known: Known, where: Tensor | None = None) -> Tensor:
        """(B, L, d) -> (B, L, d), or (N, d) at the positions `where`."""
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        qkv = torch.cat([query, key + known.positions[0], value + known.positions[1]], dim=-1)
        mixed = interval_attention(*self.split(qkv), known.intervals, *known.tables, self.drop)
        return self.after(x, mixed.transpose(1, 2).flatten(2), where)

    def fast_known(self, arrays: Arrays) -> Callable[[Array, Array, Array, tuple[Array, ...], int], Array]:
        """The same for one history: events, what is added to keys and values, intervals, tables, first query."""
        queries, keys, values = self.projections(arrays)
        after = self.fast_after(arrays)

        def attend(
            x: Array, positions: tuple[Array, ...], between: Array, tables: tuple[Array, ...], first: int
        ) -> Array:
            asked, between = arrays.rows(x, first), arrays.rows(between, first)
            key, value = keys(x) + positions[0], values(x) + positions[1]
            mixed = arrays.interval_attention(queries(asked), key, value, between, tables[0], tables[1], self.heads)
            return after(asked, mixed)

        return attend


class TimeInterval(Encoder):
    """Norm, dropout, then causal blocks that add positions and intervals to keys and values, and none to the input."""

    causal = True
    sees_times = True

    def __init__(self, dim: int, length: int, settings: TimeIntervalSettings) -> None:
        super().__init__(dim)
        self.span, self.scale, self.heads = settings.span, settings.scale, settings.attention_heads
        self.position_keys, self.position_values = nn.Embedding(length, dim), nn.Embedding(length, dim)
        self.interval_keys, self.interval_values = (nn.Embedding(settings.span + 1, dim) for _ in range(2))
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(dim, settings) for _ in range(settings.layers))
        init_normal(self)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d). Padding on the right needs no mask."""
        states: Tensor = self.blocks[-1](*self._before_last(embedded, batch))
        return states

    def at(self, embedded: Tensor, batch: Batch, where: Tensor) -> Tensor:
        """See `Encoder.at`: the last block feeds forward there alone."""
        states: Tensor = self.blocks[-1](*self._before_last(embedded, batch), where)
        return states

    def fast(self, arrays: Arrays) -> FastEncoder:
        """See `Encoder.fast`."""
        norm = arrays.norm(self.norm)
        positions = [arrays.constant(table.weight) for table in (self.position_keys, self.position_values)]
        tables = tuple(arrays.constant(table.weight) for table in (self.interval_keys, self.interval_values))
        *blocks, final = (block.fast_known(arrays) for block in self.blocks)  # type: ignore[operator]

        def states(x: Array, times: Array, last: bool) -> Array:
            place = arrays.range(0, arrays.count(x))
            known = tuple(arrays.take(table, place) for table in positions)
            between = arrays.intervals(times, self.span, self.scale == "user")
            x = norm(x)
            for block in blocks:
                x = block(x, known, between, tables, 0)
            return final(x, known, between, tables, -1 if last else 0)

        return states

    def _before_last(self, embedded: Tensor, batch: Batch) -> tuple[Tensor, Known]:
        """What the last block takes."""
        B, L, _ = embedded.shape
        keys, values = (table.weight[:L].expand(B, -1, -1) for table in (self.position_keys, self.position_values))
        positions = self.dropout(keys), self.dropout(values)
        # Dropped as tables: a mask for each pair would need as many numbers as the tensor that nobody wants to hold.
        tables = self._table(self.interval_keys), self._table(self.interval_values)
        known = Known(positions, time_intervals(batch.times, self.span, self.scale), tables)
        x: Tensor = self.dropout(self.norm(embedded))
        for block in self.blocks[:-1]:
            x = block(x, known)
        return x, known

    def _table(self, table: nn.Embedding) -> Tensor:
        """(span + 1, d) -> (H, span + 1, d/H)."""
        dropped: Tensor = self.dropout(table.weight)
        return dropped.view(len(dropped), self.heads, -1).transpose(0, 1)
