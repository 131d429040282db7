"""The command that searches settings."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.fit import SHORTHANDS, note_yardsticks, setting
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
    flag,
)
from marsrec.errors import SettingsError

if TYPE_CHECKING:
    from marsrec.data.splits import SplitSettings
    from marsrec.lab.tuning import Tuned
    from marsrec.settings import Settings
    from marsrec.training.settings import TrainingSettings

PICTURE = "tuning.png"
SHOWN = 10
"""Trials in the table."""


def tune(
    data: Data,
    *,
    model: Annotated[
        str, typer.Option(help="The recipe whose settings are searched; see `marsrec fit`.", rich_help_panel=MODEL)
    ] = "mars",
    parts: Annotated[dict[str, Any], PartNames(MODEL)],
    options: Annotated[dict[str, Any], Shorthands(SHORTHANDS, MODEL)],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Keep a model setting, by its dotted name, at this value; may be repeated.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    published: Published = False,
    training: Annotated[
        "TrainingSettings",
        Fields(
            "marsrec.training.settings",
            TRAIN,
            without=("pool", "logger", "max_minutes"),
            names={"preset": "--training"},
        ),
    ],
    split: Annotated["SplitSettings", Fields("marsrec.data.splits", TRAIN, names={"name": "--split"})],
    log_settings: Log,
    filters: Filters,
    ties: TiesOption = "file",
    minutes: Annotated[float, typer.Option(help="Minutes of training, over all calls.")] = 30.0,
    trials: Annotated[int, typer.Option(help="The most trials.")] = 50,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search and its results; runs/tune-DATA-MODEL if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Search the settings of a model on validation data, and measure the best and the default on the test.

    Settings that are given are kept. The others of docs/tuning.md are searched. The same command resumes a search.
    """
    from marsrec.data.source import called
    from marsrec.lab.tuning import MODEL as WINNER
    from marsrec.lab.tuning import tune
    from marsrec.recommender import Recommender

    base = Recommender(
        model,
        **parts,
        options={**options, **dict(map(setting, settings or []))},
        published=published,
        training=training,
    )
    folder = out or Path("runs") / f"tune-{called(Path(data))}-{model}"
    console.note(f"The search is kept in {folder}. If it is stopped, the same command goes on with it.")
    try:
        found = tune(
            data,
            base,
            out=folder,
            minutes=minutes,
            trials=trials,
            log_settings=log_settings,
            filters=filters,
            ties=ties,
            split=split,
        )
    except (KeyboardInterrupt, SystemExit):
        console.note("\nStopped. The same command goes on.")
        raise typer.Exit(130) from None
    model_folder = found.folder / WINNER
    reading = [*_flags(log_settings), *_flags(filters), *_flags(split, {"name": "--split"})]
    reading += ["--ties", ties] if ties != "file" else []
    command = ["marsrec", "fit", data, *_fit_options(found.recommender, parts), *reading]
    picture = _draw(found)
    if as_json:
        console.as_json(
            {
                **json.loads((found.folder / "tuned.json").read_text(encoding="utf-8")),
                "folder": str(model_folder),
                "command": console.command(*command),
                "trials": found.trials.to_dicts(),
            }
        )
        return
    _show(found, folder)
    console.sentence(found.verdict())
    console.note(
        "The winner was chosen on validation data alone. Chance flatters the highest of many validation figures; the "
        "figure of another seed is not flattered."
    )
    note_yardsticks(found.recommender)
    if picture is not None:
        console.note(f"Picture: {picture}")
    console.note(f"Saved to {model_folder}; the default to {found.folder / 'default'}. The same model comes from:")
    console.note(f"  {console.command(*command)}")
    console.note("Next:")
    console.note(
        f"  {console.command('marsrec', 'recommend', model_folder, '--user', found.recommender.user_ids()[0])}"
    )
    console.note(f"  {console.command('marsrec', 'compare', model_folder, found.folder / 'default')}")


def _show(found: "Tuned", folder: Path) -> None:
    """Show the default and the best trials."""
    trials = found.trials
    names = [name for name in trials.columns[6:] if trials[name].n_unique() > 1]
    rows = [
        [
            "default" if row["trial"] == 0 else str(row["trial"]),
            row["state"],
            f"{100 * row['valid']:.2f}",
            "" if row["other_seed"] is None else f"{100 * row['other_seed']:.2f}",
            row["epochs"],
            f"{row['minutes']:.1f}",
            *(str(row[name]) for name in names),
        ]
        for row in trials.head(1 + SHOWN).to_dicts()
    ]
    called = (name.removeprefix("training.").replace(".", " ").replace("_", " ") for name in names)
    columns = ["trial", "state", "valid", "other seed", "epochs done", "minutes", *called]
    console.table(f"Validation NDCG@10 × 100 of the best {min(SHOWN, trials.height - 1)} trials", columns, rows)
    left = trials.height - 1 - SHOWN
    if left > 0:
        console.note(f"{left} more in {folder / 'trials.csv'}.")


def _draw(found: "Tuned") -> Path | None:
    """The picture, where it can be drawn."""
    from marsrec.lab.tuning_picture import draw_tuning

    if found.trials.height < 2:
        return None
    try:
        draw_tuning(found, found.folder / PICTURE)
    except SettingsError as error:  # the search is worth more than its picture
        console.note(f"No picture: {error}")
        return None
    return found.folder / PICTURE


def _fit_options(recommender: Any, parts: Mapping[str, Any]) -> Iterator[str]:
    """Options of `marsrec fit` that make the same model."""
    yield from ("--model", recommender.name)
    for kind, name in parts.items():
        if name is not None:
            yield from (flag(kind), name)
    for name, value in recommender.options.items():
        yield from ("--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    if recommender.published:
        yield "--published"
    yield from _flags(recommender.training, {"preset": "--training"})


def _flags(settings: "Settings", names: Mapping[str, str] | None = None) -> Iterator[str]:
    """Options for settings that differ from their defaults."""
    for name, value in settings.model_dump(mode="json", exclude_defaults=True, exclude_none=True).items():
        for one in value if isinstance(value, list) else [value]:
            option = (names or {}).get(name, flag(name))
            yield from [option] if one is True else [option, str(one)]
