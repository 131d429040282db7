"""Whether this CPU computes in half precision, or only says so."""

import signal
import subprocess
import sys
from functools import cache

from marsrec.errors import SettingsError

_TRIAL = "import torch; ones = torch.ones(64, 64, dtype=torch.bfloat16); ones @ ones"
_ILLEGAL = (-signal.SIGILL, 0xC000001D)
"""How a process ends at an instruction that is not there: elsewhere, and on Windows."""

REMEDY = "set the environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts"
"""What lets torch do without the instructions that are not there."""


@cache
def works() -> bool:
    """False where a matrix product of half precision is an illegal instruction, which ends the process.

    There are virtual machines that announce AMX and do not have it. It is tried in a process of its own; where none can
    be started, nothing is known against it.
    """
    try:
        return (
            subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, timeout=60).returncode not in _ILLEGAL
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return True


def check() -> None:
    """Refuse half precision where it does not work."""
    if not works():
        raise SettingsError(
            "precision: a matrix product of half precision would end the process, since this CPU announces "
            f"instructions that it does not have. Train with '32-true', or {REMEDY}."
        )
