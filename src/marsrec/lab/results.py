"""Results: one JSON per run with everything that decides a figure, and the ranks of its test targets beside it."""

import hashlib
import json
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
from pydantic import Field, ValidationError

from marsrec.atomic import atomic_file
from marsrec.data.splits import Part, SplitSettings
from marsrec.errors import DataError
from marsrec.evaluation.groups import time_since
from marsrec.lab.inspection import Inspection, inspect, read, write
from marsrec.models import decisive
from marsrec.nn.parts import UnknownPartError
from marsrec.nn.settings import ModelSettings
from marsrec.recommender import Recommender
from marsrec.settings import Settings, explain_validation
from marsrec.training.settings import NOT_DECISIVE, TrainingSettings

TRIALS = "trials"
"""Folder of the results by which settings are chosen, beside the results: without test figures."""

RANKS = "ranks"
"""Folder of the ranks, beside the results."""

INSPECTIONS = "inspections"
"""Folder of what was seen in the models, beside the results."""


class Result(Settings):
    """A finished run."""

    format: int = 1
    data: str
    """Name of the data."""
    fingerprint: str
    """Digest of every event of the data."""
    statistics: dict[str, Any]
    """Users, items, events, average length, and so on."""
    training_length: float | None = None
    """Average number of training events of a user, which decides what is dense."""
    model: str
    """What the model is called."""
    settings: ModelSettings
    training: TrainingSettings
    split: SplitSettings
    valid: dict[str, float]
    test: dict[str, float] = Field(default_factory=dict)
    """Metrics over all items, the history not masked; empty where settings are chosen by the run."""
    parameters: int
    best_epoch: int
    epochs: int
    minutes: float
    curve: list[dict[str, float]]
    """Losses, validation metrics and seconds of each epoch."""
    versions: dict[str, str] | None = None
    """Of the software that trained it, where that was noted."""
    machine: dict[str, Any] | None = None
    origins: dict[str, dict[str, str]] | None = None
    """By kind of part, the module that brought it and its distribution; None where all parts are marsrec's own."""

    @property
    def figures(self) -> tuple[Part, dict[str, float]]:
        """Its test metrics, or those of validation where settings are chosen by the run."""
        return ("test", self.test) if self.test else ("valid", self.valid)

    @property
    def undisturbed_minutes(self) -> float:
        """Its epochs at the pace of the median one: a training that was halted is no slower by that."""
        seconds = [epoch["seconds"] for epoch in self.curve if "seconds" in epoch]
        return self.epochs * median(seconds) / 60 if seconds else self.minutes

    @property
    def name(self) -> str:
        """Name of its files: data, model, seed, and a digest of all that decides the result."""
        return result_name(self.data, self.model, self.fingerprint, self.settings, self.training, self.split)


def result_name(
    data: str, model: str, fingerprint: str, settings: ModelSettings, training: TrainingSettings, split: SplitSettings
) -> str:
    """Name of a result's files: data, model, seed, and a digest of all that decides it; see `decisive`."""
    deciding = [
        fingerprint,
        decisive(settings),
        training.model_dump_json(exclude_defaults=True, exclude=NOT_DECISIVE),
        split.model_dump_json(exclude_defaults=True),
    ]
    digest = hashlib.sha256("\n".join(deciding).encode()).hexdigest()[:8]
    return f"{data}-{model.replace(',', '').replace(' ', '-')}-seed{training.seed}-{digest}"


def record(run: Path, results: Path, data: str | None = None) -> Path:
    """Write the result of a saved recommender that was trained to its end.

    Parameters
    ----------
    run : Path
        A folder that `marsrec fit` wrote.
    results : Path
        Where `NAME.json` and `ranks/NAME.parquet` go.
    data : str, optional
        Name of the data, where the folder does not tell it.

    Returns
    -------
    Path
        The JSON file.
    """
    recommender = Recommender.load(run)
    measured = recommender.metrics
    if recommender.histories is None:
        raise DataError(f"{run}: saved without its histories, so its test cannot be repeated. Fit and save it again.")
    if not measured["complete"]:
        raise DataError(f"{run}: a time limit cut the training short. Finish it with fit and --resume.")
    named = data or measured["data"].get("name")
    if named is None:
        raise DataError(f"{run}: does not tell the name of its data. Give it with --data.")
    synthetic = measured["data"].get("synthetic", False)  # a real log may be called hawkes, too
    ties = recommender.histories.ties
    if ties != "file" and not named.endswith(f"-{ties}"):  # another order of events is other data
        named = f"{named}-{ties}"
    part: Part = "test" if "test" in measured else "valid"
    evaluation = recommender.evaluate(part)
    for metric, value in measured[part].items():
        if abs(evaluation.metrics[metric] - value) > 1e-4:
            raise DataError(
                f"{run}: {metric} was {value:.4f} after training and is {evaluation.metrics[metric]:.4f} now. "
                "The folder or the software has changed; fit anew."
            )
    split = recommender.split()
    measures = ("valid", "test", "parameters", "best_epoch", "epochs", "minutes", "curve")
    result = Result(
        data=named,
        fingerprint=recommender.histories.fingerprint,
        statistics=recommender.histories.statistics(),
        training_length=split.average_length,
        model=measured["model"],
        settings=recommender.settings,
        training=recommender.training,
        split=recommender.split_settings,
        **{name: measured[name] for name in measures if name in measured},
        versions=measured.get("versions"),
        machine=measured.get("machine"),
        origins=recommender.settings.origins or None,
    )
    path = results / f"{result.name}.json"
    ranks = pl.DataFrame(
        {
            "rank": evaluation.ranks.astype("float32"),
            "length": evaluation.lengths.astype("int32"),
            "user": split.targets(part).users.astype("int32"),
            "time": time_since(split, split.targets(part)),
        }
    )
    with atomic_file(results / RANKS / f"{result.name}.parquet") as temporary:
        ranks.write_parquet(temporary, compression="zstd")
    if part == "test":  # what is seen in a model is seen on its test
        inspected = inspect(recommender)
        if not synthetic:  # events of real people stay with the data
            inspected = inspected.model_copy(update={"examples": []})
        if inspected.attention or inspected.decay:
            write(inspected, results / INSPECTIONS / f"{result.name}.json")
    with atomic_file(path) as temporary:  # last: with it the run counts as done
        temporary.write_text(json.dumps(result.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    return path


def inspection_of(result: Result, results: Path) -> Inspection | None:
    """What was seen in the model of a result; None if there was nothing to see."""
    path = results / INSPECTIONS / f"{result.name}.json"
    return read(path) if path.exists() else None


def read_results(folder: Path) -> list[Result]:
    """All results of a folder, in the order of their names."""
    return [read_result(path) for path in sorted(folder.glob("*.json"))]


def read_result(path: Path) -> Result:
    """A result."""
    try:
        result = Result.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError(f"{path}: not a result ({explain_validation(error)}). Delete it or record it anew.") from None
    except UnknownPartError as error:
        raise DataError(f"{path}: {error} {_remedy(path)}") from None
    if result.name != path.stem:
        raise DataError(f"{path}: its content belongs to {result.name}. Record its model anew.")
    return result


def _remedy(path: Path) -> str:
    """How the parts of a result become known."""
    origins = (json.loads(path.read_bytes()).get("origins") or {}).values()
    if not origins:
        return "The file does not tell the module; name it with `marsrec --import MODULE`."
    modules = sorted({origin["module"] for origin in origins})
    packages = sorted({origin["distribution"] for origin in origins if "distribution" in origin})
    of = f" (package {', '.join(packages)})" if packages else ""
    return f"The result needs {', '.join(modules)}{of}: `marsrec {' '.join(f'--import {name}' for name in modules)}`."
