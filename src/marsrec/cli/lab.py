"""Commands of the lab."""

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Json
from marsrec.errors import SettingsError

if TYPE_CHECKING:
    from marsrec.lab.experiment import Run
    from marsrec.lab.results import Result
    from marsrec.lab.runner import Place

lab = typer.Typer(help="Run experiments, and keep their results.", no_args_is_help=True)

Experiment = Annotated[Path, typer.Argument(help="A TOML file of runs, such as experiments/main.toml.")]
Results = Annotated[Path, typer.Option(help="Folder of the results.")]
Runs = Annotated[Path, typer.Option(help="Folder of trained models and unfinished trainings.")]
Only = Annotated[str | None, typer.Option(help="Runs whose title contains this, such as beauty or mars-t*seed 0.")]

LEFT = "minutes left"
"""Column of the status: how long a run may still take."""


@lab.command()
def run(
    experiment: Experiment,
    only: Only = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after this time; the next call resumes.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Runs at a time, each with a share of the cores.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="Send the runs to a Ray cluster: its address, auto, or local to start one here."),
    ] = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
) -> None:
    """Run the missing runs of an experiment. It can be killed and started again at any time."""
    from marsrec.lab.experiment import read_experiment
    from marsrec.lab.runner import run_all

    chosen = _chosen(experiment, only, runs, results)
    done = sum(place.progress() == "done" for _, place in chosen)
    console.note(f"{len(chosen)} runs, {done} of them done.")
    try:
        finished = run_all(chosen, max_minutes=max_minutes, workers=workers, ray=ray)
    except (KeyboardInterrupt, SystemExit):  # Lightning turns the first into the second
        console.note("\nStopped. The same command goes on.")
        raise typer.Exit(130) from None
    if not finished:
        console.note("\nOut of time. The same command goes on.")
        return
    console.note(f"All done. Results are in {_folder(chosen, results)}; `marsrec lab status {experiment}` shows them.")
    if measurements := read_experiment(experiment).measurements:
        console.note(
            f"The file also names {', '.join(measurements)}, of the paper alone: "
            f"`python -m reproduction measure {experiment}`, in a checkout of the project."
        )


@lab.command()
def status(
    experiment: Annotated[Path | None, typer.Argument(help="A TOML file of runs; all results if not given.")] = None,
    only: Only = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
    as_json: Json = False,
) -> None:
    """Show which runs of an experiment are done, begun or missing, and the time left; or list all results."""
    from marsrec.lab.comparison import METRICS
    from marsrec.lab.results import read_result, read_results

    found = read_results(results)
    rows: list[dict[str, Any]] = []
    left: dict[str, Any] = {}
    if experiment is None:
        for result in sorted(found, key=lambda r: (r.data, r.model, r.training.seed)):
            rows.append({"run": result.name, **_measured(result)})  # a file's, which tells the same model's apart
    else:
        from marsrec.lab.forecast import expected_minutes

        for run, place in _chosen(experiment, only, runs, results):
            state = place.progress()
            row: dict[str, Any] = {"run": run.title, "state": state}
            if state == "done":
                row |= {**_measured(read_result(place.result)), LEFT: 0.0}
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
        console.table("Runs (test × 100, all items ranked; validation where settings are chosen)", list(rows[0]), cells)
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
    experiment: Annotated[Path | None, typer.Argument(help="A TOML file of runs; all results if not given.")] = None,
    only: Only = None,
    against: Annotated[
        str | None,
        typer.Option(help="Model that the others are compared with; by default the best one by validation."),
    ] = None,
    results: Results = Path("results"),
    runs: Runs = Path("runs"),
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("report"),
) -> None:
    """Write tables, figures and inspections of results: Markdown, SVG and PNG, and one HTML page."""
    from marsrec.lab import report as reports
    from marsrec.lab.results import read_result, read_results

    if experiment is None:
        folder, found = results, read_results(results)
    else:
        chosen = _chosen(experiment, only, runs, results)
        folder = _folder(chosen, results)
        found = [read_result(path) for path in sorted(place.result for _, place in chosen) if path.exists()]
    if not found:
        raise SettingsError(f"{folder}: no results to report. `marsrec lab run EXPERIMENT` makes them.")
    written = reports.report(found, folder, out, against=against)
    console.note(f"{len(written)} files in {out}, from {len(found)} results. Open {written[-1]} in a browser.")


@lab.command()
def inspect(
    saved: Annotated[Path, typer.Argument(help="A folder that `marsrec fit` wrote.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("inspection"),
) -> None:
    """Show what a trained model learned: time scales, gate, attention, example users. Markdown and one HTML page."""
    from marsrec.lab.inspection import inspect as look
    from marsrec.lab.page import write_report
    from marsrec.lab.pages import inspection
    from marsrec.recommender import Recommender

    section = inspection.section(saved.name, look(Recommender.load(saved)))
    written = write_report([section], out, title=section.title, lead=f"What `{saved.name}` learned.")
    console.note(f"{len(written)} files in {out}. Open {written[-1]} in a browser.")


@lab.command()
def record(
    saved: Annotated[list[Path], typer.Argument(help="Folders that `marsrec fit` wrote.")],
    results: Results = Path("results"),
    data: Annotated[str | None, typer.Option(help="Name of the data, if a folder does not hold it.")] = None,
) -> None:
    """Record the results of models that `marsrec fit` trained: one JSON each, after repeating the test."""
    from marsrec.lab import results as lab_results

    for folder in saved:
        console.note(f"{folder} -> {lab_results.record(folder, results, data)}")


def _chosen(path: Path, only: str | None, runs: Path, results: Path) -> "list[tuple[Run, Place]]":
    from marsrec.lab.experiment import read_experiment
    from marsrec.lab.runner import place_of

    listed = [run for run in read_experiment(path).runs if only is None or fnmatch.fnmatch(run.title, f"*{only}*")]
    if only is not None and not listed:
        raise SettingsError(f"{path}: no run with {only!r} in its title.")
    chosen: dict[str, tuple[Run, Place]] = {}
    for run in listed:  # two labels may mean the same run
        place = place_of(run, runs, results)
        chosen.setdefault(place.name, (run, place))
    return list(chosen.values())


def _folder(chosen: "list[tuple[Run, Place]]", results: Path) -> Path:
    """Where the results of an experiment are: all in one folder, for all its runs choose settings, or none does."""
    return chosen[0][1].results if chosen else results


def _measured(result: "Result") -> dict[str, Any]:
    from marsrec.lab.comparison import METRICS

    _, figures = result.figures
    return {
        **{name: f"{100 * figures[name]:.2f}" for name in METRICS},
        "best epoch": f"{result.best_epoch} of {result.epochs}",
        "minutes": round(result.minutes, 1),
    }
