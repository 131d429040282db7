"""BERT4Rec's encoder: self-attention that looks both ways over events and masked slots (Sun et al., 2019).

Shape letters: B rows, L events, S slots, d width of the model, H attention heads.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.encoders.base import Encoder, init_normal
from marsrec.nn.encoders.transformer import NORM_EPS, AttentionBlock, AttentionSettings
from marsrec.nn.kernels.dropout import Dropout, dropout


class BertSettings(AttentionSettings):
    """Bidirectional self-attention: what belongs into an empty slot follows from all the others."""

    name: Literal["bert"] = "bert"
    published: bool = False
    """Recommend as the published code does: without each history's oldest event, and with positions shifted by one."""

    def build(self, dim: int, length: int) -> "Bert":
        """Make the encoder."""
        return Bert(dim, length, self)


class Block(AttentionBlock):
    """Self-attention that looks both ways."""

    def forward(self, x: Tensor, bias: Tensor | None = None, asked: Tensor | None = None) -> Tensor:
        """(B, S, d) -> (B, S, d); the bias (B, 1, 1, S) of the slots is -inf where nothing is to be seen.

        States are zero but at the slots (B, S) asked for, if any are.
        """
        mixed = attention(*self.split(self.qkv(x)), bias, self.drop).transpose(1, 2).flatten(2)
        if asked is None:
            return self.after(x, mixed)
        return torch.zeros_like(x).index_put((asked,), self.after(x[asked], mixed[asked]))


def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, drop: float) -> Tensor:
    """(B, H, S, d/H) each -> (B, H, S, d/H): torch's attention, and a cheaper way to it on the CPU with dropout."""
    if not drop or not query.is_cpu:
        bias = None if bias is None else bias.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=drop)
    logits = (query / math.sqrt(query.shape[-1])) @ key.mT  # (B, H, S, S)
    weights = (logits if bias is None else logits + bias).softmax(-1)
    return dropout(weights, drop) @ value


class Bert(Encoder):
    """Item or mask plus position, norm, dropout, then blocks that see all slots of a row."""

    causal = False

    def __init__(self, dim: int, length: int, settings: BertSettings) -> None:
        super().__init__(dim)
        self.published = settings.published
        self.mask = nn.Parameter(torch.empty(dim).normal_(std=0.02))
        """What stands in a slot whose item is to be told."""
        self.positions = nn.Embedding(length + 1, dim)  # `length` events and the slot after them
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(dim, settings) for _ in range(settings.layers))
        init_normal(self)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d): the state at the latest event is that of the masked slot after it."""
        return self._appended(embedded, batch)

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """See `Encoder.latest`: the last block feeds forward there alone."""
        place = torch.arange(embedded.shape[1], device=embedded.device)
        return batch.at_last(self._appended(embedded, batch, place == batch.last[:, None]))

    def _appended(self, embedded: Tensor, batch: Batch, asked: Tensor | None = None) -> Tensor:
        """States (B, L, d) of all slots but the first, or of those asked for, with a mask after the latest event."""
        slot = torch.arange(embedded.shape[1] + 1, device=embedded.device)
        slots = self.masked(F.pad(embedded, (0, 0, 0, 1)), slot == batch.lengths[:, None])  # (B, L + 1, d)
        if self.published:
            return self.slots(slots[:, 1:], batch.lengths, asked)
        return self.slots(slots, batch.lengths + 1, None if asked is None else F.pad(asked, (1, 0)))[:, 1:]

    def masked(self, embedded: Tensor, masked: Tensor) -> Tensor:
        """(B, S, d) embedded items with the mask in place of those at which (B, S) `masked` holds."""
        return torch.where(masked[..., None], self.mask, embedded)

    def slots(self, embedded: Tensor, lengths: Tensor, asked: Tensor | None = None) -> Tensor:
        """(B, S, d) embedded items and masks, of which each row's first (B,) `lengths` count -> (B, S, d) states.

        Where slots (B, S) are asked for, the states of the others are zero, which saves their feed-forward.
        """
        S = embedded.shape[1]
        padding = torch.arange(S, device=embedded.device) >= lengths[:, None]  # (B, S)
        x: Tensor = self.dropout(self.norm(embedded + self.positions.weight[:S]))
        bias = x.new_zeros(padding.shape).masked_fill_(padding, -torch.inf)[:, None, None]
        for block in self.blocks[:-1]:
            x = block(x, bias)
        states: Tensor = self.blocks[-1](x, bias, asked)
        return states
