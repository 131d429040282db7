"""The command that trains."""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from marsrec.cli import console
from marsrec.cli.options import (
    MODEL,
    TRAIN,
    Data,
    Deduplicate,
    DropBadRows,
    Item,
    Json,
    MaxItemEvents,
    MaxUserEvents,
    MinItemEvents,
    MinRating,
    MinUserEvents,
    Rating,
    TiesOption,
    Time,
    Unit,
    User,
    open_with,
)
from marsrec.errors import SettingsError


def fit(
    data: Data,
    model: Annotated[str, typer.Option(help="A recipe of `marsrec models`, or mars.", rich_help_panel=MODEL)] = "mars",
    out: Annotated[Path | None, typer.Option(help="Folder to write; runs/DATA-MODEL if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a killed run stopped.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
    encoder: Annotated[str | None, typer.Option(help="Another encoder.", rich_help_panel=MODEL)] = None,
    readout: Annotated[str | None, typer.Option(help="Another readout.", rich_help_panel=MODEL)] = None,
    length: Annotated[int | None, typer.Option(help="Latest events looked at.", rich_help_panel=MODEL)] = None,
    dim: Annotated[int | None, typer.Option(help="Width of embeddings.", rich_help_panel=MODEL)] = None,
    heads: Annotated[int | None, typer.Option(help="Decay rates of MARS.", rich_help_panel=MODEL)] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout of the encoder.", rich_help_panel=MODEL)] = None,
    clock: Annotated[
        Literal["last-event", "request"] | None,
        typer.Option(help="From when MARS measures ages.", rich_help_panel=MODEL),
    ] = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Do what a baseline's published code does, not its paper.", rich_help_panel=MODEL
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any model setting, such as readout.time_scale=linear.", rich_help_panel=MODEL),
    ] = None,
    epochs: Annotated[int, typer.Option(help="At most this many.", rich_help_panel=TRAIN)] = 200,
    patience: Annotated[int, typer.Option(help="Epochs without a better NDCG@10.", rich_help_panel=TRAIN)] = 20,
    learning_rate: Annotated[float, typer.Option(help="Adam's.", rich_help_panel=TRAIN)] = 1e-3,
    targets_per_batch: Annotated[
        int | None,
        typer.Option(help="Events per step; 2048, or the recipe's own (fearec: 256).", rich_help_panel=TRAIN),
    ] = None,
    overlap: Annotated[float, typer.Option(help="Share of a window that is context.", rich_help_panel=TRAIN)] = 0.5,
    prefix_share: Annotated[
        float, typer.Option(help="Share of the prefixes per epoch, for models not causal.", rich_help_panel=TRAIN)
    ] = 1.0,
    sampled_negatives: Annotated[
        int, typer.Option(help="Sampled softmax over this many items; 0 is the full softmax.", rich_help_panel=TRAIN)
    ] = 0,
    seed: Annotated[int, typer.Option(help="All randomness follows from it.", rich_help_panel=TRAIN)] = 0,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop then and keep the best.", rich_help_panel=TRAIN)
    ] = None,
    accelerator: Annotated[str, typer.Option(help="cpu, gpu or auto.", rich_help_panel=TRAIN)] = "auto",
    devices: Annotated[
        str, typer.Option(help="How many devices: auto is one, -1 all.", rich_help_panel=TRAIN)
    ] = "auto",
    precision: Annotated[
        Literal["32-true", "bf16-mixed", "16-mixed"], typer.Option(help="Number format.", rich_help_panel=TRAIN)
    ] = "32-true",
    split: Annotated[
        Literal["leave-one-out", "global-time"], typer.Option(help="What is held out.", rich_help_panel=TRAIN)
    ] = "leave-one-out",
    valid_from: Annotated[
        str | None, typer.Option(help="global-time: fraction or date; 0.8 if not given.", rich_help_panel=TRAIN)
    ] = None,
    test_from: Annotated[
        str | None, typer.Option(help="global-time: fraction or date; 0.9 if not given.", rich_help_panel=TRAIN)
    ] = None,
    user: User = None,
    item: Item = None,
    time: Time = None,
    rating: Rating = None,
    min_rating: MinRating = None,
    unit: Unit = "auto",
    deduplicate: Deduplicate = False,
    drop_bad_rows: DropBadRows = False,
    min_user_events: MinUserEvents = 1,
    max_user_events: MaxUserEvents = None,
    min_item_events: MinItemEvents = 1,
    max_item_events: MaxItemEvents = None,
    ties: TiesOption = "file",
    as_json: Json = False,
) -> None:
    """Train a model on a log, evaluate it, and save it."""
    import torch.distributed

    from marsrec.data.moments import spell_duration
    from marsrec.data.splits import SplitSettings
    from marsrec.models import title
    from marsrec.recommender import Recommender
    from marsrec.training.fit import CHECKPOINT
    from marsrec.training.settings import TrainingSettings

    reading = locals()
    chosen = {"length": length, "dim": dim, "readout.heads": heads, "encoder.dropout": dropout, "readout.clock": clock}
    options = {name: value for name, value in chosen.items() if value is not None}
    options |= dict(_setting(text) for text in settings or [])
    given = {} if targets_per_batch is None else {"targets_per_batch": targets_per_batch}
    training = TrainingSettings(
        **given,
        epochs=epochs,
        patience=patience,
        learning_rate=learning_rate,
        overlap=overlap,
        prefix_share=prefix_share,
        sampled_negatives=sampled_negatives,
        seed=seed,
        max_minutes=max_minutes,
        accelerator=accelerator,
        devices=int(devices) if devices.removeprefix("-").isdigit() else devices,
        precision=precision,
    )
    if split == "leave-one-out" and (valid_from, test_from) != (None, None):
        raise SettingsError("--valid-from and --test-from belong to --split global-time.")
    split_settings = SplitSettings(
        name=split, valid_from=_moment(valid_from or "0.8"), test_from=_moment(test_from or "0.9")
    )
    recommender = Recommender(
        model, encoder=encoder, readout=readout, options=options, published=published, training=training
    )
    source = open_with(reading, data)
    average = split_settings.apply(source.histories).average_length
    name = title(recommender.planned_settings(average, source.public))
    folder = out or Path("runs") / f"{source.name}-{name}".replace(",", "").replace(" + ", "-").replace(" ", "-")
    state = _state_folder(folder, resume, overwrite)
    try:
        recommender.fit(source, split=split_settings, folder=state, resume=resume)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second
        console.note("\nStopped. The same command with --resume goes on from the last whole epoch, if there was one.")
        raise typer.Exit(130) from None
    if torch.distributed.is_initialized() and torch.distributed.get_rank() > 0:  # of several processes one saves
        return
    measured = recommender.metrics
    recommender.save(folder)
    if measured["complete"]:
        (state / CHECKPOINT).unlink(missing_ok=True)
        shutil.move(state, folder / "training")
    if as_json:
        console.as_json({"folder": str(folder), **measured})
        return
    shown = {part: measured[part] for part in ("valid", "test")}
    console.metrics(f"{name} on {source.name} (× 100, all items ranked, history not masked)", shown)
    console.note(
        f"Best epoch {measured['best_epoch']} of {measured['epochs']}, {spell_duration(60 * measured['minutes'])}."
    )
    if not measured["complete"]:
        console.note(
            "The time limit cut the training short; the same command with --resume trains on."
            if (state / CHECKPOINT).exists()
            else "The time limit was shorter than an epoch, so there is nothing that --resume could go on from."
        )
    example = source.histories.user_ids.ids[0]
    console.note(f"Saved to {folder}. Next:")
    console.note(f"  marsrec recommend {folder} --user {example}")
    if recommender.settings.readout.name == "mars":
        console.note(f"  marsrec explain {folder} --user {example}")
    console.note(f"  marsrec evaluate {folder} --mask-seen")


def _state_folder(folder: Path, resume: bool, overwrite: bool) -> Path:
    """Where training keeps its state until it is done: beside the model's folder, which then appears in one step."""
    from marsrec.atomic import refuse_foreign
    from marsrec.recommender.persistence import CONFIG
    from marsrec.training.fit import CHECKPOINT

    refuse_foreign(folder, CONFIG)
    state = folder.with_name(f"{folder.name}.training")
    started = (state / CHECKPOINT).exists()
    if resume and not started:
        if not state.exists():
            finished = (folder / CONFIG).exists()
            raise SettingsError(
                f"{folder}: there is no unfinished training to resume"
                + ("; the one there is finished. --overwrite trains anew." if finished else ". Leave --resume out.")
            )
        console.note(f"{state}: no epoch was finished; training starts from the beginning.")
    if not resume and not overwrite:
        if started:
            raise SettingsError(
                f"{state}: holds an unfinished training. --resume goes on with it, --overwrite starts over."
            )
        if (folder / CONFIG).exists():
            raise SettingsError(f"{folder}: holds a saved model. Choose another --out, or --overwrite it.")
    return state


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--set takes NAME=VALUE, such as readout.heads=8; found {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _moment(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
