"""The command that trains."""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import (
    MODEL,
    TRAIN,
    Data,
    Fields,
    Filters,
    Json,
    Log,
    PartNames,
    Published,
    Shorthands,
    TiesOption,
)
from marsrec.errors import SettingsError

if TYPE_CHECKING:
    from marsrec.data.splits import SplitSettings
    from marsrec.recommender import Recommender
    from marsrec.training.settings import TrainingSettings

SHORTHANDS = {
    "length": "length",
    "dim": "dim",
    "heads": "readout.heads",
    "dropout": "encoder.dropout",
    "clock": "readout.clock",
}
"""Model settings that have an option of their own; `--set` reaches all."""


def fit(
    data: Data,
    *,
    model: Annotated[
        str,
        typer.Option(
            help="A recipe that `marsrec models` lists; mars takes mars-t or mars-m, by the data.",
            rich_help_panel=MODEL,
        ),
    ] = "mars",
    parts: Annotated[dict[str, Any], PartNames(MODEL)],
    options: Annotated[dict[str, Any], Shorthands(SHORTHANDS, MODEL)],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any model setting by its dotted name, such as readout.time_scale=linear; may be repeated. "
            "`marsrec models mars-t` prints all of mars-t, and so for every recipe.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    published: Published = False,
    training: Annotated[
        "TrainingSettings",
        Fields("marsrec.training.settings", TRAIN, without=("pool",), names={"preset": "--training"}),
    ],
    split: Annotated["SplitSettings", Fields("marsrec.data.splits", TRAIN, names={"name": "--split"})],
    log_settings: Log,
    filters: Filters,
    ties: TiesOption = "file",
    out: Annotated[Path | None, typer.Option(help="Folder to write; runs/DATA-MODEL if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a killed run.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the contents of the folder.")] = False,
    as_json: Json = False,
) -> None:
    """Train a model on a log, evaluate it, and save it."""
    import torch.distributed

    from marsrec.atomic import LOCK, alone
    from marsrec.compute.memory import exhausted
    from marsrec.data.source import open_data
    from marsrec.models import title
    from marsrec.recommender import Recommender

    if split.name == "leave-one-out" and split.model_fields_set & {"valid_from", "test_from"}:
        raise SettingsError("--valid-from and --test-from belong to --split global-time.")
    recommender = Recommender(  # bad settings are refused before data are read
        model,
        **parts,
        options={**options, **dict(map(setting, settings or []))},
        published=published,
        training=training,
    )
    source = open_data(data, log_settings=log_settings, filters=filters, ties=ties)
    name = title(recommender.planned_settings(split.apply(source.histories).average_length, source.public))
    named = name.removesuffix(", repeats") if model == "mars" else name  # which mars has on every log of one's own
    folder = out or Path("runs") / f"{source.name}-{named}".replace(",", "").replace(" + ", "-").replace(" ", "-")
    checkpoint = _checkpoint(folder, resume, overwrite)
    console.note("If this run is stopped, the same command with --resume goes on with it.")
    state = checkpoint.parent
    try:
        # Lightning starts the other processes of one training by the same command.
        with nullcontext() if os.environ.get("LOCAL_RANK", "0") != "0" else alone(state, "training"):
            recommender.fit(source, split=split, folder=state, resume=resume)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second
        console.note("\nStopped. The same command with --resume goes on from the last whole epoch, if there was one.")
        raise typer.Exit(130) from None
    except (OSError, MemoryError, RuntimeError) as error:
        if (found := exhausted(error)) is None:
            raise
        raise SettingsError(f"{state}: {found} Then the same command with --resume goes on.") from error
    if torch.distributed.is_initialized() and torch.distributed.get_rank() > 0:  # of several processes one saves
        return
    recommender.save(folder)
    if recommender.metrics["complete"]:
        checkpoint.unlink(missing_ok=True)
        (state / LOCK).unlink(missing_ok=True)
        shutil.move(state, folder / "training")
    if as_json:
        console.as_json({"folder": str(folder), **recommender.metrics})
    else:
        _show(recommender, source.name, folder, resumable=checkpoint.exists())


def _show(recommender: "Recommender", data: str, folder: Path, resumable: bool) -> None:
    """Show how the training went, and what can be done next."""
    from marsrec.data.moments import spell_duration

    measured = recommender.metrics
    shown = {part: measured[part] for part in ("valid", "test")}
    console.metrics(f"{measured['model']} on {data} (× 100, all items ranked, history not masked)", shown)
    untrained = measured["yardsticks"]["test"]
    console.metrics("The same test without training (× 100)", untrained)
    note_yardsticks(recommender)
    console.note(
        f"Best epoch {measured['best_epoch']} of {measured['epochs']}, {spell_duration(60 * measured['minutes'])}."
    )
    if not measured["complete"]:
        console.note(
            "The time limit cut the training short; the same command with --resume trains on."
            if resumable
            else "The time limit was shorter than an epoch, so there is nothing that --resume could go on from."
        )
    example = recommender.user_ids()[0]
    console.note(f"Saved to {folder}. Next:")
    console.note(f"  {console.command('marsrec', 'recommend', folder, '--user', example)}")
    if recommender.network.splits:
        console.note(f"  {console.command('marsrec', 'explain', folder, '--user', example)}")
    console.note(f"  {console.command('marsrec', 'evaluate', folder, '--mask-seen')}")


def note_yardsticks(recommender: "Recommender") -> None:
    """Say so where a ranking that needs no training is better on the test."""
    from marsrec.training.settings import MONITOR

    measured, untrained = recommender.metrics["test"], recommender.metrics["yardsticks"]["test"]
    best = max(untrained, key=lambda name: untrained[name][MONITOR])
    if measured[MONITOR] < untrained[best][MONITOR]:
        console.note(
            f"{best!r} needs no training and has the higher {MONITOR} here. Train longer, or take another model."
        )


def _checkpoint(folder: Path, resume: bool, overwrite: bool) -> Path:
    """Where training keeps its state until it is done: beside the model's folder, which then appears in one step."""
    from marsrec.atomic import recover, refuse_foreign
    from marsrec.recommender.persistence import CONFIG
    from marsrec.training.settings import CHECKPOINT

    recover(folder)
    refuse_foreign(folder, CONFIG)
    state = folder.with_name(f"{folder.name}.training")
    checkpoint = state / CHECKPOINT
    started = checkpoint.exists()
    if resume and not started:
        if not state.exists():
            finished = (folder / CONFIG).exists()
            raise SettingsError(
                f"{folder}: there is no unfinished training to resume"
                + ("; the one there is finished. --overwrite trains again." if finished else ". Leave --resume out.")
            )
        console.note(f"{state}: no epoch was finished; training starts from the beginning.")
    if not resume and not overwrite:
        if started:
            raise SettingsError(
                f"{state}: holds an unfinished training. --resume goes on with it, --overwrite starts over."
            )
        if (folder / CONFIG).exists():
            raise SettingsError(f"{folder}: holds a saved model. Choose another --out, or --overwrite it.")
    return checkpoint


def setting(text: str) -> tuple[str, Any]:
    """Name and value of a model setting as --set gives them."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--set takes NAME=VALUE, such as readout.heads=8; found {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
