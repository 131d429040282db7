"""What holds for every readout."""

from itertools import pairwise

import numpy as np
import torch

from marsrec.data.batches import gather
from marsrec.testing.case import APPROXIMATE, Case, Check, close, split


def one_pass_reads_out_what_a_pass_per_prefix_does(case: Case) -> None:
    """On a causal encoder, user vectors at the targets are those of histories that end there.

    With `at_targets` read out at `batch.targets > 0`, row by row, as if the history ended at each.
    """
    if case.model.causal:
        close(case.model(case.windows, at_targets=True).users, case.model(case.prefixes).users)


def a_state_alone_is_read_out_like_all(case: Case) -> None:
    """With `state_alone`, `users` makes of the latest state the user vector that `forward` makes of all states.

    Say `state_alone = False` if other states count as well.
    """
    readout, batch = case.model.readout, case.prefixes
    if readout.state_alone:
        states = case.model.encoder(case.embedded, batch)
        close(readout.users(batch.at_last(states)).users, readout(states, case.embedded, batch, False).users)


def states_of_any_width_are_mapped_where_a_readout_says_so(case: Case) -> None:
    """With `maps_states`, user vectors are as wide as the items, whatever the width of the states.

    Map them in the readout, or say `maps_states = False`.
    """
    if case.settings.readout.maps_states:
        dim, batch = case.settings.dim, case.prefixes
        readout = case.settings.readout.build(dim, dim + 3, 3600.0).double().eval()
        states = torch.randn(*batch.items.shape, dim + 3, dtype=torch.float64)
        assert readout(states, case.embedded, batch, False).users.shape == (len(states), dim)


def a_memory_recalls_what_the_whole_pass_reads_out(case: Case) -> None:
    """With `streams`, what is recalled of events taken in piece by piece is the user vector of all of them.

    `start`, `remember` and `recall` must carry all that it depends on; say `streams = False` if they cannot.
    """
    if not case.model.recurrent:
        return
    batch = gather(split().histories, np.array([[0, 7, 7], [9, 16, 16]]))
    memory = case.model.start(2)
    for start, end in pairwise((0, 1, 4, 7)):
        memory = case.model.resume(memory, batch.items[:, start:end], batch.times[:, start:end])
    close(case.model.recall(memory, batch.target_times[:, -1]), case.model(batch).users, APPROXIMATE)


def contributions_sum_to_the_user_vector(case: Case) -> None:
    """What `contributions` gives sums to the user vector: rest + Σ_k Σ_i gate_k weights_k,i values_i.

    Count all of the user vector that belongs to no event to `rest`, or return None.
    """
    model, batch = case.model, case.prefixes[-1:]
    if not model.readout.splits:
        return
    embedded, states = model.encode(batch)
    for folded in (False, True) if model.recurrent else (False,):
        parts = model.readout.contributions(states, embedded, batch, folded=folded)
        assert parts is not None, "`contributions` gives nothing"
        close(parts.total(), parts.user)
        close(parts.total(), model(batch).users[0], APPROXIMATE if folded else 0.0)


CHECKS: tuple[Check, ...] = (
    one_pass_reads_out_what_a_pass_per_prefix_does,
    a_state_alone_is_read_out_like_all,
    states_of_any_width_are_mapped_where_a_readout_says_so,
    a_memory_recalls_what_the_whole_pass_reads_out,
    contributions_sum_to_the_user_vector,
)
