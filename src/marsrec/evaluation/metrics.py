"""HR, NDCG and MRR from the ranks of the held-out items."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.errors import DataError, SettingsError

KS = (5, 10, 20)


def metrics(ranks: Tensor | NDArray[np.float64], ks: Sequence[int] = KS) -> dict[str, float]:
    """HR, NDCG and MRR at each k, where every rank is that of a user's one relevant item.

    A rank r counts at k if r <= k. It then gives 1 to HR, 1 / log2(1 + r) to NDCG and 1 / r to MRR; otherwise 0. The
    same holds for the fractional ranks of ties: two items that share the places 10 and 11 are both at 10.5, which
    is no hit at 10.

    Parameters
    ----------
    ranks : Tensor (N,) or array (N,)
        Ranks from 1, as `target_ranks` gives them.
    ks : sequence of int
        Where the list is cut.

    Returns
    -------
    dict
        "HR@k", "NDCG@k", "MRR@k" for each k, in [0, 1].

    Examples
    --------
    >>> metrics(torch.tensor([1.0, 3.0, 12.0, 4.5]), ks=(4,))
    {'HR@4': 0.5, 'NDCG@4': 0.375, 'MRR@4': 0.333...}
    """
    ranks = torch.as_tensor(ranks, dtype=torch.float64)
    if len(ranks) == 0:
        raise DataError("metrics: there are no ranks to average; evaluate at least one user")
    wrong = ~(ranks >= 1)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise DataError(f"metrics: rank {ranks[row].item()} in row {row}; ranks count from 1")
    if any(k < 1 for k in ks):
        raise SettingsError(f"metrics: cut-offs k are at least 1; found {min(ks)}")
    values: dict[str, float] = {}
    for k in ks:
        hit = (ranks <= k).double()
        values[f"HR@{k}"] = hit.mean().item()
        values[f"NDCG@{k}"] = (hit / torch.log2(1 + ranks)).mean().item()
        values[f"MRR@{k}"] = (hit / ranks).mean().item()
    return values
