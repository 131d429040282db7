"""Batches: right-padded rows of similar length with a fixed number of targets.

A row is a piece of one user's history: the events `start:end` are the input, and the event after each of them is what
is predicted there, from `first_target` on. Two ways cover the same (past, next item) pairs:

- *windows*: long rows in which every position has a target, for causal encoders;
- *prefixes*: a row per target, with one target at its end, for encoders that look both ways.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from marsrec.data.histories import Histories
from marsrec.data.splits import Split, Targets

Rows = NDArray[np.int64]
"""Rows as an (n, 3) array of start, end and first_target."""


@dataclass(frozen=True)
class Batch:
    """Rows of a batch, right-padded: position 0 is the oldest event.

    Shapes: B rows, L positions.
    """

    items: Tensor
    """(B, L) item codes, 0 is padding."""
    times: Tensor
    """(B, L) times of the events; padding repeats the row's last time."""
    lengths: Tensor
    """(B,) number of events."""
    targets: Tensor
    """(B, L) the next item's code where it is to be predicted, else 0."""
    target_times: Tensor
    """(B, L) the time of the next event, which is the moment of the request there."""

    twins: "Batch | None" = None
    """For objectives that compare histories: for each row another one with the same target, as far as there is one."""

    def to(self, device: torch.device | str) -> "Batch":
        """Move all of it."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return Batch(**{name: part.to(device) for name, part in parts.items() if part is not None})

    def __getitem__(self, rows: slice | Tensor) -> "Batch":
        """Some of the rows, no wider than the longest of them."""
        lengths = self.lengths[rows]
        longest = int(lengths.max())
        columns = (self.items, self.times, self.targets, self.target_times)
        items, times, targets, target_times = (column[rows, :longest] for column in columns)
        twins = None if self.twins is None else self.twins[rows]
        return Batch(items, times, lengths, targets, target_times, twins)

    @classmethod
    def stack(cls, *batches: "Batch") -> "Batch":
        """The rows of all batches, padded to the longest; twins are left out."""
        longest = max(batch.items.shape[1] for batch in batches)

        def codes(columns: list[Tensor]) -> Tensor:
            return torch.cat([F.pad(column, (0, longest - column.shape[1])) for column in columns])

        def times(columns: list[Tensor]) -> Tensor:
            place = torch.arange(longest, device=columns[0].device)
            return torch.cat([column[:, place.clamp(max=column.shape[1] - 1)] for column in columns])

        return cls(
            items=codes([batch.items for batch in batches]),
            times=times([batch.times for batch in batches]),
            lengths=torch.cat([batch.lengths for batch in batches]),
            targets=codes([batch.targets for batch in batches]),
            target_times=times([batch.target_times for batch in batches]),
        )

    @property
    def last(self) -> Tensor:
        """(B,) index of each row's latest event."""
        return self.lengths - 1

    def at_last(self, states: Tensor) -> Tensor:
        """(B, L, d) -> (B, d), what stands at each row's latest event."""
        return states.gather(1, self.last[:, None, None].expand(-1, 1, states.shape[-1]))[:, 0]

    @property
    def is_last(self) -> Tensor:
        """(B, L) whether a position is its row's latest event."""
        return torch.zeros_like(self.items, dtype=torch.bool).scatter_(1, self.last[:, None], True)

    @property
    def inside(self) -> Tensor:
        """(B, L) whether a position is an event and not padding."""
        return torch.arange(self.items.shape[1], device=self.items.device) < self.lengths[:, None]


def windows(split: Split, length: int, stride: int, generator: np.random.Generator) -> Rows:
    """Rows over the training events in which each event but a user's first is a target exactly once.

    A history with at most `length` + 1 events is one row. A longer one is cut into rows of `length` inputs that
    overlap: each row after the first has targets only at its last `stride` positions, so that all of them look back on
    more than `length - stride` events. The cuts fall elsewhere each time, for the sake of the position embeddings.
    """
    starts = np.asarray(split.histories.offsets[:-1])
    inputs = split.train_ends - starts - 1  # number of (past, next) pairs of each user
    trained = np.flatnonzero(inputs > 0)
    starts, inputs = starts[trained], inputs[trained]
    is_long = inputs > length
    first = np.where(is_long, length - generator.integers(0, stride, size=len(inputs)), inputs)
    pieces = 1 + np.maximum(0, -(-(inputs - first) // stride))
    row = np.repeat(np.arange(len(inputs)), pieces)
    piece = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    covered = np.where(piece == 0, 0, first[row] + (piece - 1) * stride)  # pairs that earlier pieces have trained
    until = np.minimum(first[row] + piece * stride, inputs[row])
    start, end = starts[row] + np.maximum(0, until - length), starts[row] + until
    return np.stack([start, end, starts[row] + covered + 1], axis=1)


def prefixes(split: Split, length: int) -> Rows:
    """One row per training pair: the latest `length` events before a target, and the target alone."""
    histories = split.histories
    begin = np.repeat(histories.offsets[:-1], histories.lengths)
    position = np.arange(len(histories))
    target = position[(position > begin) & (position < np.repeat(split.train_ends, histories.lengths))]
    return _before(begin[target], target, length)


def contexts(histories: Histories, targets: Targets, length: int) -> Rows:
    """One row per target: the latest `length` events before it."""
    return _before(histories.offsets[targets.users], targets.positions, length)


def same_target(histories: Histories, rows: Rows, generator: np.random.Generator) -> Rows:
    """For each row with one target another one drawn among those with the same target, or itself if there is none."""
    goals = histories.items[rows[:, 2]]
    order = np.argsort(goals, kind="stable")
    _, first, counts = np.unique(goals[order], return_index=True, return_counts=True)
    begin, count = np.repeat(first, counts), np.repeat(counts, counts)
    place = np.arange(len(rows)) - begin  # of each row among those with its target
    step = 1 + (generator.random(len(rows)) * (count - 1)).astype(np.int64)
    twins = np.empty_like(order)
    twins[order] = order[begin + (place + step) % count]
    return rows[twins]


def _before(begin: NDArray[np.int64], target: NDArray[np.int64], length: int) -> Rows:
    return np.stack([np.maximum(begin, target - length), target, target], axis=1)


def gather(histories: Histories, rows: Rows) -> Batch:
    """Copy rows out of the histories into a padded batch."""
    start, end, first_target = (column[:, None] for column in rows.T)
    index = start + np.arange(int((end - start).max()))
    inside = index < end
    index = np.minimum(index, end - 1)
    following = np.minimum(index + 1, len(histories) - 1)
    is_target = inside & (index + 1 >= first_target)
    return Batch(
        items=torch.from_numpy(np.where(inside, histories.items[index], 0).astype(np.int64)),
        times=torch.from_numpy(histories.times[index]),
        lengths=torch.from_numpy((end - start)[:, 0]),
        targets=torch.from_numpy(np.where(is_target, histories.items[following], 0).astype(np.int64)),
        target_times=torch.from_numpy(histories.times[following]),
    )


class Batches(Dataset[Batch]):
    """Rows grouped by length into batches, each built when it is indexed.

    Parameters
    ----------
    histories : Histories
        Where the events are.
    rows : Rows
        What to batch.
    budget : int
        Number of targets (`count="targets"`) or padded positions (`count="positions"`) per batch.
    generator : np.random.Generator, optional
        Shuffles: which rows of similar length share a batch, and the order of the batches. Without it rows stand in
        order of length.
    pool : int
        With a generator: rows are drawn at random into pools of this many batches and sorted by length within a pool.
        A larger pool pads less, a smaller one mixes short and long histories better.
    twins : Rows, optional
        For each row another one that comes along in `Batch.twins`; see `same_target`.
    """

    def __init__(
        self,
        histories: Histories,
        rows: Rows,
        budget: int,
        *,
        count: Literal["targets", "positions"] = "targets",
        generator: np.random.Generator | None = None,
        pool: int = 16,
        twins: Rows | None = None,
    ) -> None:
        lengths = rows[:, 1] - rows[:, 0]
        cost = rows[:, 1] + 1 - rows[:, 2] if count == "targets" else lengths
        order = np.arange(len(rows))
        drawn = np.zeros(len(rows), dtype=np.int64)
        if generator is not None:
            order = generator.permutation(len(rows))
            drawn = (np.cumsum(cost[order]) - 1) // (budget * pool)
        order = order[np.lexsort((lengths[order], drawn))]
        filled = (np.cumsum(cost[order]) - 1) // budget
        self.batches = np.split(order, np.flatnonzero(np.diff(filled)) + 1) if len(order) else []
        if generator is not None:
            self.batches = [self.batches[i] for i in generator.permutation(len(self.batches))]
        self.histories, self.rows, self.twins = histories, rows, twins

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(index)
        chosen = self.batches[index]
        batch = gather(self.histories, self.rows[chosen])
        if self.twins is None:
            return batch
        return replace(batch, twins=gather(self.histories, self.twins[chosen]))
