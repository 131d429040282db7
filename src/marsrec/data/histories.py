"""Histories in compressed rows: every user's events in time order, one after the other in three flat arrays."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.atomic import atomic_folder, recover
from marsrec.data.log import Log
from marsrec.data.times import TimeUnit
from marsrec.errors import DataError

Ties = Literal["file", "recbole"]

FORMAT = 1

FEW = 128
"""Up to so many ids are looked up one by one, which is over before a table's engine has begun."""


@dataclass(frozen=True)
class Vocabulary:
    """Raw ids of any type and their private integer codes: code 0 is nobody (padding, unknown), ids count from 1.

    Examples
    --------
    >>> vocabulary = Vocabulary(pl.Series(["tea", "milk"]))
    >>> vocabulary.encode(["milk", "beer"])
    array([2, 0], dtype=int32)
    >>> vocabulary.decode(np.array([2, 1])).to_list()
    ['milk', 'tea']
    """

    ids: pl.Series
    titles: pl.Series | None = None
    """What people call them, where the data tell; null where one has no title."""
    categories: pl.Series | None = None
    """What kind of thing they are, where the data tell; null where one has no category."""

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _codes(self) -> dict[Any, int]:
        return {raw: code for code, raw in enumerate(self.ids.to_list(), start=1)}

    @cached_property
    def kind(self) -> type | None:
        """What ids are in Python, where they are found as they are given: text or whole numbers."""
        return str if self.ids.dtype == pl.String else int if self.ids.dtype.is_integer() else None

    @cached_property
    def _spelled(self) -> list[Any]:
        return [None, *self._codes]

    def encode(self, values: Any) -> NDArray[np.int32]:
        """Codes of raw ids; 0 for ids that are not in the vocabulary. Text that spells a number finds integer ids."""
        if isinstance(values, list) and len(values) <= FEW and all(type(value) is self.kind for value in values):
            return np.array([self._codes.get(value, 0) for value in values], dtype=np.int32)
        column = values if isinstance(values, pl.Series) else pl.Series(list(values), strict=False)
        if column.dtype.is_float():
            column = column.set(column != column.floor(), None)  # 1.9 is not user 1
        known = column.cast(self.ids.dtype, strict=False).to_list()
        return np.fromiter((self._codes.get(raw, 0) for raw in known), dtype=np.int32, count=len(known))

    def code(self, raw: Any) -> int:
        """Code of a raw id of the kind that the ids are; 0 if it is unknown."""
        return self._codes.get(raw, 0)

    def decode(self, codes: NDArray[Any]) -> pl.Series:
        """Raw ids of codes; null for code 0."""
        if len(codes) <= FEW and self.kind is not None:
            return pl.Series(self.ids.name, [self._spelled[code] for code in codes.tolist()], dtype=self.ids.dtype)
        indices = pl.Series(codes).cast(pl.Int64) - 1
        return self.ids.gather(indices.set(indices < 0, None))

    def frame(self, name: str) -> pl.DataFrame:
        """A row per id, for a file: its column is called `name`; `title` and `category` stand beside it if known."""
        beside = {"title": self.titles, "category": self.categories}
        return self.ids.rename(name).to_frame().with_columns(**{k: v for k, v in beside.items() if v is not None})

    def title(self, raw: Any) -> str | None:
        """What people call an id; None if it has no title."""
        code = int(self.encode([raw])[0])
        return None if self.titles is None or code == 0 else self.titles[code - 1]

    @classmethod
    def of(cls, frame: pl.DataFrame, name: str) -> Self:
        """What `frame` made."""
        return cls(frame[name], *(frame[k] if k in frame.columns else None for k in ("title", "category")))


@dataclass(frozen=True)
class Histories:
    """All users' events, sorted by user and time, in compressed rows.

    User `u` (counted from 0) owns the events `offsets[u]:offsets[u + 1]` of `items` and `times`.
    """

    items: NDArray[np.int32]
    """Item codes, 1 to the number of items."""
    times: NDArray[np.int64]
    """Exact times in `unit`, never decreasing within a user (but for what `ties="recbole"` rounds away)."""
    offsets: NDArray[np.int64]
    """Where each user's events begin; one more entry than users."""
    user_ids: Vocabulary
    item_ids: Vocabulary
    unit: TimeUnit = "s"
    ties: Ties = "file"
    """How events of equal time were put in order."""

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items, padding not counted."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of events of each user."""
        return np.diff(self.offsets)

    @cached_property
    def fingerprint(self) -> str:
        """A short digest of every event and id, so that two results can be known to come from the same data."""
        digest = hashlib.sha256(self.unit.encode())
        for ids in (self.user_ids.ids, self.item_ids.ids):
            digest.update("\0".join(map(str, ids.to_list())).encode())
        for array in (self.items, self.times, self.offsets):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def statistics(self) -> dict[str, float | int | str]:
        """Users, items, interactions, average and median length, span of time: what one wants to know first."""
        lengths = self.lengths
        return {
            "users": self.n_users,
            "items": self.n_items,
            "interactions": len(self),
            "average_length": round(float(lengths.mean()), 2),
            "median_length": float(np.median(lengths)),
            "longest": int(lengths.max()),
            "density": round(len(self) / (self.n_users * self.n_items), 6),
            "unit": self.unit,
            "ties": self.ties,
            "first_time": int(self.times.min()),
            "last_time": int(self.times.max()),
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_log(cls, log: Log, ties: Ties = "file") -> Self:
        """Sort a checked log into histories.

        Parameters
        ----------
        log : Log
            Interactions in file order.
        ties : {"file", "recbole"}
            Events of equal time keep their file order. "recbole" compares times after rounding them to float32, as
            RecBole does: 64 or 128 seconds become one instant. For comparison only.

        Examples
        --------
        >>> from marsrec.data.log import read_log
        >>> log = read_log(pl.DataFrame({"user": ["b", "a", "b"], "item": [7, 7, 9], "time": [20, 5, 10]}))
        >>> histories = Histories.from_log(log)
        >>> histories.items.tolist(), histories.times.tolist(), histories.offsets.tolist()
        ([2, 1, 1], [10, 20, 5], [0, 2, 3])
        """
        frame = log.frame
        users = frame["user"].unique(maintain_order=True)
        items = frame["item"].unique(maintain_order=True)
        user_codes = _codes_of(frame["user"], users)
        times = frame["time"].to_numpy()
        clock = times.astype(np.float32) if ties == "recbole" else times
        order = np.lexsort((clock, user_codes))  # stable: ties keep file order
        counts = np.bincount(user_codes, minlength=len(users))
        return cls(
            items=(_codes_of(frame["item"], items)[order] + 1).astype(np.int32),
            times=times[order].astype(np.int64),
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            user_ids=Vocabulary(users),
            item_ids=Vocabulary(items),
            unit=log.unit,
            ties=ties,
        )

    def latest(self, events: int) -> Self:
        """The same users and items with no more than their latest `events` events: sparser data, the same targets.

        Examples
        --------
        >>> from marsrec.data.log import read_log
        >>> log = read_log(pl.DataFrame({"user": [1, 1, 1, 2], "item": [7, 8, 9, 7], "time": [1, 2, 3, 4]}))
        >>> Histories.from_log(log).latest(2).items.tolist()
        [2, 3, 1]
        """
        counts = np.minimum(self.lengths, events)
        offsets, index = flat_rows(self.offsets[1:] - counts, counts)
        return replace(self, items=self.items[index], times=self.times[index], offsets=offsets)

    def save(self, folder: Path) -> None:
        """Write a prepared folder that `load` maps into memory."""
        with atomic_folder(folder, marker="histories.json") as target:
            self.fill(target)

    def fill(self, folder: Path) -> None:
        """Write the files of a prepared folder into one that is there and that nobody reads yet."""
        np.save(folder / "items.npy", self.items)
        np.save(folder / "times.npy", self.times)
        np.save(folder / "offsets.npy", self.offsets)
        self.user_ids.frame("user").write_parquet(folder / "user_ids.parquet")
        self.item_ids.frame("item").write_parquet(folder / "item_ids.parquet")
        meta = {"format": FORMAT, **self.statistics()}
        (folder / "histories.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def is_prepared(folder: Path) -> bool:
        """Whether `folder` was written by `save`."""
        recover(folder)
        return (folder / "histories.json").is_file()

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Map a prepared folder into memory."""
        folder = Path(folder).expanduser()
        recover(folder)
        try:
            meta = json.loads((folder / "histories.json").read_text(encoding="utf-8"))
            if meta["format"] != FORMAT:
                raise DataError(
                    f"{folder}: prepared in format {meta['format']}, this version reads format {FORMAT}. "
                    "Run `marsrec prepare` again."
                )
            histories = cls(
                items=np.load(folder / "items.npy", mmap_mode="r"),
                times=np.load(folder / "times.npy", mmap_mode="r"),
                offsets=np.load(folder / "offsets.npy"),
                user_ids=Vocabulary.of(pl.read_parquet(folder / "user_ids.parquet"), "user"),
                item_ids=Vocabulary.of(pl.read_parquet(folder / "item_ids.parquet"), "item"),
                unit=meta["unit"],
                ties=meta["ties"],
            )
            sizes = (len(histories), len(histories.times), int(histories.offsets[-1]), meta["interactions"])
        except (OSError, EOFError, ValueError, TypeError, LookupError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"{folder}: not a readable prepared folder ({error}). Write it again with `marsrec prepare`."
            ) from error
        if len(set(sizes)) > 1 or len(histories.offsets) != histories.n_users + 1:
            raise DataError(f"{folder}: its files do not fit together. Write it again with `marsrec prepare`.")
        return histories


def flat_rows(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pieces of a flat array, one after the other: offsets of the new rows, and where each of their entries comes from.

    Examples
    --------
    >>> offsets, index = flat_rows(np.array([10, 20]), np.array([3, 2]))
    >>> offsets.tolist(), index.tolist()
    ([0, 3, 5], [10, 11, 12, 20, 21])
    """
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return offsets, np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)


def _codes_of(column: pl.Series, ids: pl.Series) -> NDArray[np.int64]:
    """Index of each value of `column` in `ids`."""
    table = pl.DataFrame({"id": ids}).with_row_index("code")
    return (
        pl.DataFrame({"id": column})
        .join(table, on="id", how="left", maintain_order="left")["code"]
        .to_numpy()
        .astype(np.int64)
    )
