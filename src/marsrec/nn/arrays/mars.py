"""The MARS operator for one history: see `marsrec.nn.mars`, whose equations and letters these are."""

from collections.abc import Callable

import numpy as np

from marsrec.nn.arrays.base import Array, Arrays, Map
from marsrec.nn.kernels.decay_scan import LEAST
from marsrec.nn.mars import MARS, SIGMA
from marsrec.nn.mixture import coefficients_of_one, nodes

Fuse = Callable[[Array, Array, Array, Array], Array]


def rates(operator: MARS, arrays: Arrays) -> Map:
    """Last state (1, d) -> exponents ρ (1, K)."""
    base = arrays.constant(operator.base_rates()[None])
    if operator.modulation is None:
        return lambda last_state: base
    wide, narrow = arrays.of(operator.modulation[0]), arrays.of(operator.modulation[2])
    return lambda last_state: base * arrays.exp(arrays.tanh(narrow(arrays.gelu(wide(last_state)))) * SIGMA)


def ages(operator: MARS, arrays: Arrays) -> Callable[[Array, Array], Array]:
    """Times (L,) and a moment () -> compressed elapsed times (1, L)."""

    def compressed(times: Array, now: Array) -> Array:
        hours = arrays.wider(arrays.elapsed(times, now, operator.tau0), 0)
        return arrays.log(1.0 + hours) if operator.time_scale == "log" else hours

    return compressed


def fuse(operator: MARS, arrays: Arrays) -> Fuse:
    """Summaries (K, d), age of the latest event (1, 1), last item and last state (1, d) -> user vector (1, d)."""
    d = operator.dim
    weight = operator.gate_hidden.weight
    of_summary, of_context = arrays.linear(weight[:, :d]), arrays.linear(weight[:, d:], operator.gate_hidden.bias)
    wide, narrow = arrays.of(operator.time_encoder[0]), arrays.of(operator.time_encoder[2])
    vote = arrays.linear(operator.gate_out.weight)

    def fused(summaries: Array, latest: Array, last_item: Array, last_state: Array) -> Array:
        context = arrays.concat([narrow(arrays.gelu(wide(latest))), last_item, last_state], 1)
        votes = vote(arrays.tanh(of_summary(summaries) + of_context(context)))  # (K, 1)
        return last_state + arrays.softmax(arrays.transposed(votes)) @ summaries

    return fused


def window(operator: MARS, arrays: Arrays, *, request_clock: bool) -> Callable[[Array, Array, Array, Array], Array]:
    """The operator on the events of a window, as `MARS.read` has it in the dense form."""
    rates_of, ages_at, together = rates(operator, arrays), ages(operator, arrays), fuse(operator, arrays)
    values = arrays.linear(operator.value_map.weight) if operator.value_map is not None else lambda states: states

    def read(states: Array, embedded: Array, times: Array, now: Array) -> Array:
        if not operator.real_time:
            times = arrays.range(0, arrays.count(states)) * round(operator.tau0)
        latest, last_state = arrays.rows(times, -1), arrays.rows(states, -1)
        if not request_clock:
            now = latest
        weights = arrays.softmax(arrays.transposed(rates_of(last_state)) @ ages_at(times, now) * -1.0)  # (K, L)
        return together(weights @ values(states), ages_at(latest, now), arrays.rows(embedded, -1), last_state)

    return read


def remember(operator: MARS, arrays: Arrays) -> Callable[[tuple[Array, ...], Array, Array, Array], tuple[Array, ...]]:
    """The streaming form: sums, counts, time, last state and item take in events, as `streaming.extend` has it."""
    decay = -nodes().astype(np.float32)
    values = arrays.linear(operator.value_map.weight) if operator.value_map is not None else lambda states: states

    def taken_in(memory: tuple[Array, ...], states: Array, embedded: Array, times: Array) -> tuple[Array, ...]:
        sums, counts, time, *_ = memory
        if not operator.real_time:  # ages are counted in events; the node that does not decay counts them
            times = (int(counts[0]) + np.arange(len(times))) * round(operator.tau0)
        begun = counts[0] > 0
        times = np.maximum.accumulate(np.maximum(times, time) if begun else times)
        latest = times[-1]
        kept = np.append(latest - time if begun else 0, latest - times)
        decays = np.exp(np.maximum((kept.astype(np.float32) / np.float32(operator.tau0))[:, None] * decay, -60))
        before, new = decays[0], decays[1:]
        sums = before[:, None] * sums + new.T @ values(states)
        return sums, before * counts + new.sum(axis=0), latest, states[-1], embedded[-1]

    return taken_in


def mixed(mix: Array, sums: Array, counts: Array) -> Array:
    """Averages (K, d) by coefficients (K, M) of sums (M, d) and counts (M,), as `decay_scan.mixed` has it."""
    total = (mix @ counts)[:, None]  # (K, 1)
    lost = total < LEAST
    newest = sums[-1] / max(counts[-1], np.float32(1))
    return np.where(lost, newest, (mix @ sums) / np.where(lost, np.float32(1), total))


def recall(operator: MARS, arrays: Arrays, *, request_clock: bool) -> Callable[[tuple[Array, ...], Array], Array]:
    """The streaming form: the user vector (1, d) of what is remembered at a moment, as `streaming.average` has it."""
    rates_of, ages_at, together = rates(operator, arrays), ages(operator, arrays), fuse(operator, arrays)

    def recalled(memory: tuple[Array, ...], now: Array) -> Array:
        sums, counts, time, last_state, last_item = memory
        if not (request_clock and operator.real_time):
            now = time
        newest = max(int(now - time), 0) / np.float32(operator.tau0)
        mix = coefficients_of_one(rates_of(last_state[None])[0], newest)  # (K, M)
        return together(mixed(mix, sums, counts), ages_at(time[None], now), last_item[None], last_state[None])

    return recalled
