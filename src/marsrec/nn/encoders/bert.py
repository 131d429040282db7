"""BERT4Rec's encoder: self-attention that looks both ways over events and masked slots (Sun et al., 2019).

Shape letters: B rows, L events, S slots, d width of the model, H attention heads.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder
from marsrec.nn.encoders.base import NORM_EPS, SlotEncoder, init_normal
from marsrec.nn.encoders.transformer import AttentionBlock, AttentionSettings
from marsrec.nn.kernels.attention import attention
from marsrec.nn.kernels.dropout import Dropout


class BertSettings(AttentionSettings):
    """Bidirectional self-attention: what belongs into an empty slot follows from all the others."""

    trained_by = "masked items"

    name: Literal["bert"] = "bert"
    published: bool = False
    """Recommend as the published code does: without each history's oldest event, and with positions shifted by one."""

    def build(self, dim: int, length: int) -> "Bert":
        """Make the encoder."""
        return Bert(dim, length, self)


class Block(AttentionBlock):
    """Self-attention that looks both ways."""

    def forward(self, x: Tensor, bias: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        """(B, S, d) -> (B, S, d); the bias (B, 1, 1, S) of the slots is -inf where nothing is to be seen.

        With (B, S) `where`, the states (N, d) where it holds, row by row.
        """
        mixed = attention(*self.split(self.qkv(x)), bias, self.drop).transpose(1, 2).flatten(2)
        return self.after(x, mixed, where)


class Bert(SlotEncoder):
    """Item or mask plus position, norm, dropout, then blocks that see all slots of a row."""

    causal = False

    def __init__(self, dim: int, length: int, settings: BertSettings) -> None:
        super().__init__(dim, length)
        self.published = settings.published
        self.mask = nn.Parameter(torch.empty(dim).normal_(std=0.02))
        """What stands in a masked slot."""
        self.positions = nn.Embedding(length + 1, dim)  # `length` events and the slot after them
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = Dropout(settings.dropout)
        self.blocks = nn.ModuleList(Block(dim, settings) for _ in range(settings.layers))
        init_normal(self)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, d): the state at the latest event is that of the masked slot after it."""
        states = self.slots(*self._appended(embedded, batch))
        return states if self.published else states[:, 1:]

    def latest(self, embedded: Tensor, batch: Batch) -> Tensor:
        """See `Encoder.latest`: the last block feeds forward there alone."""
        slots, lengths = self._appended(embedded, batch)
        return self.slots(slots, lengths, torch.arange(slots.shape[1], device=slots.device) == lengths[:, None] - 1)

    def fast(self, arrays: Arrays) -> FastEncoder | None:
        """See `Encoder.fast`; not of the published variant."""
        if self.published:
            return None
        positions, norm = arrays.constant(self.positions.weight), arrays.norm(self.norm)
        mask = arrays.constant(self.mask[None])
        *blocks, final = (block.fast(arrays, causal=False) for block in self.blocks)  # type: ignore[operator]

        def states(x: Array, times: Array, last: bool) -> Array:
            x = arrays.concat([x, mask], 0)
            x = norm(x + arrays.take(positions, arrays.range(0, arrays.count(x))))
            for block in blocks:
                x = block(x, 0)
            return final(x, -1 if last else 1)

        return states

    def _appended(self, embedded: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Slots with a mask after the latest event, and how many of each row count."""
        slot = torch.arange(embedded.shape[1] + 1, device=embedded.device)
        slots = self.masked(F.pad(embedded, (0, 0, 0, 1)), slot == batch.lengths[:, None])  # (B, L + 1, d)
        return (slots[:, 1:], batch.lengths) if self.published else (slots, batch.lengths + 1)

    def masked(self, embedded: Tensor, masked: Tensor) -> Tensor:
        """See `SlotEncoder.masked`."""
        return torch.where(masked[..., None], self.mask, embedded)

    def slots(self, embedded: Tensor, lengths: Tensor, where: Tensor | None = None) -> Tensor:
        """See `SlotEncoder.slots`: the last block feeds forward there alone."""
        S = embedded.shape[1]
        padding = torch.arange(S, device=embedded.device) >= lengths[:, None]  # (B, S)
        x: Tensor = self.dropout(self.norm(embedded + self.positions.weight[:S]))
        bias = x.new_zeros(padding.shape).masked_fill_(padding, -torch.inf)[:, None, None]
        for block in self.blocks[:-1]:
            x = block(x, bias)
        states: Tensor = self.blocks[-1](x, bias, where)
        return states
