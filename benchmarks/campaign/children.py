"""What runs in processes that are killed."""

import os
import sys
from pathlib import Path

import torch

import marsrec.cli.fit
import marsrec.lab.runner
import marsrec.recommender
import marsrec.serve.app
import marsrec.training.fit  # noqa: F401  # all of them imported once, and not by each child
from marsrec.cli import app
from marsrec.serve.app import serve
from marsrec.serve.settings import ServeSettings


def _quiet() -> None:
    torch.set_num_threads(1)  # sums are taken in the same order, and children do not wait for each other
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)


def command(*arguments: str) -> None:
    """A command line, ending as its process would."""
    _quiet()
    try:
        app(list(arguments), standalone_mode=False)
    except Exception:
        sys.exit(1)


def server(folder: Path, store: str, port: int) -> None:
    _quiet()
    serve(ServeSettings(models=(folder,), store=store, port=port, threads=1))
