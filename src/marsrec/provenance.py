"""What made a result: versions of the software, and the machine."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from marsrec import __version__
from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch

PACKAGES = ("torch", "lightning", "numba", "numpy", "polars", "narwhals", "pydantic", "safetensors", "tensorboard")


def versions() -> dict[str, str]:
    """Of the software, its language and what it stands on; with the commit if it runs from a checkout."""
    found = {"marsrec": __version__, "python": platform.python_version(), **{p: _version(p) for p in PACKAGES}}
    at = commit(Path(__file__).resolve().parent)
    return found if at is None else {**found, "commit": at}


@cache
def commit(package: Path) -> str | None:
    """Commit of the checkout that a package belongs to, with "+" if the package differs from it; None elsewhere.

    It is found out once: what is imported later than that may be newer.
    """

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(package), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # else it is installed below a checkout of something else
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None


def machine() -> dict[str, Any]:
    """What decides how fast things are."""
    return {
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "torch threads": torch.get_num_threads(),
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
        "matrix products": "MKL" if torch._C.has_mkl else "OpenBLAS or native",
        "numba threads": _numba_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
    }


def _numba_threads() -> str:
    """How numba runs its threads, which it knows after the first parallel kernel."""
    try:
        numba.threading_layer()  # type: ignore[attr-defined]
    except ValueError:
        with like_torch():
            _first_loop(np.zeros(1, np.float32))
    return f"{numba.threading_layer()}, at most {numba.config.NUMBA_NUM_THREADS}"  # type: ignore[attr-defined]


@kernel()
def _first_loop(array: Any) -> None:
    for i in numba.prange(len(array)):
        array[i] = 0


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
