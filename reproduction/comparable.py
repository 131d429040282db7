"""Which results can stand beside the paper's figures and beside each other: the same data, training and settings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from marsrec.data.catalog import CATALOG, Statistics
from marsrec.lab.comparison import density
from marsrec.lab.results import Result
from marsrec.models import model_settings, targets_per_batch
from marsrec.paper import paper_options
from marsrec.training.settings import NOT_DECISIVE
from reproduction.published import MAIN

USUAL = "the paper's: at most 200 epochs, patience 20"
AS_PAPER: tuple[tuple[str, Any], ...] = ()
"""What `_training` says of a training by the paper's settings."""


def alike(found: Sequence[Result], data: str) -> list[Result]:
    """Results on one data set that were trained alike: as the paper trains if any were, else as most were."""
    here = [result for result in found if result.data == data]
    ways = Counter(_way(result) for result in here)
    if not ways:
        return []
    as_paper = Counter({way: count for way, count in ways.items() if way[0] == AS_PAPER})
    chosen = (as_paper or ways).most_common(1)[0][0]
    return [result for result in here if _way(result) == chosen]


def trained(results: Sequence[Result]) -> str:
    """How results that were trained alike were trained, in words."""
    if not results or _training(results[0]) == AS_PAPER:
        return USUAL
    return ", ".join(f"{name} {value}" for name, value in _training(results[0]))


def find(
    results: Sequence[Result], recipe: str, *, readout: str | None = None, options: Mapping[str, Any] | None = None
) -> list[Result]:
    """Those of a recipe at the paper's settings, or changed as given; one per seed, the one with most prefixes."""
    matching: dict[int, Result] = {}
    for result in sorted(results, key=lambda result: result.training.prefix_share):
        chosen = {**paper_options(origin(result.data), recipe, readout=readout), **(options or {})}
        if result.settings == model_settings(recipe, density(result), readout=readout, options=chosen):
            matching[result.training.seed] = result
    return [matching[seed] for seed in sorted(matching)]


def published_name(data: str) -> str:
    """What the paper calls data, whatever the order of equal times.

    Examples
    --------
    >>> published_name("ml-1m-recbole"), published_name("ml-1m")
    ('ml-1m', 'ml-1m')
    """
    return data.removesuffix("-recbole")


def origin(data: str) -> str:
    """The data that thinned or generated data come from.

    Examples
    --------
    >>> origin("ml-1m-latest20"), origin("ml-1m-latest20-recbole"), origin("hawkes-mean_events80"), origin("beauty")
    ('ml-1m', 'ml-1m', 'hawkes', 'beauty')
    """
    return "hawkes" if data.startswith("hawkes-") else published_name(data).split("-latest")[0]


def as_published(results: Sequence[Result]) -> bool:
    """Whether results are of the very data that the paper has, and not of others with the same name."""
    known = CATALOG.get(published_name(results[0].data)) if results else None
    if known is None:
        return False
    counted = (results[0].statistics.get(name) for name in ("users", "items", "interactions"))
    return Statistics(*counted) == known.expected  # type: ignore[arg-type]


def datasets(found: Sequence[Result]) -> list[str]:
    """Names of the data in results: the paper's first, in its order."""
    return sorted({result.data for result in found}, key=order)


def whole(found: Sequence[Result]) -> list[str]:
    """Names of the data that were neither thinned nor generated otherwise than by default."""
    return [data for data in datasets(found) if published_name(data) == origin(data)]


def order(data: str) -> tuple[int, str]:
    """The paper's data first, in its order; those of another year where the paper has theirs."""
    known = list(MAIN)
    kind = next((name for name in known if data == name or data.startswith(f"{name}-")), None)
    return (len(known) if kind is None else known.index(kind), data)


def _training(result: Result) -> tuple[tuple[str, Any], ...]:
    """How it was trained otherwise than the paper says.

    What a recipe has of its own is left out: prefix_share is for some of them only, and stands in their rows, as do
    batches of another size.
    """
    own, size = {"seed", "prefix_share", "targets_per_batch"}, result.training.targets_per_batch
    changed = result.training.model_dump(exclude_defaults=True, exclude=NOT_DECISIVE | own)
    if size != targets_per_batch(result.settings):
        changed["targets_per_batch"] = size
    return tuple(changed.items())


def _way(result: Result) -> tuple[tuple[tuple[str, Any], ...], str, str]:
    return _training(result), result.fingerprint, result.split.model_dump_json()
