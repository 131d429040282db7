"""Torch and numba with one number of threads while a kernel runs, and their own afterwards."""

import os
import subprocess
import sys

import numba
import pytest
import torch

from marsrec.compute.threads import like_torch, one_thread


def test_kernels_run_with_torchs_threads_and_leave_both_numbers_as_they_were() -> None:
    most, before = numba.config.NUMBA_NUM_THREADS, torch.get_num_threads()
    own = numba.get_num_threads()
    try:
        numba.set_num_threads(most)
        torch.set_num_threads(1)
        with like_torch():
            assert numba.get_num_threads() == 1
        assert (numba.get_num_threads(), torch.get_num_threads()) == (most, 1)
        with pytest.raises(ZeroDivisionError), like_torch():
            1 / 0  # noqa: B018
        assert (numba.get_num_threads(), torch.get_num_threads()) == (most, 1)
        torch.set_num_threads(most + 1)  # more than numba has
        with like_torch():
            assert numba.get_num_threads() == most
    finally:
        torch.set_num_threads(before)
        numba.set_num_threads(own)


def test_small_things_take_one_thread() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with one_thread():
            assert torch.get_num_threads() == 1
            with like_torch():
                assert numba.get_num_threads() == 1
        with one_thread(small=False):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError), one_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_that_wait_soon_sleep_unless_told_otherwise(given: dict[str, str], expected: str) -> None:
    mine = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    code = "import os, marsrec; print(os.environ.get('GOMP_SPINCOUNT'))"
    said = subprocess.run([sys.executable, "-c", code], env=mine | given, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == expected
