"""What it is worth that a user had an item before: scores of own items, on top of those of the network.

People go back to the same places, and buy and hear the same things. A network learns this from item to item; how soon
and how often anything comes again is one law for all items, which a few numbers tell better::

    score(item) = network's + W_since[events since] + W_age[log age] + w_often log(times had) + w_hour log(at this hour)

for items that the user had, with the events and the time since the latest of their visits. Each number is the weight
of a feature, and may be negative: who has just been somewhere is not going there. The weights are no parameters of the
network. A network has seen the events that it is trained on, and explains their repeats by itself; what is left to
learn shows on events that it has not seen. So they are fitted to the validation targets, when the network is trained.

Shape letters: B users, L positions, E own items of all users, F features.
"""

import math

import torch
from torch import Tensor, nn

from marsrec.data.batches import Batch

Added = tuple[Tensor, Tensor, Tensor]
"""Scores that come on top of others, per user in compressed rows: offsets (B + 1,), item codes and values (E,)."""

SINCE = 9
"""Classes of events since an item was had: 0, 1 to 2, 3 to 6, 7 to 14, and so on."""
AGES = 10
"""Classes of the time since: below 1.8 hours, 7, 22, 63 hours, and so on up to two years."""
HOURS = 8.0
"""How alike two hours of the day are: exp(-difference² / HOURS)."""
SELDOM = 0.05
"""What is added to the visits at this hour before their logarithm is taken."""


class Repeats(nn.Module):
    """Scores of the items that users had, before a fit none.

    Parameters
    ----------
    tau0 : float
        One hour, in the unit of the times that will be given.

    Examples
    --------
    >>> items, times = torch.tensor([[7, 8, 7]]), torch.tensor([[0, 3600, 7200]])
    >>> batch = Batch(items, times, torch.tensor([3]), torch.zeros_like(items), times)
    >>> repeats = Repeats(3600.0)
    >>> repeats.weights[0] = -2.0  # of what was had just now
    >>> offsets, codes, values = repeats(batch, now=times[:, -1])
    >>> codes.tolist(), values.tolist()
    ([7, 8], [-2.0, 0.0])
    """

    weights: Tensor

    def __init__(self, tau0: float) -> None:
        super().__init__()
        self.tau0 = tau0
        self.register_buffer("weights", torch.zeros(SINCE + AGES + 2))

    def forward(self, batch: Batch, now: Tensor) -> Added:
        """Score the own items of the users of a batch at the moments `now` (B,)."""
        offsets, items, features = self.features(batch, now)
        return offsets, items, features.to(self.weights) @ self.weights

    def features(self, batch: Batch, now: Tensor) -> Added:
        """Offsets (B + 1,) and codes (E,) of own items, and their features (E, F)."""
        row, place = batch.inside.nonzero(as_tuple=True)
        size = int(batch.items.max()) + 1
        own, which = torch.unique(row * size + batch.items[row, place], return_inverse=True)
        count = torch.bincount(which, minlength=len(own))
        since = batch.last[row] - place
        elapsed = (now[row] - batch.times[row, place]).clamp(min=0)
        features = torch.zeros(len(own), SINCE + AGES + 2, device=own.device)
        rows = torch.arange(len(own), device=own.device)

        def least(values: Tensor) -> Tensor:
            """Of all events with an item."""
            return values.new_zeros(len(own)).scatter_reduce(0, which, values, "amin", include_self=False)

        classes = (1 + least(since)).double().log2().floor().long().clamp(max=SINCE - 1)
        features[rows, classes] = 1
        hours = least(elapsed).double() / self.tau0
        classes = ((1 + hours).log2() / 1.5).floor().long().clamp(max=AGES - 1)
        features[rows, SINCE + classes] = 1
        features[:, -2] = count.log()
        apart = torch.remainder(elapsed, round(24 * self.tau0)).double() / self.tau0
        alike = torch.exp(-torch.minimum(apart, 24 - apart).square() / HOURS)
        features[:, -1] = (SELDOM + torch.zeros_like(hours).index_add(0, which, alike)).log() - math.log(SELDOM)
        owners = torch.bincount(own // size, minlength=len(batch.items))
        return torch.cat([owners.new_zeros(1), owners.cumsum(0)]), own % size, features
