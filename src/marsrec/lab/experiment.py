"""Experiments: grids of runs, written down in a TOML file.

    [[runs]]
    data = "beauty"
    model = ["sasrec", "mars-t"]
    seed = [0, 1, 2]

    [[runs]]
    data = "beauty"
    model = "mars-t"
    label = "b1"
    options = { "readout.real_time" = false }

Each table stands for all combinations of what it lists. A public data set gets the paper's settings, which `options`
(model settings by dotted name) and `training` override.
"""

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from marsrec.errors import SettingsError
from marsrec.settings import Settings, explain_validation
from marsrec.training.module import TrainingSettings


class Run(Settings):
    """One model on one data set with one seed."""

    data: str
    """A name that `marsrec datasets` lists, "hawkes", a log file or a prepared folder."""
    model: str
    """A recipe."""
    seed: int = 0
    encoder: str | None = None
    readout: str | None = None
    published: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    """Model settings by dotted name."""
    training: TrainingSettings = TrainingSettings()
    label: str | None = None
    """What the variant is called in tables."""

    @property
    def title(self) -> str:
        """What `--only` looks at and progress shows."""
        variant = f" ({self.label})" if self.label else ""
        return f"{self.data}/{self.model}{variant}/seed {self.seed}"


class _Table(Settings):
    """A table of the file, in which data, model and seed may be lists."""

    data: str | list[str]
    model: str | list[str]
    seed: int | list[int] = 0
    encoder: str | None = None
    readout: str | None = None
    published: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None

    def runs(self) -> list[Run]:
        shared = self.model_dump(exclude={"data", "model", "seed", "training"})
        return [
            Run(
                data=data,
                model=model,
                seed=seed,
                training=TrainingSettings(**{**self.training, "seed": seed}),
                **shared,
            )
            for data, model, seed in product(_list(self.data), _list(self.model), _list(self.seed))
        ]


class _File(Settings):
    runs: list[_Table]


def read_experiment(path: Path) -> list[Run]:
    """All runs of an experiment, in the order of the file; a run that is listed twice counts once."""
    try:
        tables = _File.model_validate(tomllib.loads(path.read_text()))
        runs = [run for table in tables.runs for run in table.runs()]
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}).") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not TOML ({error}).") from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {explain_validation(error)}") from None
    return [run for index, run in enumerate(runs) if run not in runs[:index]]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
