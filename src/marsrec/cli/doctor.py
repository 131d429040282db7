"""What this machine has: versions, threads, kernels and data."""

import os
import warnings
from typing import Any

import torch

from marsrec.data.catalog import CATALOG
from marsrec.data.public import locate
from marsrec.errors import SettingsError
from marsrec.nn.kernels.selective_scan import FORCED, chosen, forced_on, missing
from marsrec.provenance import machine, versions
from marsrec.training import half_precision

_SCANS = {"reference": "torch, a position at a time", "cpu": "numba, compiled for this CPU", "cuda": "mamba-ssm"}


def examine() -> dict[str, dict[str, Any]]:
    """Everything that a bug report needs."""
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
        "data": {
            "MARSREC_DATA": os.environ.get("MARSREC_DATA", "not set"),
            **{name: str(locate(name) or "not here") for name in CATALOG},
        },
    }


def _scan(device: str) -> str:
    """Which selective scan runs on a kind of device, and why."""
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
