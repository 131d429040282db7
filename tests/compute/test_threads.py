"""Torch and numba with one number of threads while a kernel runs, and their own afterwards."""

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
