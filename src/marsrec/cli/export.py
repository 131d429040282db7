"""The command that writes a saved model for other software."""

from pathlib import Path
from typing import Annotated

import typer

from marsrec.cli import console
from marsrec.cli.options import Saved


def export(
    saved: Saved,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.", file_okay=False)],
) -> None:
    """Write a saved model as an ONNX graph with item vectors and a contract, for software without Python."""
    from marsrec.recommender import Recommender
    from marsrec.recommender.export import CONTRACT, GRAPH, VECTORS

    Recommender.load(saved).export(out)
    for name in (GRAPH, VECTORS, CONTRACT):
        console.note(f"{out / name}: {(out / name).stat().st_size:,} bytes")
    console.note(f"{CONTRACT} says how to ask, with an example to check by.")
