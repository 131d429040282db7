"""What all tests share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.parts import _KNOWN

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


@pytest.fixture
def parts_of_this_test(tmp_path: Path) -> Iterator[None]:
    """Parts that a test defines are unknown after it, and modules that it wrote are forgotten."""
    EncoderSettings.known()
    before = {kind: dict(known) for kind, known in _KNOWN.items()}
    yield
    for kind, known in _KNOWN.items():
        known.clear()
        known.update(before[kind])
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
