"""Scorers: user vectors become item scores.

Every scorer is a (possibly transformed) dot product, so that training can go through the linear cross-entropy, serving
through one matrix product, and explanations through linearity.
"""

from typing import Literal

from torch import Tensor, nn

from marsrec.settings import Settings


class DotSettings(Settings):
    """Dot product with the item embedding, which is tied to the input's."""

    name: Literal["dot"] = "dot"

    def build(self, dim: int, n_items: int) -> "Dot":
        """Make the scorer."""
        return Dot()


class Dot(nn.Module):
    """score = user · item."""

    def forward(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Vectors of users and items whose dot product, plus an optional bias per item, is the score."""
        return users, items, None
