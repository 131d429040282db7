"""SASRec's encoder: learned positions and causal self-attention blocks (Kang and McAuley, 2018; RecBole's layout)."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.encoders.base import Encoder, init_normal
from marsrec.nn.kernels.attention import causal_attention
from marsrec.nn.kernels.dropout import Dropout
from marsrec.settings import Settings

NORM_EPS = 1e-12


class TransformerSettings(Settings):
    """Causal self-attention on item and position embeddings."""

    name: Literal["transformer"] = "transformer"
    layers: int = Field(2, ge=1)
    """Number of blocks."""
    attention_heads: int = Field(2, ge=1)
    """Number of attention heads; divides the model's dim."""
    inner: int = Field(256, ge=1)
    """Width of the feed-forward sub-layer."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Dropout on embeddings and sub-layer outputs."""
    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on attention weights; the same as `dropout` if not given."""

    def build(self, dim: int, length: int) -> "Transformer":
        """Make the encoder."""
        if dim % self.attention_heads:
            raise SettingsError(f"dim ({dim}) must be a multiple of encoder.attention_heads ({self.attention_heads}).")
        return Transformer(dim, length, self)


class Block(nn.Module):
    """Self-attention and feed-forward, each followed by dropout, residual and layer norm (post-norm)."""

    def __init__(self, dim: int, settings: TransformerSettings) -> None:
        super().__init__()
        self.heads = settings.attention_heads
        dropout = settings.dropout
        self.attention_dropout = dropout if settings.attention_dropout is None else settings.attention_dropout
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.attention_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.feed_forward = nn.Sequential(nn.Linear(dim, settings.inner), nn.GELU(), nn.Linear(settings.inner, dim))
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, d) -> (B, L, d)."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (B, H, L, d/H)
        dropout = self.attention_dropout if self.training else 0.0
        mixed = causal_attention(query, key, value, dropout)
        x = self.attention_norm(x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2))))
        normed: Tensor = self.norm(x + self.dropout(self.feed_forward(x)))
        return normed


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
        positions = self.positions(torch.arange(embedded.shape[1], device=embedded.device))
        x: Tensor = self.dropout(self.norm(embedded + positions))
        for block in self.blocks:
            x = block(x)
        return x
