"""What holds for every encoder."""

from itertools import pairwise

import numpy as np
import torch

from marsrec.data.batches import gather, windows
from marsrec.data.splits import leave_one_out
from marsrec.testing.case import LENGTH, Case, Check, close, histories, same


def states_are_as_wide_as_the_encoder_says(case: Case) -> None:
    """An encoder makes of (B, L, d) embedded items states (B, L, width).

    Pass the width of the states to `super().__init__(width)`.
    """
    states = case.model.encoder(case.embedded, case.prefixes)
    assert states.shape == (*case.embedded.shape[:2], case.model.encoder.width), f"{tuple(states.shape)}"


def states_at_the_latest_events_are_those_of_the_whole_pass(case: Case) -> None:
    """`latest` gives the states that `forward` has at the latest events, with the same gradients.

    A cheaper way must compute the same; without one leave `latest` as it is.
    """
    encoder, batch = case.model.encoder, case.prefixes
    whole = batch.at_last(encoder(case.embedded, batch))
    same(encoder.latest(case.embedded, batch), whole, [case.embedded, *encoder.parameters()])


def states_at_the_targets_are_those_of_the_whole_pass(case: Case) -> None:
    """`at` gives the states that `forward` has at the positions that are wanted, with the same gradients.

    A cheaper way must compute the same; without one leave `at` as it is.
    """
    encoder = case.model.encoder
    if not encoder.causal:
        return
    split = leave_one_out(histories(users=3, events=25))
    rows = np.concatenate([windows(split, LENGTH, LENGTH // 2, np.random.default_rng(0)), [[0, 4, 2]]])
    batch = gather(split.histories, rows)  # targets at different places, and padding after them
    embedded, wanted = case.model.embed(batch.items).detach().requires_grad_(), batch.targets > 0
    whole = encoder(embedded, batch)[wanted]
    same(encoder.at(embedded, batch, wanted), whole, [embedded, *encoder.parameters()])


def a_memory_goes_on_like_the_whole_pass(case: Case) -> None:
    """With `recurrent`, events that are taken in piece by piece have the states of `forward`, at a constant size.

    `start` and `go_on` must carry all that a state depends on; say `recurrent = False` if they cannot.
    """
    encoder, batch = case.model.encoder, case.windows
    if not encoder.recurrent:
        return
    embedded = case.model.embed(batch.items)
    memory, states = encoder.start(len(embedded)), []
    shapes = [part.shape for part in memory]
    for start, end in pairwise((0, 1, 4, embedded.shape[1])):
        some, memory = encoder.resume(memory, embedded[:, start:end])
        states.append(some)
        assert [part.shape for part in memory] == shapes, "a memory whose size changes"
    close(torch.cat(states, dim=1)[batch.inside], encoder(embedded, batch)[batch.inside])


CHECKS: tuple[Check, ...] = (
    states_are_as_wide_as_the_encoder_says,
    states_at_the_latest_events_are_those_of_the_whole_pass,
    states_at_the_targets_are_those_of_the_whole_pass,
    a_memory_goes_on_like_the_whole_pass,
)
