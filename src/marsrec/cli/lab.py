"""Commands of the lab."""

from pathlib import Path
from typing import Annotated

import typer

from marsrec import show
from marsrec.cli.options import Json

lab = typer.Typer(help="Turn trained models into results.", no_args_is_help=True)

Results = Annotated[Path, typer.Option(help="Folder of the results.")]


@lab.command()
def record(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `marsrec fit` wrote.")],
    results: Results = Path("results"),
    data: Annotated[str | None, typer.Option(help="Name of the data, where a folder does not tell it.")] = None,
) -> None:
    """Write one JSON per run, after repeating its test."""
    from marsrec.lab import results as lab_results

    for run in runs:
        show.note(f"{run} -> {lab_results.record(run, results, data)}")


@lab.command()
def status(results: Results = Path("results"), as_json: Json = False) -> None:
    """List the results."""
    from marsrec.lab.results import read_results

    found = read_results(results)
    columns = ("HR@10", "NDCG@10", "MRR@10")
    rows = [
        {
            "data": result.data,
            "model": result.model,
            "seed": result.training.seed,
            **{name: round(100 * result.test[name], 2) for name in columns},
            "best epoch": f"{result.best_epoch}/{result.epochs}",
            "minutes": round(result.minutes, 1),
        }
        for result in sorted(found, key=lambda r: (r.data, r.model, r.training.seed))
    ]
    if as_json:
        show.as_json(rows)
    elif rows:
        show.table("Results (test × 100, all items ranked)", list(rows[0]), [list(row.values()) for row in rows])
    else:
        show.note(f"{results}: no results yet. `marsrec lab record RUN` writes them.")
