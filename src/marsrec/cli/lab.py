"""Commands of the lab."""

import fnmatch
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Json
from marsrec.errors import SettingsError
from marsrec.lab.paper import METRICS

if TYPE_CHECKING:
    from marsrec.lab import experiment as experiments
    from marsrec.lab.experiment import Run
    from marsrec.lab.runner import Place

lab = typer.Typer(help="Run experiments, and keep their results.", no_args_is_help=True)

Experiment = Annotated[Path, typer.Argument(help="A TOML file of runs, such as experiments/main.toml.")]
Results = Annotated[Path, typer.Option(help="Folder of the results.")]
Runs = Annotated[Path, typer.Option(help="Folder of trained models and unfinished trainings.")]
Only = Annotated[str | None, typer.Option(help="Runs whose title has this in it, such as beauty or mars-t*seed 0.")]

LEFT = "minutes left"
"""Column of the status: how long a run may still take."""


@lab.command()
def run(
    experiment: Experiment,
    only: Only = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop then; the next call goes on.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, each with a share of the cores.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="Send the runs to a Ray cluster: its address, auto, or local to start one here."),
    ] = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
) -> None:
    """Do what is missing of an experiment. It may be killed and called again at any time."""
    from marsrec.lab.runner import run_all

    asked, chosen = _chosen(experiment, only, runs, results)
    deadline = None if max_minutes is None else time.time() + 60 * max_minutes
    done = sum(place.progress() == "done" for _, place in chosen)
    console.note(f"{len(chosen)} runs, {done} of them done.")
    left: dict[str, Callable[[], object]] = {}
    try:
        finished = run_all(chosen, max_minutes=max_minutes, workers=workers, ray=ray)
        if finished and only is None:
            left = _measurements(asked, results)
            while left and (deadline is None or time.time() < deadline):
                left.pop(next(iter(left)))()
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second
        console.note("\nStopped. The same command goes on.")
        raise typer.Exit(130) from None
    if left:
        console.note(f"\nOut of time, with {' and '.join(left)} left. The same command goes on.")
    elif finished:
        console.note(f"All done. Results are in {results}; `marsrec lab status {experiment}` shows them.")
    else:
        console.note("\nOut of time. The same command goes on.")


@lab.command()
def status(
    experiment: Annotated[Path | None, typer.Argument(help="A TOML file of runs; all results if not given.")] = None,
    only: Only = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show what is done, begun and missing of an experiment, and how long the rest may take; or list all results."""
    from marsrec.lab.results import read_results

    found = read_results(results)
    rows: list[dict[str, Any]] = []
    left: dict[str, Any] = {}
    if experiment is None:
        for result in sorted(found, key=lambda r: (r.data, r.model, r.training.seed)):
            rows.append({"run": result.name, **_measured(result)})  # a file's, which tells the same model's apart
    else:
        from marsrec.lab.forecast import expected_minutes

        by_name = {result.name: result for result in found}
        for run, place in _chosen(experiment, only, runs, results)[1]:
            state = place.progress()
            row: dict[str, Any] = {"run": run.title, "state": state}
            if state == "done":
                row |= {**_measured(by_name[place.name]), LEFT: 0.0}
            else:
                expected = expected_minutes(run, place, found)
                row |= {**dict.fromkeys(METRICS, ""), "best epoch": "", "minutes": ""}
                if state in ("begun", "running"):
                    row["best epoch"] = f"{len(place.curve())} epochs so far"
                row[LEFT] = None if expected is None else round(expected, 1)
            rows.append(row)
        known = [row[LEFT] for row in rows if row[LEFT] is not None]
        left = {LEFT: round(sum(known), 1), "runs of unknown length": len(rows) - len(known)}
    if as_json:
        console.as_json({"runs": rows, **left})
    elif rows:
        cells = [["not known" if cell is None else cell for cell in row.values()] for row in rows]
        console.table("Runs (test × 100, all items ranked)", list(rows[0]), cells)
        if left.get(LEFT):
            console.note(f"The rest may take {left[LEFT] / 60:.1f} hours, by their own epochs or by similar runs.")
        if unknown := left.get("runs of unknown length"):
            console.note(f"How long {unknown} of them may take is not known: nothing similar was run.")
    else:
        console.note(
            f"{results}: no results yet. `marsrec lab run EXPERIMENT` or `marsrec lab record RUN` writes them."
        )


@lab.command()
def report(
    results: Results = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("docs/results"),
) -> None:
    """Write all tables and figures from the results, beside the paper's: Markdown, SVG and PNG, and one HTML page."""
    from marsrec.lab import report as reports
    from marsrec.lab.results import read_results

    found = read_results(results)
    if not found:
        raise SettingsError(f"{results}: no results to report. `marsrec lab run EXPERIMENT` makes them.")
    written = reports.report(found, results, out)
    console.note(f"{len(written)} files in {out}, from {len(found)} results. Open {written[-1]} in a browser.")


@lab.command()
def theory(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller samples: a minute instead of many.")] = False,
    results: Results = Path("results"),
) -> None:
    """Put the paper's propositions to the test, in numbers; `marsrec lab report` shows them."""
    from marsrec.atomic import atomic_file
    from marsrec.lab import theory as theories

    if quick and _has_theory(results, quick=False):
        raise SettingsError(
            f"{_theory_file(results)}: measured in full already. Delete it first, or name other --results."
        )
    console.note("Approximation by mixtures of exponentials, identifiability on hawkes data, cost of the operator …")
    measured = theories.measure(quick=quick)
    path = _theory_file(results)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(measured, indent=1) + "\n")
    console.note(f"{path} written. `marsrec lab report` makes tables and figures of it.")


@lab.command()
def efficiency(
    data: Annotated[list[str], typer.Argument(help="Data sets at whose size to measure, such as beauty ml-1m hawkes.")],
    results: Results = Path("results"),
) -> None:
    """Measure what all recipes cost, side by side, unless that was done; `marsrec lab report` shows it."""
    from marsrec.lab.efficiency import measured

    for name in data:
        console.note(f"{measured(name, results)}")


@lab.command()
def inspect(
    saved: Annotated[Path, typer.Argument(help="A folder that `marsrec fit` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("inspection"),
) -> None:
    """Show what a trained model learned: time scales, gate, attention, example users. Markdown and one HTML page."""
    from marsrec.lab import inspection_page
    from marsrec.lab.inspection import inspect as look
    from marsrec.lab.page import write_report
    from marsrec.recommender import Recommender

    section = inspection_page.section(saved.name, look(Recommender.load(saved)))
    written = write_report([section], out, title=section.title, lead=f"What `{saved.name}` learned.")
    console.note(f"{len(written)} files in {out}. Open {written[-1]} in a browser.")


@lab.command()
def record(
    saved: Annotated[list[Path], typer.Argument(help="Folders that `marsrec fit` wrote.")],
    results: Results = Path("results"),
    data: Annotated[str | None, typer.Option(help="Name of the data, where a folder does not tell it.")] = None,
) -> None:
    """Write one JSON per saved model, after repeating its test."""
    from marsrec.lab import results as lab_results

    for folder in saved:
        console.note(f"{folder} -> {lab_results.record(folder, results, data)}")


def _chosen(
    path: Path, only: str | None, runs: Path, results: Path
) -> "tuple[experiments.Experiment, list[tuple[Run, Place]]]":
    from marsrec.lab.experiment import read_experiment
    from marsrec.lab.runner import place_of

    asked = read_experiment(path)
    listed = [run for run in asked.runs if only is None or fnmatch.fnmatch(run.title, f"*{only}*")]
    if only is not None and not listed:
        raise SettingsError(f"{path}: no run with {only!r} in its title.")
    chosen: dict[str, tuple[Run, Place]] = {}
    for run in listed:  # two labels may mean the same run
        place = place_of(run, runs, results)
        chosen.setdefault(place.name, (run, place))
    return asked, list(chosen.values())


def _measurements(asked: "experiments.Experiment", results: Path) -> dict[str, Callable[[], object]]:
    """What an experiment asks for beside its runs and is not there yet."""
    from marsrec.lab.efficiency import FOLDER, measured

    quick = asked.theory == "quick"
    missing: dict[str, Callable[[], object]] = {
        f"the efficiency on {data}": partial(measured, data, results)
        for data in asked.efficiency
        if not (results / FOLDER / f"{data}.json").exists()
    }
    if asked.theory is not None and not _has_theory(results, quick=quick, current=not quick):
        missing["the theory"] = partial(theory, quick=quick, results=results)
    return missing


def _theory_file(results: Path) -> Path:
    from marsrec.lab.report import THEORY

    return results / THEORY


def _has_theory(results: Path, *, quick: bool, current: bool = False) -> bool:
    """Whether the propositions were put to the test, as thoroughly at least, and as they are now if that is asked."""
    from marsrec.lab import theory as theories

    path = _theory_file(results)
    if not path.exists():
        return False
    measured = json.loads(path.read_text())
    return (quick or not measured["quick"]) and (not current or theories.current(measured))


def _measured(result: Any) -> dict[str, Any]:
    return {
        **{name: f"{100 * result.test[name]:.2f}" for name in METRICS},
        "best epoch": f"{result.best_epoch} of {result.epochs}",
        "minutes": round(result.minutes, 1),
    }
