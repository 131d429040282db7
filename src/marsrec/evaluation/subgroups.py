"""Ranks per user: kept for later analysis, and averaged by the length of the history."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.atomic import atomic_file
from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.metrics import KS, metrics

SPARSE_BUCKETS = (1, 6, 16, 50)
"""Shortest history of each bucket for beauty, sports, games and yelp: 1-5, 6-15, 16-49, >=50."""

DENSE_BUCKETS = (1, 31, 91, 201)
"""Shortest history of each bucket for ml-1m: 1-30, 31-90, 91-200, >=201."""


def by_history_length(
    ranks: Tensor | NDArray[np.float64],
    lengths: Tensor | NDArray[np.int64],
    buckets: Sequence[int] = SPARSE_BUCKETS,
    ks: Sequence[int] = KS,
) -> pl.DataFrame:
    """Metrics for users with short and long histories (the paper's "Subgroup Analysis").

    Parameters
    ----------
    ranks : Tensor (N,) or array (N,)
        Rank of each user's held-out item.
    lengths : Tensor (N,) or array (N,)
        How many events each user's item was predicted from.
    buckets : sequence of int
        The shortest history of each bucket, ascending; the last bucket has no upper end.
    ks : sequence of int
        Where the list is cut.

    Returns
    -------
    DataFrame
        A row per bucket: `bucket`, `users`, and the metrics, which are null where there are no users.

    Examples
    --------
    >>> ranks, lengths = torch.tensor([1.0, 20.0, 2.0]), torch.tensor([3, 5, 80])
    >>> by_history_length(ranks, lengths, ks=(10,)).select("bucket", "users", "HR@10").rows()
    [('1-5', 2, 0.5), ('6-15', 0, None), ('16-49', 0, None), ('>=50', 1, 1.0)]
    """
    ranks, lengths = torch.as_tensor(ranks), torch.as_tensor(lengths)
    if ranks.shape != lengths.shape:
        raise DataError(f"by_history_length: {len(ranks)} ranks but {len(lengths)} lengths; each user needs both")
    labels, bucket = history_buckets(lengths, buckets)
    groups = [ranks[bucket == index] for index in range(len(buckets))]
    nothing = dict.fromkeys(metrics(torch.ones(1), ks))
    return pl.DataFrame(
        [
            {"bucket": label, "users": len(group), **(metrics(group, ks) if len(group) else nothing)}
            for label, group in zip(labels, groups, strict=True)
        ],
        schema={"bucket": pl.String, "users": pl.Int64, **dict.fromkeys(nothing, pl.Float64)},
    )


def history_buckets(
    lengths: Tensor | NDArray[np.int64], buckets: Sequence[int] = SPARSE_BUCKETS
) -> tuple[list[str], Tensor]:
    """Names of the buckets, and the number of the bucket that each history belongs to.

    Examples
    --------
    >>> history_buckets(torch.tensor([3, 80, 6]))
    (['1-5', '6-15', '16-49', '>=50'], tensor([0, 3, 1]))
    """
    lengths = torch.as_tensor(lengths)
    if not buckets or any(low >= high for low, high in pairwise(buckets)):
        raise SettingsError(f"history lengths: buckets={tuple(buckets)}; give ascending shortest lengths")
    short = lengths < buckets[0]
    if short.any():
        row = int(short.nonzero()[0])
        raise DataError(
            f"history lengths: a history of {int(lengths[row])} events in row {row}, but the first bucket starts "
            f"at {buckets[0]}; start the buckets lower"
        )
    labels = [f"{low}-{high - 1}" if high - 1 > low else str(low) for low, high in pairwise(buckets)]
    return [*labels, f">={buckets[-1]}"], torch.bucketize(lengths, torch.tensor(buckets), right=True) - 1


def write_ranks(
    path: Path,
    users: pl.Series,
    targets: pl.Series,
    lengths: Tensor | NDArray[np.int64],
    ranks: Tensor | NDArray[np.float64],
) -> None:
    """Write a row per user to parquet: user, target, history_length, rank.

    Parameters
    ----------
    path : Path
        The file to write or replace.
    users, targets : Series (N,)
        Raw ids of the users and of their held-out items.
    lengths : Tensor (N,) or array (N,)
        How many events each user's item was predicted from.
    ranks : Tensor (N,) or array (N,)
        Rank of each user's held-out item.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ranks.parquet"
    >>> write_ranks(path, pl.Series(["ann"]), pl.Series(["tea"]), torch.tensor([7]), torch.tensor([1.5]))
    >>> pl.read_parquet(path).rows(named=True)
    [{'user': 'ann', 'target': 'tea', 'history_length': 7, 'rank': 1.5}]
    """
    columns = {
        "user": users,
        "target": targets,
        "history_length": pl.Series(torch.as_tensor(lengths).numpy(force=True)),
        "rank": pl.Series(torch.as_tensor(ranks).numpy(force=True)),
    }
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(f"{path}: columns of unequal length {sizes}; give one value per user")
    with atomic_file(path) as temporary:
        pl.DataFrame(columns).write_parquet(temporary)
