"""The command that shows what this machine has: versions, threads, kernels and data."""

import os
import warnings
from collections.abc import Callable
from typing import Any

from marsrec.cli import console
from marsrec.cli.options import Json
from marsrec.errors import SettingsError

_SCANS = {"reference": "torch, a position at a time", "cpu": "numba, compiled for this CPU", "cuda": "mamba-ssm"}


def doctor(as_json: Json = False) -> None:
    """Show versions, threads, kernels in use and data found."""
    findings = examine()
    if as_json:
        console.as_json(findings)
        return
    for title, rows in findings.items():
        console.table(title, ["", ""], [[name, str(value)] for name, value in rows.items()])


def examine() -> dict[str, dict[str, Any]]:
    """Everything that a bug report needs."""
    import torch

    from marsrec.data.catalog import CATALOG
    from marsrec.data.public import locate
    from marsrec.provenance import machine, versions
    from marsrec.training import half_precision

    return {
        "versions": versions(),
        "machine": {
            **machine(),
            "half precision on the CPU": "works"
            if half_precision.works()
            else f"ends the process; {half_precision.REMEDY}",
        },
        "kernels": {
            "linear cross-entropy": "chunked, gradients in the forward pass",
            "attention": "numba with dropout on the CPU, else torch's scaled_dot_product_attention",
            "MARS averages, dropout, NARM's and TiSASRec's attention": "numba on the CPU, torch elsewhere",
            "selective scan": _scan("cpu"),
            **({"selective scan on the GPU": _scan("cuda")} if torch.cuda.is_available() else {}),
            "ranking": "one pass over the scores (numba) on the CPU, torch elsewhere",
        },
        "answers for one user": _answers(),
        "data": {
            "MARSREC_DATA": os.environ.get("MARSREC_DATA", "not set"),
            **{name: str(locate(name) or "not here") for name in CATALOG},
        },
    }


def _answers() -> dict[str, str]:
    """Which parts answer without torch, by asking each as it is by default."""
    from marsrec.nn.arrays.numpy_arrays import NumpyArrays
    from marsrec.nn.encoders.base import EncoderSettings
    from marsrec.nn.readouts.base import ReadoutSettings
    from marsrec.nn.scorers import ScorerSettings

    dim, arrays = 8, NumpyArrays()
    build: dict[str, Callable[[Any], Any]] = {
        "encoder": lambda part: part.build(dim, 4),
        "readout": lambda part: part.build(dim, dim, 3600.0),
        "scorer": lambda part: part.build(dim, 3),
    }
    slow, broken = [], []
    for kind, settings in (("encoder", EncoderSettings), ("readout", ReadoutSettings), ("scorer", ScorerSettings)):
        for name, part in settings.known().items():
            try:
                if build[kind](part.model_validate({})).fast(arrays) is None:
                    slow.append(f"{kind} {name}")
            except Exception as error:  # a part of somebody else's
                broken.append(f"{kind} {name} ({type(error).__name__}: {error})")
    how = "numpy and compiled loops, without torch"
    found = {"on the CPU": how if not slow + broken else f"{how}, but for models with a part named below"}
    if slow:
        found["through torch"] = ", ".join(slow)
    if broken:
        found["not made with its defaults"] = ", ".join(broken)
    return {**found, "on a GPU, and for more than a few users": "torch, in batches"}


def _scan(device: str) -> str:
    """Which selective scan runs on a kind of device, and why."""
    from marsrec.nn.kernels.selective_scan import FORCED, chosen, forced_on, missing

    try:
        with warnings.catch_warnings(action="ignore"):  # the answer says the same
            name = chosen(device)
    except SettingsError as error:
        return f"error: {error}"
    if forced_on(device):
        return f"{_SCANS[name]}, forced by {FORCED}={name}"
    reason = f" ({missing()})" if device == "cuda" and name == "reference" else ""
    forced = os.environ.get(FORCED)
    how = f"{FORCED}={forced} is for other devices" if forced else f"{FORCED}=reference or {device} forces one"
    return f"{_SCANS[name]}{reason}; {how}"
