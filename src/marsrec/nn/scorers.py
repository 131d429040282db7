"""Scorers: user vectors become item scores.

Every scorer is a dot product of (possibly transformed) vectors, so that training can go through the linear
cross-entropy and serving through one matrix product. Explanations take the plain one, which is linear in the states.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from marsrec.nn.arrays.base import Array, Arrays, Map
from marsrec.nn.encoders.base import NORM_EPS, init_normal
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.parts import Part

TINY = 1e-30
"""The least square of a norm that a vector is divided by: zero stays zero."""


class ScorerSettings(Part, ABC):
    """Settings of a scorer; a subclass with a name is a scorer that can be chosen."""

    kind = "scorer"

    repeats: bool = False
    """Also score items by when and how often the user had them, which is learned from the validation targets."""

    def differences(self, usual: Self) -> list[str]:
        """See `Part.differences`."""
        return ["repeats"] * self.repeats

    @abstractmethod
    def build(self, dim: int, n_items: int) -> "Scorer":
        """Make the scorer for vectors `dim` wide."""


class Scorer(nn.Module, ABC):
    """User vectors become item scores."""

    linear: ClassVar[bool] = False
    """Whether the score is the user vector itself times an item's vector, so that it splits like the user vector."""

    @abstractmethod
    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Vectors of users and items whose dot product, plus an optional bias per item, is the score."""

    def fast(self, arrays: Arrays) -> Map | None:
        """What `forward` makes of one user vector (1, d), in the operations of `marsrec.nn.arrays`; None if nothing."""
        return None


class DotSettings(ScorerSettings):
    """Dot product with the item embedding, which is tied to the input's."""

    name: Literal["dot"] = "dot"

    def build(self, dim: int, n_items: int) -> "Dot":
        """Make the scorer."""
        return Dot()


class Dot(Scorer):
    """score = user · item."""

    linear = True

    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `Scorer.forward`."""
        return users, items, None

    def fast(self, arrays: Arrays) -> Map:
        """See `Scorer.fast`."""
        return lambda user: user


class BiasedSettings(ScorerSettings):
    """BERT4Rec's: a layer on the user vector, dot product with the item embedding, and a bias per item."""

    name: Literal["biased"] = "biased"

    def build(self, dim: int, n_items: int) -> "Biased":
        """Make the scorer."""
        return Biased(dim, n_items)


class Biased(Scorer):
    """score = norm(gelu(linear(user))) · item + bias of the item."""

    def __init__(self, dim: int, n_items: int) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim, eps=NORM_EPS))
        self.bias = nn.Parameter(torch.zeros(n_items + 1))
        init_normal(self)

    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `Scorer.forward`."""
        return self.head(users), items, self.bias

    def fast(self, arrays: Arrays) -> Map:
        """See `Scorer.fast`."""
        linear, norm = arrays.of(self.head[0]), arrays.norm(self.head[2])
        return lambda user: norm(arrays.gelu(linear(user)))


class CosineSettings(ScorerSettings):
    """CORE's: only the angle between user and item counts."""

    name: Literal["cosine"] = "cosine"
    temperature: float = Field(0.07, gt=0)
    """What cosines are divided by; scores lie within ± 1 / temperature."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on the item embedding where it is scored, in training."""

    def build(self, dim: int, n_items: int) -> "Cosine":
        """Make the scorer."""
        return Cosine(self)


class Cosine(Scorer):
    """score = cos(user, item) / temperature."""

    def __init__(self, settings: CosineSettings) -> None:
        super().__init__()
        self.temperature = settings.temperature
        self.dropout = Dropout(settings.dropout)

    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `Scorer.forward`."""
        return unit(users) / self.temperature, unit(self.dropout(items)), None

    def fast(self, arrays: Arrays) -> Map:
        """See `Scorer.fast`."""

        def turned(user: Array) -> Array:
            norm = arrays.sqrt(arrays.lower_bound(arrays.sum(user * user, 1), TINY))
            return user / norm / self.temperature

        return turned


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1, but zero stays zero, with a gradient that is neither NaN nor huge."""
    norms = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / torch.where(norms > 0, norms, 1.0)
