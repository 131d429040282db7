"""Whether this CPU computes in half precision, or only says so."""

import signal
import subprocess
import sys
from functools import cache

_TRIAL = "import torch; ones = torch.ones(64, 64, dtype=torch.bfloat16); ones @ ones"

REMEDY = "set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
"""What lets torch do without the instructions that are not there."""


@cache
def works() -> bool:
    """False where a matrix product of half precision is an illegal instruction, which ends the process.

    There are virtual machines that announce AMX and do not have it. It is tried in a process of its own.
    """
    return subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True).returncode != -signal.SIGILL
