"""The Hawkes operator for one history: see `marsrec.nn.hawkes`, whose equations and letters these are."""

from collections.abc import Callable

import numpy as np

from marsrec.nn.arrays.base import Array, Arrays
from marsrec.nn.hawkes import DEAD, Hawkes


def fuse(operator: Hawkes, arrays: Arrays) -> Callable[[Array, Array, Array], Array]:
    """Averages (1 + K, d), evidence (1, 1 + K) and last state (1, d) -> user vector (1, d)."""
    wide, narrow = arrays.of(operator.context[0]), arrays.of(operator.context[2])
    taste, effects = arrays.of(operator.taste), arrays.of(operator.effects)
    strengths, offsets = arrays.constant(operator.strengths[None]), arrays.constant(operator.offsets)
    none = arrays.constant(operator.strengths.new_zeros(1, 1))
    d = operator.dim

    def fused(averages: Array, evidence: Array, last_state: Array) -> Array:
        evidence = arrays.lower_bound(arrays.columns(evidence, 1), DEAD)
        context = narrow(arrays.gelu(wide(arrays.concat([last_state, arrays.softplus(evidence)], 1))))
        change, gate = arrays.columns(context, 0, d), arrays.columns(context, d)
        alive = arrays.softmax(arrays.concat([none, strengths + gate + evidence], 1))  # (1, 1 + K)
        nothing, heads = arrays.columns(alive, 0, 1), arrays.columns(alive, 1)
        events = taste(nothing @ arrays.rows(averages, 0, 1)) + effects(heads @ arrays.rows(averages, 1))
        return nothing * (last_state + change) + events + alive @ offsets

    return fused


def window(operator: Hawkes, arrays: Arrays, *, request_clock: bool) -> Callable[[Array, Array, Array, Array], Array]:
    """The operator on the events of a window, as `Hawkes.weigh` has it."""
    rates, together = arrays.constant(operator.rates()[:, None]), fuse(operator, arrays)

    def read(states: Array, embedded: Array, times: Array, now: Array) -> Array:
        latest, times = arrays.rows(times, -1), arrays.highest_so_far(times)
        now = (
            arrays.later(now, arrays.rows(times, -1)) if request_clock else arrays.later(latest, arrays.rows(times, -1))
        )
        logits = rates * arrays.wider(arrays.elapsed(times, now, operator.tau0), 0) * -1.0  # (1 + K, L)
        top = arrays.transposed(arrays.rows(arrays.transposed(logits), -1))  # the latest event's is the largest
        weights = arrays.exp(logits - top)
        total = arrays.wider(arrays.sum(weights, 1), 1)  # (1 + K, 1)
        evidence = arrays.transposed(top + arrays.log(total))
        return together((weights / total) @ embedded, evidence, arrays.rows(states, -1))

    return read


def remember(operator: Hawkes) -> Callable[[tuple[Array, ...], Array, Array, Array], tuple[Array, ...]]:
    """Sums, counts, time and last state take in events, as `Hawkes.extend` has it."""
    rates = operator.rates().detach().numpy()

    def taken_in(memory: tuple[Array, ...], states: Array, embedded: Array, times: Array) -> tuple[Array, ...]:
        sums, counts, time, _ = memory
        begun = counts[0] > 0
        times = np.maximum.accumulate(np.maximum(times, time) if begun else times)
        latest = times[-1]
        kept = np.append(latest - time if begun else 0, latest - times)
        decays = np.exp((kept.astype(np.float32) / np.float32(operator.tau0))[:, None] * -rates)
        before, new = decays[0], decays[1:]
        return before[:, None] * sums + new.T @ embedded, before * counts + new.sum(axis=0), latest, states[-1]

    return taken_in


def recall(operator: Hawkes, arrays: Arrays, *, request_clock: bool) -> Callable[[tuple[Array, ...], Array], Array]:
    """The user vector (1, d) of what is remembered at a moment, as `Hawkes.recall` has it."""
    rates, together = operator.rates().detach().numpy(), fuse(operator, arrays)
    tiny = np.finfo(np.float32).tiny

    def recalled(memory: tuple[Array, ...], now: Array) -> Array:
        sums, counts, time, last_state = memory
        waited = max(int(now - time), 0) / np.float32(operator.tau0) if request_clock else np.float32(0)
        counts = np.maximum(counts, tiny)
        return together(sums / counts[:, None], (np.log(counts) - waited * rates)[None], last_state[None])

    return recalled
