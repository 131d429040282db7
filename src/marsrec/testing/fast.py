"""What holds for the fast form of a model, where its parts have one."""

import copy
from itertools import pairwise

import numpy as np
import torch

from marsrec.data.batches import gather
from marsrec.nn.arrays.numpy_arrays import NumpyArrays
from marsrec.testing.case import Case, Check, split

ROUNDING = 1e-5
"""How far two ways to compute in single precision may be apart."""


def a_fast_form_gives_the_user_vector_of_the_network(case: Case) -> None:
    """`fast` gives one history the user vector that `forward` gives it, in single precision.

    Describe the same computation, or return None and leave it to torch.
    """
    model, batch = copy.deepcopy(case.model).float(), case.prefixes
    fast = model.fast(NumpyArrays())
    if fast is None:
        return
    with torch.no_grad():
        expected = model(batch).users
    lasts = batch.target_times.gather(1, batch.last[:, None])[:, 0]
    for row, length in enumerate(batch.lengths.tolist()):
        found = fast(batch.items[row, :length].numpy(), batch.times[row, :length].numpy(), int(lasts[row]))
        assert found.dtype == np.float32, f"{found.dtype}"
        np.testing.assert_allclose(found[0], expected[row], rtol=ROUNDING, atol=ROUNDING)


def a_fast_memory_is_that_of_the_network(case: Case) -> None:
    """`fast_live` takes in events and recalls user vectors as `resume` and `recall` do, in single precision.

    Describe the same computation, or return None and leave it to torch.
    """
    model = copy.deepcopy(case.model).float()
    live = model.fast_live(NumpyArrays())
    if live is None:
        return
    take_in, recall = live
    batch = gather(split().histories, np.array([[0, 7, 7]]))
    expected = model.start(1)
    found = tuple(tuple(part[0].numpy() for part in half) for half in expected)
    for start, end in pairwise((0, 1, 4, 7)):
        items, times = batch.items[:, start:end], batch.times[:, start:end]
        expected = model.resume(expected, items, times)
        found = take_in(found, items[0].numpy(), times[0].numpy())
        for one, other in zip(sum(found, ()), sum(expected, ()), strict=True):
            np.testing.assert_allclose(one, other[0], rtol=ROUNDING, atol=ROUNDING)
    for wait in (0, 3600, 10**7):
        now = batch.times[:, -1] + wait
        user = recall(found[1], int(now[0]))
        np.testing.assert_allclose(user, model.recall(expected, now), rtol=ROUNDING, atol=ROUNDING)


CHECKS: tuple[Check, ...] = (a_fast_form_gives_the_user_vector_of_the_network, a_fast_memory_is_that_of_the_network)
