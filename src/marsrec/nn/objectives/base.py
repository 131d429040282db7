"""What all objectives share: the cross-entropy of items among the whole catalog."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.kernels.linear_cross_entropy import NegativeSampler, linear_cross_entropy, sampled_softmax
from marsrec.nn.model import SequenceModel
from marsrec.nn.parts import Part

Losses = dict[str, Tensor]
"""Losses by name, already weighted; their sum is what is minimised."""


class ObjectiveSettings(Part, ABC):
    """What a model is trained to predict; a subclass with a name can be chosen."""

    kind = "objective"
    reads_out: ClassVar[bool] = True
    """Whether it trains user vectors, and so the readout; else states."""
    needs_twins: ClassVar[bool] = False
    """Whether batches come with other histories that have the same targets."""

    def trains(self, encoder: EncoderSettings) -> bool:
        """Whether it trains this encoder."""
        return encoder.trained_by in (None, self.name)

    @abstractmethod
    def losses(self, model: SequenceModel, batch: Batch, softmax: "Softmax | None" = None) -> Losses:
        """Losses of a batch: windows for causal models, prefixes for others."""


@dataclass(frozen=True)
class Softmax:
    """Mean cross-entropy of items that user vectors should score highest.

    With a sampler the softmax is over `negatives` items that all targets share, instead of over all items.
    """

    sampler: NegativeSampler | None = None
    negatives: int = 0

    def __call__(self, model: SequenceModel, users: Tensor, targets: Tensor) -> Tensor:
        """(N, d) user vectors and the (N,) codes of their items -> the mean over them."""
        targets = targets - 1  # padding is not an item: the catalog counts from 0 here
        users, items, bias = model.scorer(users, model.items.weight)
        if bias is not None:
            bias = bias[1:]
        if self.sampler is None:
            return linear_cross_entropy(users, items[1:], targets, bias=bias)
        drawn, log_q = (part.to(users.device) for part in self.sampler.draw(self.negatives))
        if bias is not None:  # one more dimension, in which every user is 1
            users, items = F.pad(users, (0, 1), value=1.0), torch.cat([items, F.pad(bias, (1, 0))[:, None]], dim=1)
        return sampled_softmax(users, items[1:], targets, drawn, log_q_negatives=log_q)
