"""What all tests share."""

import os
from pathlib import Path

import pytest
import torch

# Some virtual machines announce AMX and do not have it: a product of bfloat16 would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
torch.set_num_threads(1)  # tests are small: threads would only wait for each other


@pytest.fixture(scope="session")
def public_data() -> Path:
    """The folder of public data sets, which cannot be part of the project."""
    folder = os.environ.get("MARSREC_DATA")
    if not folder:
        pytest.skip("needs public data: set MARSREC_DATA to a folder of <name>.parquet files")
    return Path(folder)
