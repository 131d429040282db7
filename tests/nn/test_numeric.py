"""Exponential and logarithm of the kernels, against numpy's in double precision."""

from typing import Any

import numpy as np
import pytest

from marsrec.compute.compiled import kernel
from marsrec.nn.kernels.numeric import NEGLIGIBLE, exp, log1p


@kernel(parallel=False)
def exponentials(values: Any) -> None:
    for i in range(len(values)):
        values[i] = exp(values[i])


@kernel(parallel=False)
def logarithms(values: Any) -> None:
    for i in range(len(values)):
        values[i] = log1p(values[i])


def computed(function: Any, values: np.ndarray) -> np.ndarray:
    result = values.copy()
    function(result)
    return result


def test_exponential() -> None:
    x = np.linspace(-69, 88, 100_001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.abs(computed(exponentials, x) / exact - 1).max() < 4e-6
    near = np.abs(x) < 1
    assert np.abs(computed(exponentials, x) / exact - 1)[near].max() < 3e-7
    assert computed(exponentials, np.zeros(1, np.float32)) == 1
    assert np.isnan(computed(exponentials, np.array([np.nan], np.float32)))


def test_negligible_exponentials_are_zero() -> None:
    x = np.array([-69.2, -80, -88, -104, -1e30, -np.inf], np.float32)
    assert (computed(exponentials, x) == 0).all()
    assert computed(exponentials, np.array([-69], np.float32)) == pytest.approx(NEGLIGIBLE, rel=0.1)


def test_logarithm() -> None:
    x = np.concatenate([np.zeros(1), np.geomspace(1e-6, 1e12, 100_001)]).astype(np.float32)
    exact = np.log1p(x.astype(np.float64))
    error = np.abs(computed(logarithms, x) - exact)
    assert (error < np.maximum(2e-7 * exact, 1e-7)).all()
