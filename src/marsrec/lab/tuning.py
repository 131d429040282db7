"""tune: search settings on validation data within a budget; then measure the winner and the default on the test."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from marsrec.atomic import LOCK, alone, atomic_file, refuse_foreign
from marsrec.data.filters import FilterSettings
from marsrec.data.histories import Ties
from marsrec.data.log import LogSettings
from marsrec.data.source import open_data
from marsrec.data.splits import SplitSettings
from marsrec.errors import SettingsError, needs
from marsrec.evaluation.compare import Comparison, compare
from marsrec.evaluation.significance import LEVEL
from marsrec.lab.search import SEARCH, Candidate, Search
from marsrec.lab.search_space import tuned, value_of
from marsrec.recommender import Recommender
from marsrec.training.settings import MONITOR

log = logging.getLogger(__name__)

MODEL, DEFAULT, RESULT, TABLE = "model", "default", "tuned.json", "trials.csv"
"""The winner, the default and what was found, in the folder of a search."""


@dataclass(frozen=True, repr=False)
class Tuned:
    """What a search found."""

    recommender: Recommender
    """The winner, fitted: the default where no trial beat it on validation."""
    default: Recommender
    """The default, fitted."""
    settings: Mapping[str, Any]
    """What the winner has other than the default, by name; training settings after "training."."""
    trials: pl.DataFrame
    """A row per trial, the default (trial 0) first, then the best first: trial, state, valid (NDCG@10), other_seed (the
    same with another seed), epochs, minutes, and the settings."""
    comparison: Comparison | None
    """Winner (a) and default (b) on the test; None if they are the same."""
    folder: Path
    """`model` and `default`, which `Recommender.load` reads, `trials.csv` and `tuned.json`."""

    def verdict(self) -> str:
        """Whether the winner is better than the default, in words."""
        count = self.trials.height - 1
        tried = f"{count} trial{'' if count == 1 else 's'}"
        if self.comparison is None:
            return (
                f"The default settings stay: none of {tried} has a higher validation {MONITOR}. "
                f"Test {MONITOR} {100 * self.default.metrics['test'][MONITOR]:.2f}."
            )
        row = self.comparison.table.row(by_predicate=pl.col("metric") == MONITOR, named=True)
        a, b, difference, low, high = (f"{100 * row[name]:.2f}" for name in ("a", "b", "difference", "low", "high"))
        chance = "p < 0.0001" if row["p"] < 1e-4 else f"p = {row['p']:.4f}"
        better = "higher" if row["difference"] > 0 else "lower" if row["difference"] < 0 else "the same"
        return (
            f"Test {MONITOR}: {a} with the best of {tried}, {b} with the default settings. It is {better}: "
            f"{difference}, 95 % interval over users {low} to {high}, {chance}, which "
            f"{'is' if row['p'] < LEVEL else 'is not'} statistically significant."
        )

    def __repr__(self) -> str:
        return f"<Tuned in {self.folder}: {self.verdict()}>"


def tune(
    data: Any,
    recommender: Recommender | str = "mars",
    *,
    out: str | Path,
    minutes: float = 30.0,
    trials: int = 50,
    log_settings: LogSettings | None = None,
    filters: FilterSettings | None = None,
    ties: Ties = "file",
    split: SplitSettings | None = None,
    progress: bool = True,
) -> Tuned:
    """Search the settings of a model on validation data.

    The default is trained first, then trials until the budget is spent; the best few and the default are trained with
    another seed where time is left. The winner has the highest validation NDCG@10, mean over both seeds. Only then is
    the test measured, of the winner and of the default. The same call goes on with a search that was killed, and with a
    larger budget with one that was not.

    Parameters
    ----------
    data : str, Path, dataframe, Log, Histories or Source
        Who took which item when; see `Recommender.fit`.
    recommender : Recommender or str
        The default settings, not fitted; or a recipe's name. Settings that it was given are kept and not searched.
    out : str or Path
        Folder of the search and its results.
    minutes : float
        Of training, in all calls together.
    trials : int
        At most so many.
    log_settings, filters, ties, split
        As `Recommender.fit` takes them.
    progress : bool
        Show progress: a line per trial.

    Examples
    --------
    >>> found = tune("shop.csv", "mars-t", out="runs/tune-shop", minutes=60)  # doctest: +SKIP
    >>> found.verdict(), found.settings  # doctest: +SKIP
    >>> found.recommender.recommend("u1")  # doctest: +SKIP
    """
    from marsrec.training.progress import shown  # Lightning takes seconds, and only training needs it

    if minutes <= 0 or trials < 1:
        raise SettingsError(f"a search needs minutes and trials: found {minutes:g} minutes and {trials} trials.")
    folder = Path(out).expanduser()
    if not folder.is_dir() or {file.name for file in folder.iterdir()} != {LOCK}:  # of a search that had just begun
        refuse_foreign(folder, SEARCH)
    with needs("tune", "a search for settings"):
        import optuna  # noqa: F401
    base = Recommender(recommender) if isinstance(recommender, str) else recommender
    parts = split or SplitSettings()
    with shown(progress):
        source = open_data(data, log_settings=log_settings, filters=filters, ties=ties)
        for note in source.notes:
            log.info(f"· {note}")
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder, "search"):
            search = Search(base, source, parts, folder, minutes=minutes, trials=trials, progress=progress)
            candidates = search.run()
            best = choose(candidates)
            default = _measured(search, candidates[0], parts, folder / DEFAULT)
            winner = default if best.trial is None else _measured(search, best, parts, folder / MODEL)
            if best.trial is None:
                winner.save(folder / MODEL)
            comparison = None if best.trial is None else compare(winner, default, groups=())
            found = Tuned(winner, default, best.values, _table(search, candidates), comparison, folder)
            _write(found, best)
    return found


def choose(candidates: list[Candidate]) -> Candidate:
    """The best trial, or the default (the first) where that is at least as good on the seeds that both have.

    A figure with one seed is flattered by having been the highest of many, so that trials with two come before others.

    Examples
    --------
    >>> default = Candidate(None, {}, valid=0.30, epochs=9, minutes=1.0, other_seed=0.31)
    >>> lucky = Candidate(1, {}, valid=0.33, epochs=9, minutes=1.0, other_seed=0.27)
    >>> good = Candidate(2, {}, valid=0.32, epochs=9, minutes=1.0, other_seed=0.32)
    >>> choose([default, lucky, good]).trial, choose([default, lucky]).trial
    (2, None)
    """
    default, *trials = candidates
    complete = [trial for trial in trials if trial.state == "complete"]
    best = max([trial for trial in complete if trial.other_seed is not None] or complete, key=_mean, default=default)
    both = default.other_seed is not None and best.other_seed is not None
    better = best.mean > default.mean if both else best.valid > default.valid
    return best if better else default


def _mean(candidate: Candidate) -> float:
    return candidate.mean


def _measured(search: Search, candidate: Candidate, split: SplitSettings, folder: Path) -> Recommender:
    """A candidate that was trained, with its test, saved."""
    recommender = tuned(search.base, candidate.values, search.base.training.seed)
    training, place = recommender.training, search.place(recommender)
    if candidate.state == "cut short":  # what it reached in its time
        recommender.training = training.model_copy(update={"max_minutes": 1e-6})
    recommender.fit(search.source, split=split, folder=place, resume=True, progress=False)
    recommender.training = training
    recommender.save(folder)
    return recommender


def _table(search: Search, candidates: list[Candidate]) -> pl.DataFrame:
    """See `Tuned.trials`."""
    usual = {one.name: value_of(one.name, search.settings, search.base.training) for one in search.space}
    rows = [
        {
            "trial": one.trial or 0,
            "state": one.state,
            "valid": one.valid,
            "other_seed": one.other_seed,
            "epochs": one.epochs,
            "minutes": one.minutes,
            **{name: one.values.get(name, value) for name, value in usual.items()},
        }
        for one in candidates
    ]
    return pl.DataFrame(rows, schema_overrides={"other_seed": pl.Float64}, infer_schema_length=None)


def _write(found: Tuned, best: Candidate) -> None:
    """Write what was found; the search itself is in its database."""
    with atomic_file(found.folder / TABLE) as temporary:
        found.trials.write_csv(temporary)
    rows = [] if found.comparison is None else found.comparison.table.to_dicts()
    result = {
        "verdict": found.verdict(),
        "trial": best.trial,
        "settings": dict(found.settings),
        "valid": {"valid": best.valid, "other_seed": best.other_seed},
        "test": {"winner": found.recommender.metrics["test"], "default": found.default.metrics["test"]},
        "compared": rows,
    }
    with atomic_file(found.folder / RESULT) as temporary:
        temporary.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
