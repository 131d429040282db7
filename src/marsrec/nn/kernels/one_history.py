"""What one history takes from numba: loops that numpy would need several passes or Python for.

They run in the calling thread, since sharing so little work costs more than the work. All arrays are float32 and in
order. Shape letters: L events, Q queries at the last of them, d width, E channels, N states, H width of a GRU.
"""

from typing import Any

import numpy as np

from marsrec.compute.compiled import kernel
from marsrec.nn.kernels.numeric import ONE, TWO, ZERO, Array, exp, log1p

_HALF, _SQRT_HALF = np.float32(0.5), np.float32(0.7071067811865476)
# erf by Abramowitz and Stegun 7.1.26: the absolute error is below 2e-7.
_P, _A1, _A2 = np.float32(0.3275911), np.float32(0.254829592), np.float32(-0.284496736)
_A3, _A4, _A5 = np.float32(1.421413741), np.float32(-1.453152027), np.float32(1.061405429)


@kernel(parallel=False)
def gelu(x: Array) -> Array:
    """X Φ(x)."""
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        row, out = x[i], y[i]
        for j in range(len(row)):
            z = abs(row[j]) * _SQRT_HALF
            t = ONE / (ONE + _P * z)
            tail = ((((_A5 * t + _A4) * t + _A3) * t + _A2) * t + _A1) * t * exp(-z * z)
            out[j] = _HALF * (row[j] + abs(row[j]) * (ONE - tail))  # x erf(x) = |x| erf|x|
    return y


@kernel(parallel=False)
def silu(x: Array) -> Array:
    """X sigmoid(x)."""
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        row, out = x[i], y[i]
        for j in range(len(row)):
            out[j] = row[j] / (ONE + exp(-row[j]))
    return y


@kernel(parallel=False)
def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        row, out = x[i], y[i]
        for j in range(len(row)):
            out[j] = ONE / (ONE + exp(-row[j]))
    return y


@kernel(parallel=False)
def softplus(x: Array) -> Array:
    """log(1 + e^x)."""
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        row, out = x[i], y[i]
        for j in range(len(row)):
            out[j] = max(row[j], ZERO) + log1p(exp(-abs(row[j])))
    return y


@kernel(parallel=False)
def layer_norm(x: Array, weight: Array, bias: Array, eps: Any) -> Array:
    """Layer norm of rows."""
    y = np.empty_like(x)
    d = x.shape[1]
    for i in range(x.shape[0]):
        row, out = x[i], y[i]
        total = ZERO
        for j in range(d):
            total += row[j]
        mean = np.float32(total / np.float32(d))
        spread = ZERO
        for j in range(d):
            spread += (row[j] - mean) * (row[j] - mean)
        scale = np.float32(ONE / np.sqrt(np.float32(spread / np.float32(d)) + eps))
        for j in range(d):
            out[j] = (row[j] - mean) * scale * weight[j] + bias[j]
    return y


@kernel(parallel=False)
def attention(query: Array, key: Array, value: Array, heads: int, causal: bool) -> Array:
    """Queries (Q, d) of the last Q events, keys and values (L, d) -> (Q, d)."""
    (Q, d), L = query.shape, len(key)
    width = d // heads
    mixed = np.zeros((Q, d), query.dtype)
    turned, weight = np.empty((width, L), query.dtype), np.empty(L, query.dtype)
    factor = np.float32(ONE / np.sqrt(np.float32(width)))
    for head in range(heads):
        low = head * width
        for j in range(L):
            for c in range(width):
                turned[c, j] = key[j, low + c] * factor
        for i in range(Q):
            seen = L - Q + i + 1 if causal else L
            row = weight[:seen]
            row[:] = ZERO
            for c in range(width):
                q, keys = query[i, low + c], turned[c]
                for j in range(seen):
                    row[j] += q * keys[j]
            _softmax(row)
            out = mixed[i, low : low + width]
            for j in range(seen):
                w, values = row[j], value[j, low : low + width]
                for c in range(width):
                    out[c] += w * values[c]
    return mixed


@kernel(parallel=False)
def interval_attention(
    query: Array, key: Array, value: Array, intervals: Any, key_table: Array, value_table: Array, heads: int
) -> Array:
    """Causal attention to keys and values plus the rows of tables (S, d) at the intervals (Q, L)."""
    (Q, d), L = query.shape, len(key)
    width = d // heads
    mixed, weight = np.zeros((Q, d), query.dtype), np.empty(L, query.dtype)
    factor = np.float32(ONE / np.sqrt(np.float32(width)))
    for head in range(heads):
        low, high = head * width, head * width + width
        for i in range(Q):
            seen = L - Q + i + 1
            row, q, out = weight[:seen], query[i, low:high], mixed[i, low:high]
            for j in range(seen):
                keys, table = key[j, low:high], key_table[intervals[i, j], low:high]
                total = ZERO
                for c in range(width):
                    total += q[c] * (keys[c] + table[c])
                row[j] = total * factor
            _softmax(row)
            for j in range(seen):
                w, values, table = row[j], value[j, low:high], value_table[intervals[i, j], low:high]
                for c in range(width):
                    out[c] += w * (values[c] + table[c])
    return mixed


@kernel(parallel=False)
def _softmax(row: Array) -> None:
    """In place; the first number is there."""
    top = row[0]
    for j in range(len(row)):
        top = max(top, row[j])
    total = ZERO
    for j in range(len(row)):
        w = exp(row[j] - top)
        row[j] = w
        total += w
    share = np.float32(ONE / total)
    for j in range(len(row)):
        row[j] *= share


@kernel(parallel=False)
def convolution(x: Array, before: Array, weight: Array, bias: Array) -> Array:
    """(L, E) after (W - 1, E), weights (W, E) -> (L, E)."""
    L, E = x.shape
    y = np.empty_like(x)
    past = len(before)
    for t in range(L):
        out = y[t]
        for e in range(E):
            out[e] = bias[e]
        for w in range(past + 1):
            place = t + w  # among those before and these
            source, factor = before[place] if place < past else x[place - past], weight[w]
            for e in range(E):
                out[e] += factor[e] * source[e]
    return y


@kernel(parallel=False)
def scan(x: Array, delta: Array, A: Array, B: Array, C: Array, D: Array, state: Array) -> tuple[Array, Array]:
    """The selective scan from a state (E, N) on: output (L, E), and the state after it."""
    L, E = x.shape
    N = A.shape[1]
    y, h = np.empty_like(x), state.copy()
    for t in range(L):
        write, read = B[t], C[t]
        for e in range(E):
            step, rates, kept = delta[t, e], A[e], h[e]
            fed, total = step * x[t, e], ZERO
            for n in range(N):
                new = exp(step * rates[n]) * kept[n] + fed * write[n]
                kept[n] = new
                total += new * read[n]
            y[t, e] = total + D[e] * x[t, e]
    return y, h


@kernel(parallel=False)
def gru(inputs: Array, weight: Array, start: Array) -> Array:
    """Inputs (L, 3H) of the gates, (H, 3H) weights of the state, and the state before -> (L, H)."""
    L, H = len(inputs), start.shape[1]
    states, gates = np.empty((L, H), inputs.dtype), np.empty(3 * H, inputs.dtype)
    for t in range(L):
        before, out, given = states[t - 1] if t > 0 else start[0], states[t], inputs[t]
        gates[:] = ZERO
        for h in range(H):
            value, weights = before[h], weight[h]
            for j in range(3 * H):
                gates[j] += value * weights[j]
        reset, update, new = gates[:H], gates[H : 2 * H], gates[2 * H :]
        given_reset, given_update, given_new = given[:H], given[H : 2 * H], given[2 * H :]
        for h in range(H):
            r = ONE / (ONE + exp(-(given_reset[h] + reset[h])))
            z = ONE / (ONE + exp(-(given_update[h] + update[h])))
            n = TWO / (ONE + exp(-TWO * (given_new[h] + r * new[h]))) - ONE  # tanh
            out[h] = (ONE - z) * n + z * before[h]
    return states
