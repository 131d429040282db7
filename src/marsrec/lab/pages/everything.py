"""All results, whatever their settings."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.lab.comparison import METRICS, data_and_part, parts_of
from marsrec.lab.page import Section, Table, digits
from marsrec.lab.results import Result
from marsrec.training.settings import MONITOR


def section(found: Sequence[Result], folder: Path) -> Section:
    """A row per result."""
    rows = [
        [
            data_and_part(result),
            result.model,
            *(f"{100 * result.figures[1][metric]:.2f}" for metric in METRICS),
            f"{100 * result.valid[MONITOR]:.2f}",
            f"{result.best_epoch} of {result.epochs}",
            digits(result.undisturbed_minutes),
            _dropouts(result),
            f"{result.training.targets_per_batch:,}",
            str(result.training.seed),
            result.name,
        ]
        for result in sorted(found, key=lambda r: (r.data, r.model, r.training.seed))
    ]
    columns = ["data", "model", *METRICS, f"valid {MONITOR}"]
    columns += ["best epoch", "minutes", "dropout", "batch", "seed", "file"]
    text = (
        f"Every run that has a file in `{folder.name}/`. {parts_of(found)} × 100; dropout is the encoder's and the "
        "user vector's, batch the targets of a step. All settings and the training curve are in the file."
    )
    return Section("everything", "All runs", [text, Table(columns, rows)])


def _dropouts(result: Result) -> str:
    return " / ".join(f"{getattr(part, 'dropout', 0):g}" for part in (result.settings.encoder, result.settings.readout))
