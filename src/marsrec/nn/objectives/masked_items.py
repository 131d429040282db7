"""BERT4Rec's objective: items whose slots are masked, from all the others (Sun et al., 2019).

Shape letters: B rows, L events, S = L + 1 slots, d width of the model.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.by_length import parts_by_length
from marsrec.nn.encoders.base import EncoderSettings, SlotEncoder
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import Losses, ObjectiveSettings, Softmax


class MaskedItemsSettings(ObjectiveSettings):
    """The items behind masks, drawn anew at each step among the events and the target after them."""

    reads_out = False

    name: Literal["masked items"] = "masked items"
    mask_ratio: float = Field(0.2, ge=0, le=1)
    """Probability that a slot is masked, in batches where any slot may be."""
    last_ratio: float = Field(0.5, ge=0, le=1)
    """Share of batches in which only the targets are masked, which is the task of a recommendation. Of batches and not
    of rows: else the many masks of long histories would outweigh it."""
    published: bool = False
    """Draw masks as the published code does: among a row's events without its target, no more than `mask_ratio` times
    the padded length, the latest ones, and never the oldest event."""

    def trains(self, encoder: EncoderSettings) -> bool:
        """Encoders that are made for it."""
        return encoder.trained_by == self.name

    def losses(self, model: SequenceModel, batch: Batch, softmax: Softmax | None = None) -> Losses:
        """Losses of a batch of prefixes, with one target at the end of each row."""
        encoder = model.encoder
        if not isinstance(encoder, SlotEncoder) or not model.readout.state_alone:
            raise SettingsError(
                'objective "masked items" reads the states of masked slots, for which it takes encoder "bert" and '
                f'readout "last"; found {type(encoder).__name__} and {type(model.readout).__name__}. '
                'Other models take objective "next item".'
            )
        lengths, items = (batch.lengths, batch.items) if self.published else (batch.lengths + 1, slots(batch))
        masked = self.draw(lengths, items.shape[1])  # (B, S)
        if self.published:
            masked[:, 0] = False
            from_the_end = masked.flip(1).cumsum(1).flip(1)
            masked &= from_the_end <= int(self.mask_ratio * encoder.length)
        inside = torch.arange(items.shape[1], device=items.device) < lengths[:, None]
        events = model.embed(items.masked_fill(masked, 0)[inside])  # (N, d)
        parts, order = parts_by_length(
            lambda part, rows: encoder.slots(part, lengths[rows], masked[rows, : part.shape[1]]),
            encoder.masked(events, masked[inside]),
            lengths,
        )
        hidden = items[order][masked[order]]
        return {"cross_entropy": (softmax or Softmax())(model, torch.cat(parts), hidden)}

    def draw(self, lengths: Tensor, width: int) -> Tensor:
        """(B,) numbers of slots, the last of which is the target's -> (B, S) whether a slot is masked."""
        slot = torch.arange(width, device=lengths.device)
        masked = (torch.rand(len(lengths), width, device=lengths.device) < self.mask_ratio) & (slot < lengths[:, None])
        last_only = torch.rand((), device=lengths.device) < self.last_ratio
        if not self.published:
            last_only = last_only | ~masked.any(dim=1, keepdim=True)
        return torch.where(last_only, slot == lengths[:, None] - 1, masked)


def slots(batch: Batch) -> Tensor:
    """(B, S) codes of each row's events and of its target right after them."""
    targets = batch.targets.gather(1, batch.last[:, None])
    return F.pad(batch.items, (0, 1)).scatter(1, batch.lengths[:, None], targets)
