"""Commands about the software itself: models, doctor and demo."""

from pathlib import Path
from typing import Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Json


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
        if "heads" in type(recipe.readout).model_fields:
            options["readout.heads"] = heads
        network = model_settings(name, options=options).build(items)
        rows.append(
            {
                "name": name,
                "encoder": recipe.encoder.name,
                "readout": recipe.readout.name,
                "scorer": recipe.scorer.name,
                "objective": recipe.objective.name,
                "causal": network.causal,
                "time": recipe.time,
                "parameters": network.parameter_count(),
            }
        )
    if as_json:
        console.as_json(rows)
        return
    console.table(f"Recipes ({items:,} items, length {length})", list(rows[0]), [list(row.values()) for row in rows])
    console.note("`--encoder X --readout Y` of `marsrec fit` puts other parts together.")


def doctor(as_json: Json = False) -> None:
    """Show versions, threads, kernels in use and data found."""
    from marsrec.cli.doctor import examine

    findings = examine()
    if as_json:
        console.as_json(findings)
        return
    for title, rows in findings.items():
        console.table(title, ["", ""], [[name, str(value)] for name, value in rows.items()])


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo"),
    serve: Annotated[bool, typer.Option("--serve", help="Then serve the models, with a page that shows why.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page.")] = 8000,
) -> None:
    """Train SASRec, and MARS-T on two clocks, on synthetic data in which time decides; show what MARS learned."""
    from marsrec.cli.demo import run
    from marsrec.cli.serve import serve as serve_models

    folders = run(out)
    if serve:
        serve_models(folders, port=port)
