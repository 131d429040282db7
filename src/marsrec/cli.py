"""The command line. Each command is a few lines around a function that can be called from Python as well."""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from marsrec import show
from marsrec.errors import MarsrecError, SettingsError

app = typer.Typer(
    name="marsrec",
    help="Recommend the next item from timestamped histories.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LOG, MODEL, TRAIN = "Reading the log", "The model", "Training"

Data = Annotated[str, typer.Argument(help="A log file, a prepared folder, or a name that `marsrec datasets` lists.")]
Saved = Annotated[Path, typer.Argument(help="A folder that `marsrec fit` wrote.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
User = Annotated[str | None, typer.Option("--user", help="Column of the users.", rich_help_panel=LOG)]
Item = Annotated[str | None, typer.Option("--item", help="Column of the items.", rich_help_panel=LOG)]
Time = Annotated[str | None, typer.Option("--time", help="Column of the times.", rich_help_panel=LOG)]
Rating = Annotated[str | None, typer.Option("--rating", help="Column of the ratings.", rich_help_panel=LOG)]
MinRating = Annotated[float | None, typer.Option(help="Leave out lower ratings.", rich_help_panel=LOG)]
Unit = Annotated[
    Literal["auto", "s", "ms", "us", "ns"], typer.Option(help="Unit of numeric times.", rich_help_panel=LOG)
]
Deduplicate = Annotated[bool, typer.Option("--deduplicate", help="Drop exact repeats.", rich_help_panel=LOG)]
DropBadRows = Annotated[
    bool, typer.Option("--drop-bad-rows", help="Drop and count unusable rows instead of stopping.", rich_help_panel=LOG)
]
MinUserEvents = Annotated[int, typer.Option(help="Users with fewer events go.", rich_help_panel=LOG)]
MaxUserEvents = Annotated[int | None, typer.Option(help="Users with this many events or more go.", rich_help_panel=LOG)]
MinItemEvents = Annotated[int, typer.Option(help="Items with fewer events go.", rich_help_panel=LOG)]
MaxItemEvents = Annotated[int | None, typer.Option(help="Items with this many events or more go.", rich_help_panel=LOG)]
TiesOption = Annotated[
    Literal["file", "recbole"],
    typer.Option(help="Order of equal times: as in the file, or as RecBole rounds them.", rich_help_panel=LOG),
]


@app.command()
def datasets(as_json: Json = False) -> None:
    """List the public data sets that marsrec knows, and which are present."""
    from marsrec.data.catalog import CATALOG, locate

    rows = [
        {
            "name": entry.name,
            "users": entry.expected.users,
            "items": entry.expected.items,
            "interactions": entry.expected.interactions,
            "title": entry.title,
            "found": str(locate(entry.name) or ""),
            "source": entry.urls[0] if entry.urls else entry.homepage,
            "licence": entry.licence,
            "citation": entry.citation,
        }
        for entry in CATALOG.values()
    ]
    if as_json:
        show.as_json(rows)
        return
    columns = ["name", "users", "items", "interactions", "title", "found"]
    shown = [[*(row[c] for c in columns[:-1]), row["found"] or "not here"] for row in rows]
    show.table("Data sets", columns, shown)
    show.note("`marsrec fit NAME` finds NAME.parquet in $MARSREC_DATA or the cache, or downloads it from its source.")
    show.note("`hawkes` is always there: a synthetic log in which time decides.")


@app.command()
def prepare(
    log: Data,
    out: Annotated[Path | None, typer.Option(help="Folder to write; without it only the statistics are shown.")] = None,
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
    """Read, check and filter a log, and write histories that open at once."""
    source = _open(locals(), log)
    statistics = source.histories.statistics()
    if out is not None:
        source.histories.save(out)
    if as_json:
        show.as_json({**statistics, "notes": source.notes, "folder": str(out) if out else None})
        return
    show.table(source.name, ["", ""], [[name.replace("_", " "), value] for name, value in statistics.items()])
    if out is not None:
        show.note(f"Written to {out}. Next: marsrec fit {out}")
    else:
        show.note("Nothing was written; --out FOLDER writes a prepared folder.")


@app.command()
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
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any model setting, such as readout.time_scale=linear.", rich_help_panel=MODEL),
    ] = None,
    epochs: Annotated[int, typer.Option(help="At most this many.", rich_help_panel=TRAIN)] = 200,
    patience: Annotated[int, typer.Option(help="Epochs without a better NDCG@10.", rich_help_panel=TRAIN)] = 20,
    learning_rate: Annotated[float, typer.Option(help="Adam's.", rich_help_panel=TRAIN)] = 1e-3,
    targets_per_batch: Annotated[int, typer.Option(help="Events per step.", rich_help_panel=TRAIN)] = 2048,
    sampled_negatives: Annotated[
        int, typer.Option(help="Sampled softmax over this many items; 0 is the full softmax.", rich_help_panel=TRAIN)
    ] = 0,
    seed: Annotated[int, typer.Option(help="All randomness follows from it.", rich_help_panel=TRAIN)] = 0,
    max_minutes: Annotated[
        float | None, typer.Option(help="Stop then and keep the best.", rich_help_panel=TRAIN)
    ] = None,
    accelerator: Annotated[str, typer.Option(help="cpu, gpu or auto.", rich_help_panel=TRAIN)] = "auto",
    devices: Annotated[str, typer.Option(help="How many devices.", rich_help_panel=TRAIN)] = "auto",
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed.", rich_help_panel=TRAIN)] = "32-true",
    split: Annotated[
        Literal["leave-one-out", "global-time"], typer.Option(help="What is held out.", rich_help_panel=TRAIN)
    ] = "leave-one-out",
    valid_from: Annotated[str, typer.Option(help="global-time: fraction or date.", rich_help_panel=TRAIN)] = "0.8",
    test_from: Annotated[str, typer.Option(help="global-time: fraction or date.", rich_help_panel=TRAIN)] = "0.9",
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
    from marsrec.data.splits import SplitSettings
    from marsrec.models import backbone
    from marsrec.recommender import TRAINING, Recommender
    from marsrec.training.fit import CHECKPOINT
    from marsrec.training.module import TrainingSettings

    source = _open(locals(), data)
    chosen = {"length": length, "dim": dim, "readout.heads": heads, "encoder.dropout": dropout, "readout.clock": clock}
    options = {name: value for name, value in chosen.items() if value is not None}
    options |= dict(_setting(text) for text in settings or [])
    training = TrainingSettings(
        epochs=epochs,
        patience=patience,
        learning_rate=learning_rate,
        targets_per_batch=targets_per_batch,
        sampled_negatives=sampled_negatives,
        seed=seed,
        max_minutes=max_minutes,
        accelerator=accelerator,
        devices=int(devices) if devices.isdigit() else devices,
        precision=precision,
    )
    split_settings = SplitSettings(name=split, valid_from=_moment(valid_from), test_from=_moment(test_from))
    average = split_settings.apply(source.histories).average_length
    if model == "mars":
        show.note(
            f"{average:.1f} training events per user on average: {backbone(average)}. --model NAME takes another."
        )
        model = backbone(average)
    folder = _folder(out, f"{source.name}-{model}", resume, overwrite)
    recommender = Recommender(
        model,
        encoder=encoder,
        readout=readout,
        options={**_papers(source.paper, model, readout), **options},
        training=training,
    )
    histories = source.histories
    show.note(
        f"{model} on {source.name}: {histories.n_users:,} users, {histories.n_items:,} items, "
        f"{len(histories):,} events. Ctrl-C stops; `--resume --out {folder}` goes on."
    )
    recommender.fit(histories, split=split_settings, folder=folder / TRAINING, resume=resume, progress=True)
    recommender.save(folder)
    (folder / TRAINING / CHECKPOINT).unlink(missing_ok=True)
    measured = recommender.metrics
    if as_json:
        show.as_json({"folder": str(folder), **measured})
        return
    parts = {part: measured[part] for part in ("valid", "test")}
    show.metrics(f"{model} on {source.name} (× 100, all items ranked, history not masked)", parts)
    show.note(f"Best epoch {measured['best_epoch']} of {measured['epochs']}, {measured['minutes']:.1f} minutes.")
    example = histories.user_ids.ids[0]
    show.note(f"Saved to {folder}. Next:")
    show.note(f"  marsrec recommend {folder} --user {example}")
    show.note(f"  marsrec explain {folder} --user {example}")
    show.note(f"  marsrec evaluate {folder} --mask-seen")


@app.command()
def evaluate(
    saved: Saved,
    part: Annotated[Literal["test", "valid"], typer.Option(help="Which targets.")] = "test",
    mask_seen: Annotated[bool, typer.Option("--mask-seen", help="Do not rank items of the user's past.")] = False,
    k: Annotated[list[int] | None, typer.Option(help="Cut-offs of the metrics; 5, 10 and 20 if not given.")] = None,
    ranks: Annotated[Path | None, typer.Option(help="Write every target's rank to this parquet file.")] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a saved model by full ranking, over all users and by history length."""
    from marsrec.evaluation.subgroups import DENSE_BUCKETS, SPARSE_BUCKETS, by_history_length, write_ranks
    from marsrec.models import DENSE_FROM
    from marsrec.recommender import Recommender

    recommender = Recommender.load(saved)
    ks = tuple(k or (5, 10, 20))
    evaluation = recommender.evaluate(part, mask_seen=mask_seen, ks=ks)
    split = recommender.split()
    buckets = DENSE_BUCKETS if split.average_length >= DENSE_FROM else SPARSE_BUCKETS
    groups = by_history_length(evaluation.ranks, evaluation.lengths, buckets, ks=(10,))
    if ranks is not None:
        targets = split.valid if part == "valid" else split.test
        histories = split.histories
        users = histories.user_ids.ids.gather(targets.users)
        items = histories.item_ids.decode(histories.items[targets.positions])
        write_ranks(ranks, users, items, evaluation.lengths, evaluation.ranks)
        show.note(f"Ranks written to {ranks}.")
    if as_json:
        show.as_json(
            {
                "part": part,
                "mask_seen": mask_seen,
                "metrics": evaluation.metrics,
                "by_history_length": groups.to_dicts(),
            }
        )
        return
    seen = "history masked" if mask_seen else "history not masked"
    show.metrics(f"{saved} (× 100, {part}, all items ranked, {seen})", {part: evaluation.metrics})
    rows = [[r["bucket"], r["users"], *(f"{100 * v:.2f}" for n, v in r.items() if "@" in n)] for r in groups.to_dicts()]
    show.table("By number of earlier events", ["events", "users", "HR@10", "NDCG@10", "MRR@10"], rows)


@app.command()
def recommend(
    saved: Saved,
    user: Annotated[list[str] | None, typer.Option("--user", help="A user of the log; may be repeated.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Every user of the log.")] = False,
    history: Annotated[Path | None, typer.Option(help="A log file with the histories to recommend for.")] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help="An event ITEM@TIME of one history; may be repeated.")
    ] = None,
    k: Annotated[int, typer.Option(help="How many items.")] = 10,
    at: Annotated[str | None, typer.Option(help="Moment of the request (request clock).")] = None,
    keep_seen: Annotated[bool, typer.Option("--keep-seen", help="Also items of the user's past.")] = False,
    candidate: Annotated[
        list[str] | None, typer.Option("--candidate", help="Only these items; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this .parquet or .csv file.")] = None,
    as_json: Json = False,
) -> None:
    """Recommend items for users of the log, or for histories given here."""
    from marsrec.data.log import read_log
    from marsrec.recommender import Recommender
    from marsrec.storage import atomic_file

    if sum(map(bool, (user, all_users, history, event))) != 1:
        raise SettingsError("say for whom: one of --user ID, --all-users, --history FILE or --event ITEM@TIME.")
    recommender = Recommender.load(saved)
    users: Any = user
    histories: Any = None
    if all_users:
        users = recommender.user_ids()
    if history is not None:
        histories = read_log(history)
    if event:
        histories = [_event(text) for text in event]
    table = recommender.recommend(users, histories=histories, k=k, at=at, mask_seen=not keep_seen, candidates=candidate)
    if out is not None:
        if out.suffix not in (".parquet", ".csv"):
            raise SettingsError(f"{out}: --out writes .parquet or .csv.")
        with atomic_file(out) as temporary:
            _ = table.write_parquet(temporary) if out.suffix == ".parquet" else table.write_csv(temporary)
        show.note(f"{table.height:,} recommendations written to {out}.")
    elif as_json:
        show.as_json(table.to_dicts())
    else:
        show.table(f"Recommendations of {saved}", table.columns, table.rows())
        if user:
            show.note(f"Why: marsrec explain {saved} --user {user[0]} --item {table['item'][0]}")


@app.command()
def explain(
    saved: Saved,
    user: Annotated[str | None, typer.Option("--user", help="A user of the log.")] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help="An event ITEM@TIME of one history; may be repeated.")
    ] = None,
    item: Annotated[str | None, typer.Option("--item", help="The item; the best one if not given.")] = None,
    at: Annotated[str | None, typer.Option(help="Moment of the request (request clock).")] = None,
    top: Annotated[int, typer.Option(help="How many past events to show.")] = 10,
    as_json: Json = False,
) -> None:
    """Split the score of an item exactly into past events and time scales."""
    from marsrec.recommender import Recommender

    if (user is None) == (not event):
        raise SettingsError("say whose history: --user ID or --event ITEM@TIME (repeated).")
    recommender = Recommender.load(saved)
    history: Any = user if user is not None else [_event(text) for text in event or []]
    if item is None:
        best = recommender.recommend(**{"users" if user is not None else "histories": history}, k=1, at=at)
        item = best["item"][0]
    explanation = recommender.explain(history, item, at=at)
    if as_json:
        show.as_json(
            {
                "item": item,
                "score": explanation.score,
                "last_state": explanation.last_state,
                "terms": explanation.terms.to_dicts(),
            }
        )
        return
    show_explanation(explanation, item, top)


def show_explanation(explanation: Any, item: Any, top: int) -> None:
    """Print an explanation: heads, then the past events that count most."""
    score, last = explanation.score, explanation.last_state
    show.note(f"Score of {item}: {score:.4f} = {last:.4f} last state {score - last:+.4f} past events by age")
    if explanation.terms.is_empty():
        show.note("This model reads out its last state only, so there is nothing more to split.")
        return
    heads = explanation.by_head()
    show.table(
        "By time scale",
        ["head", "half-life", "gate", "share"],
        [[r["head"], r["half_life"], f"{r['gate']:.2f}", f"{r['share']:+.4f}"] for r in heads.to_dicts()],
    )
    events = explanation.by_event().head(top)
    show.table(
        f"By past event (the {events.height} that add most)",
        ["event", "item", "age", "share"],
        [[f"-{r['event']}", r["item"], r["age"], f"{r['share']:+.4f}"] for r in events.to_dicts()],
    )


@app.command()
def models(
    items: Annotated[int, typer.Option(help="Number of items.")] = 12_101,
    length: Annotated[int, typer.Option(help="Number of latest events looked at.")] = 50,
    heads: Annotated[int, typer.Option(help="Decay rates of MARS.")] = 4,
    dim: Annotated[int, typer.Option(help="Width of embeddings.")] = 64,
    as_json: Json = False,
) -> None:
    """List every recipe with its parts and its number of parameters."""
    from marsrec.models import RECIPES, model_settings

    rows = []
    for name, recipe in RECIPES.items():
        options: dict[str, Any] = {"length": length, "dim": dim}
        if recipe.readout.name == "mars":
            options["readout.heads"] = heads
        network = model_settings(name, options=options).build(items)
        rows.append(
            {
                "name": name,
                "encoder": recipe.encoder.name,
                "readout": recipe.readout.name,
                "scorer": recipe.scorer.name,
                "objective": recipe.objective,
                "causal": network.causal,
                "time": recipe.time,
                "parameters": network.parameter_count(),
            }
        )
    if as_json:
        show.as_json(rows)
        return
    show.table(f"Recipes ({items:,} items, length {length})", list(rows[0]), [list(row.values()) for row in rows])
    show.note("`--encoder X --readout Y` of `marsrec fit` puts other parts together.")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Show versions, threads, kernels in use and data found."""
    from marsrec.doctor import examine

    findings = examine()
    if as_json:
        show.as_json(findings)
        return
    for title, rows in findings.items():
        show.table(title, ["", ""], [[name, str(value)] for name, value in rows.items()])


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo"),
) -> None:
    """Train SASRec and MARS-T on synthetic data in which time decides, and show what MARS learned."""
    from marsrec.demo import run

    run(out)


def _open(given: dict[str, Any], data: str) -> Any:
    """Open data with the reading options of a command, and print what was noticed."""
    from marsrec.data.log import LogSettings
    from marsrec.data.source import FilterSettings, open_data

    log = LogSettings(**{name: given[name] for name in LogSettings.model_fields})
    filters = FilterSettings(**{name: given[name] for name in FilterSettings.model_fields})
    source = open_data(data, log=log, filters=filters, ties=given["ties"])
    for sentence in source.notes:
        show.note(f"· {sentence}")
    return source


def _papers(paper: Any, model: str, readout: str | None) -> dict[str, Any]:
    """The paper's settings for a public data set, as far as the model has them."""
    from marsrec.models import model_settings

    if paper is None:
        return {}
    options = {"length": paper.length, "encoder.dropout": paper.dropout}
    if model_settings(model, readout=readout).readout.name == "mars":
        options["readout.heads"] = paper.heads
    return options


def _folder(out: Path | None, name: str, resume: bool, overwrite: bool) -> Path:
    """Where to write, so that nothing is lost that was not meant to be."""
    from marsrec.recommender import TRAINING
    from marsrec.training.fit import CHECKPOINT

    folder = out or Path("runs") / name
    finished, started = (folder / "config.json").exists(), (folder / TRAINING / CHECKPOINT).exists()
    if resume and not started:
        raise SettingsError(f"{folder}: there is no unfinished training to resume.")
    if not resume and not overwrite and (finished or started):
        state = "an unfinished training (--resume goes on with it)" if started else "a saved model"
        raise SettingsError(f"{folder}: holds {state}. Choose another --out, or --overwrite it.")
    return folder


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError(f"--set takes NAME=VALUE, such as readout.heads=8; found {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _event(text: str) -> tuple[str, str]:
    item, at, time = text.rpartition("@")
    if not at:
        raise SettingsError(f"an event is ITEM@TIME, such as tea@2020-01-31T12:00; found {text!r}.")
    return item, time


def _moment(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def main() -> None:
    """Run the command line; errors that the caller can put right are one sentence, not a traceback."""
    warnings.showwarning = lambda message, *args, **kwargs: show.note(f"warning: {message}")
    try:
        app()
    except MarsrecError as error:
        show.remarks.print(f"[bold red]error:[/] {_escaped(str(error))}", soft_wrap=True)
        sys.exit(1)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
