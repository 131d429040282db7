"""Commands about the software itself: models, doctor and demo."""

from pathlib import Path
from typing import Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Json, Shorthands

HEADS = "readout.heads"


def models(
    options: Annotated[dict[str, Any], Shorthands({"length": "length", "dim": "dim", "heads": HEADS})],
    items: Annotated[int, typer.Option(help="Number of items.")] = 12_101,
    as_json: Json = False,
) -> None:
    """List every recipe with its parts and its number of parameters."""
    from marsrec.models import RECIPES, model_settings
    from marsrec.nn.settings import KINDS

    rows = []
    for name, recipe in RECIPES.items():
        foreign = set() if "heads" in type(recipe.readout).model_fields else {HEADS}
        settings = model_settings(name, options={key: value for key, value in options.items() if key not in foreign})
        network = settings.build(items)
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
    cells = [list(row.values()) for row in rows]
    console.table(f"Recipes ({items:,} items, length {settings.length})", list(rows[0]), cells)
    for kind, base in KINDS.items():
        console.note(f"{kind.capitalize()}s: {', '.join(base.known())}.")
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
    from marsrec.serve.settings import ServeSettings

    folders = run(out)
    if serve:
        serve_models(ServeSettings(models=tuple(folders), port=port))
