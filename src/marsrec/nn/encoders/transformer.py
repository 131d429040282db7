"""SASRec's encoder: learned positions and causal self-attention blocks (Kang and McAuley, 2018; RecBole's layout)."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder, Map
from marsrec.nn.encoders.base import NORM_EPS, Encoder, EncoderSettings, init_normal, picked
from marsrec.nn.kernels.attention import attention, causal_attention
from marsrec.nn.kernels.dropout import Dropout


class AttentionSettings(EncoderSettings):
    """What encoders made of attention blocks share."""

    layers: int = Field(2, ge=1, le=128)
    """Number of blocks."""
    attention_heads: int = Field(2, ge=1)
    """Number of attention heads; divides the model's dim."""
    inner: int = Field(256, ge=1)
    """Width of the feed-forward sub-layer."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout on embeddings and sub-layer outputs."""
    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on attention weights; the same as `dropout` if not given."""

    def suited_to_data(self, dense: bool) -> Mapping[str, Any]:
        """See `Part.suited_to_data`."""
        return {"dropout": 0.2 if dense else 0.5}


class TransformerSettings(AttentionSettings):
    """Causal self-attention on item and position embeddings."""

    name: Literal["transformer"] = "transformer"

    def build(self, dim: int, length: int) -> "Transformer":
        """Make the encoder."""
        return Transformer(dim, length, self)


class AttentionBlock(nn.Module):
    """What mixes events and a feed-forward, each followed by dropout, residual and layer norm (post-norm)."""

    def __init__(self, dim: int, settings: AttentionSettings) -> None:
        super().__init__()
        if dim % settings.attention_heads:
            raise SettingsError(
                f"dim ({dim}) must be a multiple of encoder.attention_heads ({settings.attention_heads})."
            )
        self.heads = settings.attention_heads
        dropout = settings.dropout
        self.attention_dropout = dropout if settings.attention_dropout is None else settings.attention_dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.feed_forward = nn.Sequential(nn.Linear(dim, settings.inner), nn.GELU(), nn.Linear(settings.inner, dim))
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(dropout)

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, L, 3d) queries, keys and values side by side -> (B, H, L, d/H) each."""
        query, key, value = (self.by_head(part) for part in qkv.chunk(3, dim=-1))
        return query, key, value

    def by_head(self, x: Tensor) -> Tensor:
        """(B, L, d) -> (B, H, L, d/H)."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    @property
    def drop(self) -> float:
        """Probability that an attention weight is dropped."""
        return self.attention_dropout if self.training else 0.0

    def after(self, x: Tensor, mixed: Tensor, where: Tensor | None = None) -> Tensor:
        """What went in and what attention made of it, both (B, L, d) -> (B, L, d), or (N, d) at positions `where`."""
        if where is not None:
            x, mixed = picked(x, where), picked(mixed, where)
        x = self.attention_norm(x + self.dropout(self.out(mixed)))
        normed: Tensor = self.norm(x + self.dropout(self.feed_forward(x)))
        return normed

    def projections(self, arrays: Arrays) -> list[Map]:
        """Queries, keys and values of a fast form."""
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        return [arrays.linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]

    def fast_after(self, arrays: Arrays) -> Callable[[Array, Array], Array]:
        """What `after` does, in a fast form."""
        out, wide, narrow = (arrays.of(layer) for layer in (self.out, self.feed_forward[0], self.feed_forward[2]))
        attention_norm, norm = arrays.norm(self.attention_norm), arrays.norm(self.norm)

        def after(x: Array, mixed: Array) -> Array:
            x = attention_norm(x + out(mixed))
            return norm(x + narrow(arrays.gelu(wide(x))))

        return after

    def fast(self, arrays: Arrays, *, causal: bool) -> Callable[[Array, int], Array]:
        """Attention of the events from one on, negative if counted from the end: (L, d) -> (Q, d)."""
        queries, keys, values = self.projections(arrays)
        after = self.fast_after(arrays)

        def attend(x: Array, first: int) -> Array:
            asked = arrays.rows(x, first)
            return after(asked, arrays.attention(queries(asked), keys(x), values(x), self.heads, causal))

        return attend


class Block(AttentionBlock):
    """Causal self-attention."""

    def forward(self, x: Tensor, where: Tensor | None = None) -> Tensor:
        """(B, L, d) -> (B, L, d), or (N, d) at the positions `where`."""
        mixed = causal_attention(*self.split(self.qkv(x)), self.drop)
        return self.after(x, mixed.transpose(1, 2).flatten(2), where)

    def latest(self, x: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, d) at the latest events: no other asks."""
        d, asked = x.shape[-1], batch.at_last(x)
        weights, biases = self.qkv.weight.split([d, 2 * d]), self.qkv.bias.split([d, 2 * d])  # type: ignore[no-untyped-call]
        query = F.linear(asked, weights[0], biases[0])[:, None]
        key, value = F.linear(x, weights[1], biases[1]).chunk(2, dim=-1)
        bias = x.new_zeros(batch.items.shape).masked_fill_(~batch.inside, -torch.inf)[:, None, None]
        query, key, value = (self.by_head(part) for part in (query, key, value))
        mixed = attention(query, key, value, bias, self.drop)  # (B, H, 1, d/H)
        return self.after(asked, mixed.flatten(1))


class Transformer(Encoder):
    """Item plus position, norm, dropout, then causal blocks. Padding on the right needs no mask."""

    causal = True

    def __init__(self, dim: int, length: int, settings: TransformerSettings) -> None:
        super().__init__(dim)
        self.positions = nn.Embedding(length, dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(dim, settings) for _ in range(settings.layers))
        init_normal(self)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        states: Tensor = self.blocks[-1](self._before_last(embedded))
        return states

    def at(self, embedded: Tensor, batch: Batch, where: Tensor) -> Tensor:
        """See `Encoder.at`: the last block feeds forward there alone."""
        states: Tensor = self.blocks[-1](self._before_last(embedded), where)
        return states

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """See `Encoder.latest`: in the last block the latest event alone looks back."""
        block = self.blocks[-1]
        assert isinstance(block, Block)
        return block.latest(self._before_last(embedded), batch)

    def fast(self, arrays: Arrays) -> FastEncoder:
        """See `Encoder.fast`."""
        positions, norm = arrays.constant(self.positions.weight), arrays.norm(self.norm)
        *blocks, final = (block.fast(arrays, causal=True) for block in self.blocks)  # type: ignore[operator]

        def states(x: Array, times: Array, last: bool) -> Array:
            x = norm(x + arrays.take(positions, arrays.range(0, arrays.count(x))))
            for block in blocks:
                x = block(x, 0)
            return final(x, -1 if last else 0)

        return states

    def _before_last(self, embedded: Tensor) -> Tensor:
        """What the last block takes."""
        positions = self.positions(torch.arange(embedded.shape[1], device=embedded.device))
        x: Tensor = self.dropout(self.norm(embedded + positions))
        for block in self.blocks[:-1]:
            x = block(x)
        return x
