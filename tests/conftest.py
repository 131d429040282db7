"""What all tests share."""

import os
from pathlib import Path

import pytest
import torch

import marsrec

# Numba keeps a compiled kernel until its own file changes, also when a function that it calls elsewhere has changed.
KERNELS = Path(marsrec.__file__).parent / "nn" / "kernels"
CHANGED = max(source.stat().st_mtime for source in KERNELS.glob("*.py"))
for index in KERNELS.rglob("*.nbi"):
    if index.exists() and index.stat().st_mtime < CHANGED:
        index.unlink(missing_ok=True)  # several workers may see it

torch.set_num_threads(1)  # tests are small: threads would only wait for each other


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public data sets, which cannot be part of the project."""
    folder = os.environ.get("MARSREC_DATA")
    if not folder:
        pytest.skip("needs public data: set MARSREC_DATA to a folder of <name>.parquet files")
    return Path(folder)
