"""Experiments: grids of runs, written down in a TOML file.

    [[runs]]
    data = "beauty"
    model = ["sasrec", "mars-t"]
    seed = [0, 1, 2]

    [[runs]]
    data = "beauty"
    model = "mars-t"
    variants = { b1 = { "readout.real_time" = false }, b3 = { "readout.diversity" = 0.0 } }

Each table stands for all combinations of what it lists. `encoder`, `readout`, `scorer` and `objective` name other parts
than the recipe's. A public data set gets the paper's settings, which `options` (model settings by dotted name) and
`training` override; `training` at the top of the file is for all tables. Data of another density: `latest` keeps no
more than so many latest events of each user, and `hawkes` changes what the synthetic log is drawn from.
`ties = "recbole"` orders events as RecBole does. `selection = true` at the top of the file is for runs that choose
between settings: they write validation figures only, apart from results. `efficiency` and `theory` there are no runs:
`python -m reproduction measure` does what they name.
"""

import tomllib
from itertools import product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from marsrec.data.histories import Ties
from marsrec.errors import SettingsError
from marsrec.nn.settings import KINDS
from marsrec.settings import Settings, explain_validation
from marsrec.training.settings import TrainingSettings


class Run(Settings):
    """One model on one data set with one seed."""

    data: str
    """A name that `marsrec datasets` lists, "hawkes", a log file or a prepared folder."""
    model: str
    """A recipe."""
    seed: int = 0
    latest: int | None = Field(None, ge=3)
    """Keep no more than so many latest events of each user."""
    hawkes: dict[str, Any] = Field(default_factory=dict)
    """For data "hawkes": settings of the generator that differ from the default."""
    ties: Ties = "file"
    """Order of events of equal time; "recbole" rounds times as RecBole does."""
    encoder: str | None = None
    readout: str | None = None
    scorer: str | None = None
    objective: str | None = None
    published: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    """Model settings by dotted name."""
    training: TrainingSettings = TrainingSettings()
    selection: bool = False
    """Whether settings are chosen by it, so that it must not see the test."""
    label: str | None = None
    """What the variant is called in progress and status."""

    @property
    def title(self) -> str:
        """What `--only` looks at and progress shows."""
        variant = f" ({self.label})" if self.label else ""
        return f"{self.data}{self.change}/{self.model}{variant}/seed {self.seed}"

    @property
    def change(self) -> str:
        """What is done to the data, to be added to their name."""
        changes = [f"{name}{value}" for name, value in self.hawkes.items()]
        if self.latest:
            changes.append(f"latest{self.latest}")
        if self.ties != "file":
            changes.append(self.ties)
        return "".join(f"-{change}" for change in changes)


class _Table(Settings):
    """A table of the file: data, model, seed, latest and what hawkes changes may be lists; variants have labels."""

    data: str | list[str]
    model: str | list[str]
    seed: int | list[int] = 0
    latest: int | list[int] | None = None
    hawkes: dict[str, Any] = Field(default_factory=dict)
    ties: Ties = "file"
    encoder: str | None = None
    readout: str | None = None
    scorer: str | None = None
    objective: str | None = None
    published: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None

    def runs(self, training: dict[str, Any], selection: bool) -> list[Run]:
        if "seed" in training or "seed" in self.training:
            raise SettingsError("seed stands beside data and model, not in training.")
        shared = self.model_dump(include={"ties", *KINDS, "published"})
        variants: list[tuple[str | None, dict[str, Any]]] = [*self.variants.items()] or [(self.label, {})]
        generated = product(*(_list(values) for values in self.hawkes.values()))
        return [
            Run(
                data=data,
                model=model,
                seed=seed,
                latest=latest,
                hawkes=dict(zip(self.hawkes, values, strict=True)),
                options={**self.options, **options},
                training=TrainingSettings(**{**training, **self.training, "seed": seed}),
                label=label,
                selection=selection,
                **shared,
            )
            for data, values, latest, (label, options), model, seed in product(
                _list(self.data),
                generated,
                _list(self.latest),
                variants,
                _list(self.model),
                _list(self.seed),
            )
        ]


class _File(Settings):
    selection: bool = False
    training: dict[str, Any] = Field(default_factory=dict)
    efficiency: list[str] = Field(default_factory=list)
    theory: Literal["quick", "full"] | None = None
    runs: list[_Table] = Field(default_factory=list)


class Experiment(Settings):
    """Runs, and what else the reproduction of the paper measures."""

    runs: list[Run]
    """In the order of the file; a run that is listed twice counts once."""
    efficiency: list[str] = Field(default_factory=list)
    """Data sets at whose size the cost of all recipes is measured."""
    theory: Literal["quick", "full"] | None = None
    """Whether the propositions are put to the test, and how thoroughly."""

    @property
    def measurements(self) -> list[str]:
        """What is measured beside the runs, in words."""
        costs = [f"efficiency on {' and '.join(self.efficiency)}"] if self.efficiency else []
        return costs + ([f"theory ({self.theory})"] if self.theory else [])


def read_experiment(path: Path) -> Experiment:
    """Read an experiment."""
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        runs = [run for table in file.runs for run in table.runs(file.training, file.selection)]
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}).") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not TOML ({error}).") from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {explain_validation(error)}") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    # By what was given: a setting that is left out may mean another than its default, such as a recipe's own batches.
    once = {run.model_dump_json(exclude_unset=True): run for run in runs}
    return Experiment(runs=[*once.values()], efficiency=file.efficiency, theory=file.theory)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
