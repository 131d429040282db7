from pathlib import Path

import pytest
import torch

from marsrec.compute import memory

STATM = Path("/proc/self/statm")


def _resident_megabytes() -> float:
    return int(STATM.read_text().split()[1]) * 4096 / 1e6


@pytest.mark.skipif(memory._malloc_trim() is None or not STATM.exists(), reason="needs glibc on Linux")
def test_holes_in_the_heap_are_given_back():
    tensors = [torch.ones(16_000) for _ in range(4_000)]  # 256 MB in blocks too small for pages of their own
    del tensors[::2]
    held = _resident_megabytes()
    assert memory.give_back()
    assert _resident_megabytes() < held - 60  # of 128 MB that are free
    assert all(tensor[0] == 1 for tensor in tensors)


def test_another_c_library_does_nothing(monkeypatch):
    monkeypatch.setattr(memory, "_malloc_trim", lambda: None)
    assert not memory.give_back()
