"""The next item, and agreement between views of a history: FEARec (Du et al., 2023), after DuoRec (Qiu et al., 2022).

Shape letters: B rows, L positions, d width.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.kernels.linear_cross_entropy import linear_cross_entropy
from marsrec.nn.kernels.numeric import widened
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import Losses, ObjectiveSettings, Softmax
from marsrec.nn.objectives.next_item import NextItemSettings


class ContrastSettings(ObjectiveSettings):
    """The item that follows; other views of a history are to look alike, as vectors and as spectra.

    One view is the history with other dropout, the other a history with the same target. Where no such histories come
    with the batch, the views are the history as it is and with other dropout.
    """

    needs_twins = True

    name: Literal["next item + contrast"] = "next item + contrast"
    weight: float = Field(0.1, ge=0)
    """Weight of the contrast: find a user vector's other view among all the batch's, by softmax of similarities."""
    temperature: float = Field(1.0, gt=0)
    """By which similarities are divided."""
    similarity: Literal["dot", "cosine"] = "dot"
    """What makes two user vectors alike."""
    same_target_negatives: bool = True
    """Whether other histories that happen to have the same target count as different, as in the published code."""
    frequency_weight: float = Field(0.1, ge=0)
    """Weight of the mean distance between the spectra of the two views' user vectors. As in the authors' code they are
    taken over channels, which have no order; the command that they released for Beauty leaves this loss off."""

    def losses(self, model: SequenceModel, batch: Batch, softmax: Softmax | None = None) -> Losses:
        """See `ObjectiveSettings.losses`: cross-entropy, contrast, distance of spectra, and what the readout adds.

        A model that is not causal encodes the batch and its views in one pass, and its readout adds for all of them.
        """
        if not self.weight and not self.frequency_weight:
            return NextItemSettings().losses(model, batch, softmax)
        twins = [] if batch.twins is None else [batch.twins]
        if model.causal:
            output = model(batch, at_targets=True)
            users = output.users
            one, other = model(Batch.stack(batch, *(twins or [batch]))).users.chunk(2)
        else:
            output = model(Batch.stack(batch, batch, *twins))
            users, one, *others = output.users.chunk(2 + len(twins))
            other = others[0] if others else users
        cross_entropy = (softmax or Softmax())(model, users, batch.targets[batch.targets > 0])
        losses = {"cross_entropy": cross_entropy, **output.losses}
        goals = None if self.same_target_negatives else batch.targets.gather(1, batch.last[:, None])[:, 0]
        losses["contrast"] = self.weight * self._contrast(one, other, goals)
        (difference,) = widened(one - other)
        losses["frequency"] = self.frequency_weight * torch.fft.rfft(difference, norm="ortho").abs().mean()
        return losses

    def _contrast(self, one: Tensor, other: Tensor, goals: Tensor | None) -> Tensor:
        """InfoNCE, both ways: each view (B, d) among all 2B, of which it may not choose itself."""
        views = torch.cat([one, other])  # (2B, d)
        if self.similarity == "cosine":
            views = F.normalize(views, dim=-1)
        place = torch.arange(len(views), device=views.device)
        partner = place.roll(len(one))
        if goals is None:
            return linear_cross_entropy(views / self.temperature, views, partner, left_out=place)
        goals = goals.repeat(2)
        left_out = (goals[:, None] == goals) & (partner[:, None] != place)
        return F.cross_entropy((views / self.temperature @ views.T).masked_fill(left_out, -torch.inf), partner)
