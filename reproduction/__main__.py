"""`python -m reproduction`: the paper's report, and what is measured for it."""

from pathlib import Path
from typing import Annotated

import typer

from marsrec.cli import console, run
from marsrec.errors import SettingsError
from marsrec.lab.experiment import read_experiment
from marsrec.lab.results import read_results
from reproduction import costs, theory
from reproduction.report import report

app = typer.Typer(
    name="python -m reproduction",
    help="Write the paper's report from the results, and measure what its pages need.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Results = Annotated[Path, typer.Option(help="Folder of the results.")]


@app.callback(invoke_without_command=True)
def write_report(
    context: typer.Context,
    results: Results = Path("results"),
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("docs/results"),
) -> None:
    """Write all tables and figures of the paper, beside its own: Markdown, SVG and PNG, and one HTML page."""
    context.with_resource(console.listening())
    if context.invoked_subcommand is not None:
        return
    found = read_results(results)
    if not found:
        raise SettingsError(f"{results}: no results to report. `marsrec lab run experiments/main.toml` makes them.")
    written = report(found, results, out)
    console.note(f"{len(written)} files in {out}, from {len(found)} results. Open {written[-1]} in a browser.")


@app.command("theory")
def measure_theory(
    quick: Annotated[bool, typer.Option("--quick", help="Smaller samples: a minute instead of many.")] = False,
    results: Results = Path("results"),
) -> None:
    """Put the paper's propositions to the test, in numbers."""
    console.note(f"{theory.write(results, quick=quick)} written. `python -m reproduction` shows it.")


@app.command("efficiency")
def measure_efficiency(
    data: Annotated[list[str], typer.Argument(help="Data sets at whose size to measure, such as beauty ml-1m hawkes.")],
    results: Results = Path("results"),
) -> None:
    """Measure what all recipes cost, side by side, unless that was done before."""
    for name in data:
        console.note(f"{costs.measured(name, results)}. `python -m reproduction` shows it.")


@app.command()
def measure(
    experiment: Annotated[Path, typer.Argument(help="A TOML file that names them, such as experiments/main.toml.")],
    results: Results = Path("results"),
) -> None:
    """Measure the efficiency and the theory that an experiment names, as far as they are missing."""
    wanted = read_experiment(experiment)
    if not wanted.measurements:
        raise SettingsError(f"{experiment}: names neither efficiency nor theory; `marsrec lab run` does all of it.")
    if wanted.efficiency:
        measure_efficiency(wanted.efficiency, results)
    if wanted.theory and not theory.suffices(results, quick=wanted.theory == "quick"):
        measure_theory(wanted.theory == "quick", results)


if __name__ == "__main__":
    run(app)
