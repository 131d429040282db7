"""How long a run may still take, by its own epochs so far or by results of similar runs."""

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from marsrec.lab.experiment import Run
from marsrec.lab.results import Result
from marsrec.lab.runner import Place, model_of, source_of
from marsrec.models import title
from marsrec.training.settings import MONITOR, NOT_DECISIVE, TrainingSettings


def expected_minutes(run: Run, place: Place, found: Sequence[Result]) -> float | None:
    """How long a run that is not done may still take; None if there is nothing to judge it by.

    The first of these that there is:

    1. its own epochs so far: the seconds of the median one, times as many as are likely left. These are as many as
       results of the model have in the median, at least until patience would end, at most as many as are allowed;
    2. results of the same model on the same data, their mean;
    3. results of the same model on other data, each scaled by the number of events;
    4. results of other models on the same data, their mean.

    Data are the same if their events are, whatever they are called; models if their recipe is, whatever the options.
    Results of other trainings, such as of fewer epochs, do not count.

    Parameters
    ----------
    run, place : Run, Place
        What is to be done, and where it stands.
    found : sequence of Result
        All results that there are.
    """
    histories, settings = source_of(run).histories, model_of(run)
    found = [result for result in found if _way(result.training) == _way(run.training.suited_to(result.settings))]
    like = [result for result in found if _recipe(result.model) == _recipe(title(settings))]
    like = [result for result in like if result.training.prefix_share == run.training.prefix_share]
    if curve := place.curve():
        pace: float = median(epoch["seconds"] for epoch in curve)
        usual = median(result.epochs for result in like) if like else 0
        return pace * _epochs_left(run, [epoch[f"valid/{MONITOR}"] for epoch in curve], usual) / 60
    both, here = ([r for r in some if r.fingerprint == histories.fingerprint] for some in (like, found))
    scaled = [r.undisturbed_minutes * len(histories) / r.statistics["interactions"] for r in like]
    known = [r.undisturbed_minutes for r in both] or scaled or [r.undisturbed_minutes for r in here]
    return mean(known) if known else None


def _epochs_left(run: Run, reached: Sequence[float], usual: float) -> float:
    """Epochs until the usual number is reached, but not before patience ends; none if it has ended."""
    done, best = len(reached), 1 + reached.index(max(reached))
    patient = best + run.training.patience - done
    return 0 if patient <= 0 else min(max(patient, usual - done), run.training.epochs - done)


def _way(training: TrainingSettings) -> dict[str, Any]:
    """What trainings of different models have in common; a share of the prefixes is for some models only."""
    return training.model_dump(exclude=NOT_DECISIVE | {"seed", "prefix_share"})


def _recipe(model: str) -> str:
    return model.split(",")[0]
