"""A search for settings: trials that Optuna draws, prunes and keeps in a database, each training resumable beside it.

Nothing here sees the test. A search can be killed at any moment; what was begun is taken up anew.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console

from marsrec.atomic import atomic_file
from marsrec.data.moments import spell_duration
from marsrec.data.source import Source
from marsrec.data.splits import SplitSettings
from marsrec.errors import SettingsError
from marsrec.lab.search_space import TRAINING, search_space, tuned
from marsrec.models import decisive, title
from marsrec.recommender import Recommender
from marsrec.training.settings import CURVE, MONITOR, NOT_DECISIVE, TrainingSettings

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from marsrec.training.fit import Fitted

log = logging.getLogger(__name__)

SEARCH, STUDY, TRIALS = "search.json", "study.db", "trials"
"""What a search is, its trials, and their trainings, in its folder."""

FOR_DEFAULT, FOR_SEARCH = 0.3, 0.75
"""The default's training stops at this part of the minutes, the search at this; the rest is for another seed."""
CHECKED = 3
"""So many of the best trials are trained with another seed, and so is the default."""
DRAWN = 8
"""So many trials are drawn at random before their results guide the next."""
FREE, TENTHS = 4, 2
"""The first trials are not pruned, and none before so many tenths of its epochs."""


@dataclass(frozen=True)
class Candidate:
    """Settings that were trained, and what validation said."""

    trial: int | None
    """Counted from 1; None for the default."""
    values: Mapping[str, Any]
    """What it has other than the default, by name."""
    valid: float
    """Validation NDCG@10."""
    epochs: int
    minutes: float
    state: str = "complete"
    """Or pruned; or cut short, of a default that time did not suffice for."""
    other_seed: float | None = None
    """Validation NDCG@10 with another seed; None where that was not trained."""

    @property
    def mean(self) -> float:
        """Over its seeds."""
        return self.valid if self.other_seed is None else (self.valid + self.other_seed) / 2


class Search:
    """A search in its folder.

    Parameters
    ----------
    base : Recommender
        The default, not fitted.
    source, split : Source, SplitSettings
        The data.
    folder : Path
        Where the search is kept.
    minutes, trials : float, int
        The budget, of all calls together.
    progress : bool
        Show the training of a trial where there is a terminal or a notebook.
    """

    def __init__(
        self,
        base: Recommender,
        source: Source,
        split: SplitSettings,
        folder: Path,
        *,
        minutes: float,
        trials: int,
        progress: bool,
    ) -> None:
        self.base, self.source, self.folder = base, source, folder
        self.minutes, self.trials = minutes, trials
        console = Console(stderr=True)
        self.live = progress and (console.is_terminal or console.is_jupyter)
        self.split = split.apply(source.histories)
        self.settings = base.planned_settings(self.split.average_length, source.public)
        self.space = search_space(base, self.settings, self.split)
        self._same_search(split)
        self.study = self._study()

    def run(self) -> list[Candidate]:
        """Search until the budget is spent. The default comes first, then the trials as validation orders them."""
        self._default()
        while len(self._counted()) < self.trials and self._left(FOR_SEARCH) > 0 and self._trial():
            pass
        self._other_seeds()
        return [self._as_candidate(None), *self._best()]

    # ---------------------------------------------------------------- trainings

    def _default(self) -> None:
        """Train the default settings, or go on with them where time did not suffice."""
        found = self.study.user_attrs.get("default", {})
        if not found:
            log.info(f"The default settings: {title(self.settings)}, at most {self.base.training.epochs} epochs.")
        if found.get("complete") or (left := self._left(FOR_DEFAULT)) <= 0:
            return
        fitted = self._fit({}, self.base.training.seed, left)
        self.study.set_user_attr("default", _record(fitted) | {"complete": fitted.complete})
        candidate = self._as_candidate(None)
        short = "" if fitted.complete else "; the time limit cut it short"
        log.info(f"  validation {MONITOR} {100 * candidate.valid:.2f}, {_spent(candidate)}{short}")

    def _trial(self) -> bool:
        """Do one trial; False if the time did not suffice, and the next call takes it up."""
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        for begun in self.study.get_trials(states=(TrialState.RUNNING,)):
            self.study.enqueue_trial(begun.params, skip_if_exists=True)
            self.study.tell(begun.number, state=TrialState.FAIL)
        done = self._counted()
        # Seeded by what is done, so that a search that was killed draws what an undisturbed one draws.
        seed = self.base.training.seed
        self.study.sampler = TPESampler(n_startup_trials=DRAWN, multivariate=True, seed=1000 * seed + len(done))
        trial = self.study.ask()
        values = {searched.name: searched.draw(trial) for searched in self.space}
        fitted = self._fit(values, seed, self._left(FOR_SEARCH), trial)
        found = _record(fitted)
        trial.set_user_attr("minutes", found["minutes"])
        if not fitted.complete:
            return False
        training = tuned(self.base, values, seed).training
        pruned = found["epochs"] < training.epochs and found["epochs"] - fitted.best_epoch < training.patience
        for name, value in {**found, "values": values, "trial": len(done) + 1}.items():
            trial.set_user_attr(name, value)
        state = TrialState.PRUNED if pruned else TrialState.COMPLETE
        self.study.tell(trial, None if pruned else found["valid"], state)
        best = max(candidate.valid for candidate in (self._as_candidate(None), *self._best()))
        log.info(
            f"trial {len(done) + 1}/{self.trials}: {'pruned at' if pruned else 'validation'} {MONITOR} "
            f"{100 * found['valid']:.2f} (best {100 * best:.2f}), "
            f"{_spent(self._as_candidate(self.study.trials[trial.number]))}; {spelled(values)}"
        )
        return True

    def _other_seeds(self) -> None:
        """Train the default and the best trials with another seed, as far as the time goes."""
        seed = self.base.training.seed + 1
        for candidate in [self._as_candidate(None), *self._best()[:CHECKED]]:
            name, checked = str(candidate.trial or "default"), dict(self.study.user_attrs.get("checked", {}))
            if name in checked or candidate.state != "complete" or self._left() < candidate.minutes:
                continue
            fitted = self._fit(candidate.values, seed, self._left())
            if not fitted.complete:
                return
            self.study.set_user_attr("checked", checked | {name: _record(fitted)})
            who = "the default" if candidate.trial is None else f"trial {candidate.trial}"
            log.info(f"{who} with seed {seed}: validation {MONITOR} {100 * _record(fitted)['valid']:.2f}")

    def _fit(self, values: Mapping[str, Any], seed: int, left: float, trial: "Trial | None" = None) -> "Fitted":
        """Train settings for so many minutes, with their validation figures alone."""
        from marsrec.training.fit import fit

        recommender = tuned(self.base, values, seed)
        training = recommender.training.model_copy(update={"max_minutes": left})
        place, best = self.place(recommender), 0.0

        def hopeless(row: Mapping[str, float]) -> bool:
            """Whether a trial is behind the median of the others after the same part of its epochs."""
            nonlocal best
            if trial is None:
                return False
            best, before = max(best, row[f"valid/{MONITOR}"]), (row["epoch"] - 1) / training.epochs
            share = row["epoch"] / training.epochs
            for tenth in range(int(10 * before + 1e-9) + 1, int(10 * share + 1e-9) + 1):
                trial.report(best, tenth)
            return share < 1 and trial.should_prune()

        if (place / CURVE).exists():  # epochs of a trial that is taken up
            for row in pl.read_csv(place / CURVE).to_dicts():
                hopeless(row)
        model = self._planned(recommender)
        return fit(self.split, model, training, folder=place, resume=True, progress=self.live, watch=hopeless)

    def _planned(self, recommender: Recommender) -> Any:
        return recommender.planned_settings(self.split.average_length, self.source.public)

    def place(self, recommender: Recommender) -> Path:
        """Where settings are trained: the same ones, in the same place."""
        decides = decisive(self._planned(recommender)) + _decisive(recommender.training)
        return self.folder / TRIALS / hashlib.sha256(decides.encode()).hexdigest()[:12]

    # ------------------------------------------------------------------ records

    def _counted(self) -> "list[FrozenTrial]":
        from optuna.trial import TrialState

        return self.study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))

    def _best(self) -> list[Candidate]:
        """Trials: the best first, pruned ones last."""
        found = [self._as_candidate(trial) for trial in self._counted()]
        return sorted(found, key=lambda candidate: (candidate.state == "pruned", -candidate.valid))

    def _as_candidate(self, trial: "FrozenTrial | None") -> Candidate:
        """What is known of a trial, or of the default."""
        checked = self.study.user_attrs.get("checked", {})
        if trial is None:
            found = dict(self.study.user_attrs["default"])
            state = "complete" if found.pop("complete") else "cut short"
            made = Candidate(None, {}, **found, state=state)
        else:
            made = Candidate(**trial.user_attrs, state=trial.state.name.lower())
        other = checked.get(str(made.trial or "default"))
        return made if other is None else replace(made, other_seed=other["valid"])

    def _left(self, part: float = 1.0) -> float:
        """Minutes left of a part of the budget."""
        from optuna.trial import TrialState

        states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING)
        trained = [trial.user_attrs for trial in self.study.get_trials(deepcopy=False, states=states)]
        attributes = self.study.user_attrs
        trained += [attributes.get("default", {}), *attributes.get("checked", {}).values()]
        spent: float = sum(found.get("minutes", 0.0) for found in trained)
        return part * self.minutes - spent

    def _same_search(self, split: SplitSettings) -> None:
        """Raise if the folder has a search for something else; note there what this one is."""
        about = {
            "data": self.source.histories.fingerprint,
            "split": split.model_dump(mode="json"),
            "model": self.settings.model_dump(mode="json"),
            "training": json.loads(_decisive(self.base.training)),
            "searched": [[searched.name, *searched.values] for searched in self.space],
        }
        file = self.folder / SEARCH
        if not file.exists():
            with atomic_file(file) as temporary:
                temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
        elif different := [
            name for name, value in json.loads(file.read_text(encoding="utf-8")).items() if about.get(name) != value
        ]:
            raise SettingsError(
                f"{self.folder}: holds a search with other {' and '.join(different)}. Go on with the same ones, or "
                "choose another folder."
            )

    def _study(self) -> "Study":
        """The trials so far; the first one is what is nearest to the default."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        storage = optuna.storages.RDBStorage(f"sqlite:///{(self.folder / STUDY).resolve().as_posix()}")
        pruner = optuna.pruners.MedianPruner(n_startup_trials=FREE, n_warmup_steps=TENTHS)
        study = optuna.create_study(
            storage=storage, study_name="marsrec", direction="maximize", pruner=pruner, load_if_exists=True
        )
        if not study.get_trials(deepcopy=False):
            study.enqueue_trial({one.name: one.start(self.settings, self.base.training) for one in self.space})
        return study


def spelled(values: Mapping[str, Any]) -> str:
    """Settings in a line.

    Examples
    --------
    >>> spelled({"training.epochs": 10, "readout.dropout": 0.15})
    'epochs 10, readout.dropout 0.15'
    """
    return ", ".join(f"{name.removeprefix(TRAINING)} {value}" for name, value in values.items())


def _spent(candidate: Candidate) -> str:
    return f"{candidate.epochs} epoch{'' if candidate.epochs == 1 else 's'}, {spell_duration(60 * candidate.minutes)}"


def _record(fitted: "Fitted") -> dict[str, Any]:
    """What is kept of a training."""
    valid = max((row[f"valid/{MONITOR}"] for row in fitted.curve), default=0.0)
    return {"valid": valid, "epochs": len(fitted.curve), "minutes": round(fitted.minutes, 4)}


def _decisive(training: TrainingSettings) -> str:
    return training.model_dump_json(exclude_defaults=True, exclude=NOT_DECISIVE)
