"""Two models on the same seeds and the same users."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from marsrec.lab.comparison import figures, per_user
from marsrec.lab.results import Result
from marsrec.lab.significance import Difference, paired

EXPLAINED = (
    "Differences are × 100, with their 95 % bootstrap interval over users and the two-sided p of a paired "
    "randomisation test. Both models are averaged over the seeds that both have, where there are such: the interval "
    "tells of other users, not of other initial weights."
)
"""What the difference of two models is, for texts and captions."""


def same_seeds(first: Sequence[Result], second: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Results of two models with the seeds that both have; all of them if they have none in common."""
    seeds = {result.training.seed for result in first} & {result.training.seed for result in second}
    one, other = ([result for result in of if not seeds or result.training.seed in seeds] for of in (first, second))
    return one, other


def difference(first: Sequence[Result], second: Sequence[Result], folder: Path, metric: str) -> Difference:
    """How much better the first is, user by user."""
    one, other = same_seeds(first, second)
    return paired(per_user(one, folder, metric), per_user(other, folder, metric))


def gain(first: Sequence[Result], second: Sequence[Result], metric: str = "HR@10") -> float:
    """How much better the first is, relative to the second, on the seeds that both have."""
    one, other = same_seeds(first, second)
    return mean(figures(one, metric)) / mean(figures(other, metric)) - 1


def change(first: Sequence[Result], second: Sequence[Result], folder: Path, metric: str) -> str:
    """Both as a cell."""
    return f"{gain(first, second, metric):+.1%}: {difference(first, second, folder, metric)}"
