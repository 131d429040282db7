"""Causal attention whose keys and values also depend on the time interval between query and key, as TiSASRec's do.

The interval of a pair picks a row of a table. Products of all queries with the whole table would cost more than all
else in short histories. Neighbouring events, however, mostly share one interval to a query (zero, or the largest), so
that the CPU kernel goes through the pairs directly and takes one row and one product for each run of equal intervals.
As in `causal_attention`, a few weights at a time fit into the cache, and the backward pass computes them again.

Shapes: B histories, H heads, L positions, d width of a head, S rows of the tables, R histories and C positions of them
at a time.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from numba import prange, uint32, uint64
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.attention import buffer_size, chunks, kernel_options
from marsrec.nn.kernels.dropout import draw_seed, hashed, row_key
from marsrec.nn.kernels.numeric import ZERO, Implementation, exp, fits, largest

PARTS = 16  # of the queries of a chunk, each with own sums for the tables' gradients: no races, whatever the threads


def interval_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    intervals: Tensor,
    key_table: Tensor,
    value_table: Tensor,
    dropout: float = 0.0,
    *,
    implementation: Implementation = "auto",
) -> Tensor:
    """Mix values with weights softmax_j(q_i · (k_j + rK[r_ij]) / sqrt(d)), where a value is v_j + rV[r_ij].

    Parameters
    ----------
    query, key, value : Tensor (B, H, L, d)
        In any layout.
    intervals : Tensor (B, L, L)
        Rows r_ij of the tables for query i and key j, from 0 to S - 1 also where j > i, which is not looked at.
    key_table, value_table : Tensor (H, S, d)
        The tables rK and rV.
    dropout : float
        Probability that a weight is dropped, at least 0 and below 1.
    implementation : {"auto", "reference"}
        "auto" is the kernel for float32 on the CPU. No (B, L, L, d) tensor is held by either.

    Returns
    -------
    Tensor (B, H, L, d)
    """
    parts = query, key, value, key_table, value_table
    if implementation == "reference" or not fits(*parts):
        return _reference(*parts, intervals, dropout)
    intervals = intervals.to(torch.int32).contiguous()
    mixed: Tensor = _IntervalAttention.apply(*parts, intervals, dropout, draw_seed())  # type: ignore[no-untyped-call]
    return mixed


def _reference(
    query: Tensor, key: Tensor, value: Tensor, key_table: Tensor, value_table: Tensor, intervals: Tensor, dropout: float
) -> Tensor:
    """Products with the whole tables, looked up pair by pair; and the weights of pairs, summed up for each interval."""
    B, H, L, d = query.shape
    row = intervals.long()[:, None].expand(B, H, L, L)
    products = query @ key.mT + (query @ key_table.mT).gather(-1, row)
    future = torch.ones(L, L, dtype=torch.bool, device=query.device).triu(1)
    weights = (products / math.sqrt(d)).masked_fill(future, -torch.inf).softmax(-1)
    weights = F.dropout(weights, dropout)
    masses = weights.new_zeros(B, H, L, key_table.shape[1]).scatter_add(-1, row, weights)
    return weights @ value + masses @ value_table


class _IntervalAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_table: Tensor,
        value_table: Tensor,
        intervals: Tensor,
        dropout: float,
        seed: int,
    ) -> Tensor:
        B, H, L, d = query.shape
        mixed = query.new_empty(B, L, H, d).transpose(1, 2)  # as the layer after it wants it
        total = query.new_empty(B, H, L)  # log of the softmax's denominator
        buffer = query.new_empty(buffer_size(B, L))
        options = kernel_options(query, dropout, seed)
        tables = key_table.detach().contiguous(), value_table.detach().contiguous()
        with like_torch():
            for h, rows, chunk in chunks(B, H, L):
                past = slice(chunk.stop)
                queries = query[rows, h, chunk].contiguous()  # (R, C, d)
                weights = buffer[: queries.shape[0] * queries.shape[1] * chunk.stop].view(*queries.shape[:2], -1)
                torch.bmm(queries, key[rows, h, past].mT, out=weights)
                from_table = torch.empty_like(queries)
                inputs = queries, intervals, *(table[h] for table in tables)
                changed = weights, from_table, total
                _softmax(rows.start, h, *(part.numpy() for part in (*changed, *inputs)), *options)
                mixed[rows, h, chunk] = torch.baddbmm(from_table, weights, value[rows, h, past])
        ctx.save_for_backward(query, key, value, key_table, value_table, intervals, mixed, total)
        ctx.options = options
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, key_table, value_table, intervals, mixed, total = ctx.saved_tensors
        B, H, L, d = query.shape
        grad_query, grad_key, grad_value = grads = query.new_zeros(B, L, 3, H, d).permute(2, 0, 3, 1, 4)
        sums = query.new_zeros(2, H, PARTS, *key_table.shape[1:])
        mean = torch.linalg.vecdot(grad, mixed).contiguous()  # (B, H, L): of the weights' slopes, under the weights
        buffers = query.new_empty(2, buffer_size(B, L))
        tables = key_table.detach().contiguous(), value_table.detach().contiguous()
        with like_torch():
            for h, rows, chunk in chunks(B, H, L):
                past = slice(chunk.stop)
                queries, slope = query[rows, h, chunk].contiguous(), grad[rows, h, chunk].contiguous()  # (R, C, d)
                keys, values = key[rows, h, past], value[rows, h, past]  # (R, past, d)
                size = queries.shape[0] * queries.shape[1] * chunk.stop
                weights, slopes = (buffer[:size].view(*queries.shape[:2], -1) for buffer in buffers)
                torch.bmm(queries, keys.mT, out=weights)
                torch.bmm(slope, values.mT, out=slopes)
                from_table = torch.empty_like(queries)
                inputs = queries, slope, intervals, *(table[h] for table in tables), total, mean
                changed = weights, slopes, from_table, *sums[:, h]
                _softmax_backward(rows.start, h, *(part.numpy() for part in (*changed, *inputs)), *ctx.options)
                grad_value[rows, h, past] += torch.bmm(weights.mT, slope)
                grad_key[rows, h, past] += torch.bmm(slopes.mT, queries)
                grad_query[rows, h, chunk] = torch.baddbmm(from_table, slopes, keys)
        return *grads, *sums.sum(2), None, None, None


@kernel(parallel=False)
def _run_end(interval: Any, start: Any, end: Any) -> Any:
    """Where the run of equal intervals ends that begins at `start`. Unsigned places need no check for negative ones."""
    for stop in range(start + uint64(1), end):
        if interval[stop] != interval[start]:
            return stop
    return end


@kernel(parallel=False)
def _dot(a: Any, b: Any) -> Any:
    total = ZERO
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel(parallel=False)
def _add(total: Any, factor: Any, a: Any) -> None:
    for i in range(len(total)):
        total[i] += factor * a[i]


@kernel()
def _softmax(
    row: int,
    head: int,
    weights: Any,
    from_table: Any,
    total: Any,
    queries: Any,
    intervals: Any,
    key_table: Any,
    value_table: Any,
    factor: Any,
    kept: Any,
    seed: Any,
    below: Any,
) -> None:
    """Products (R, C, past) become weights in place, dropped and hidden ones 0; `from_table` is Σ_j weight_j rV_j."""
    R, C, past = weights.shape
    H, L = total.shape[1:]
    for index in prange(R * C):
        r, c = index // C, index % C
        b, q = row + r, past - C + c
        weight, hidden = weights[r, c, : q + 1], weights[r, c, q + 1 :]
        interval, mixed = intervals[b, q], from_table[r, c]
        start, end = uint64(0), uint64(q + 1)
        while start < end:
            stop = _run_end(interval, start, end)
            product = _dot(queries[r, c], key_table[interval[start]])
            for j in range(start, stop):
                weight[j] += product
            start = stop
        top = factor * largest(weight)
        mass = ZERO
        for j in range(len(weight)):
            w = exp(factor * weight[j] - top)
            weight[j] = w
            mass += w
        total[b, head, q] = top + math.log(mass)
        key = row_key(seed, (b * H + head) * L + q)
        low, high = uint32(key), uint32(key >> uint64(32))
        scale = kept / mass
        for j in range(len(weight)):
            weight[j] *= scale if hashed(low, high, j) >= below else ZERO
        hidden[:] = ZERO
        mixed[:] = ZERO
        start, end = uint64(0), uint64(q + 1)
        while start < end:
            stop = _run_end(interval, start, end)
            mass = ZERO
            for j in range(start, stop):
                mass += weight[j]
            _add(mixed, mass, value_table[interval[start]])
            start = stop


@kernel()
def _softmax_backward(
    row: int,
    head: int,
    weights: Any,
    slopes: Any,
    from_table: Any,
    grad_key_table: Any,
    grad_value_table: Any,
    queries: Any,
    grad: Any,
    intervals: Any,
    key_table: Any,
    value_table: Any,
    total: Any,
    mean: Any,
    factor: Any,
    kept: Any,
    seed: Any,
    below: Any,
) -> None:
    """Products become weights again, and slopes by the weights become slopes by the products, both in place.

    `from_table` is the query's gradient from the keys' table; the tables' own gradients are added to, part by part.
    """
    R, C, past = weights.shape
    H, L = total.shape[1:]
    for part in prange(PARTS):
        grad_keys, grad_values = grad_key_table[part], grad_value_table[part]
        for index in range(part * R * C // PARTS, (part + 1) * R * C // PARTS):
            r, c = index // C, index % C
            b, q = row + r, past - C + c
            weight, slope, interval = weights[r, c, : q + 1], slopes[r, c, : q + 1], intervals[b, q]
            start, end = uint64(0), uint64(q + 1)
            while start < end:
                stop = _run_end(interval, start, end)
                product = _dot(queries[r, c], key_table[interval[start]])
                gain = _dot(grad[r, c], value_table[interval[start]])
                for j in range(start, stop):
                    weight[j] += product
                    slope[j] += gain
                start = stop
            log_mass, center = total[b, head, q], mean[b, head, q]
            key = row_key(seed, (b * H + head) * L + q)
            low, high = uint32(key), uint32(key >> uint64(32))
            for j in range(len(weight)):
                w = exp(factor * weight[j] - log_mass)
                scale = kept if hashed(low, high, j) >= below else ZERO
                weight[j] = w * scale
                slope[j] = factor * w * (scale * slope[j] - center)
            weights[r, c, q + 1 :] = ZERO
            slopes[r, c, q + 1 :] = ZERO
            from_table[r, c] = ZERO
            start, end = uint64(0), uint64(q + 1)
            while start < end:
                stop = _run_end(interval, start, end)
                mass = steepness = ZERO
                for j in range(start, stop):
                    mass += weight[j]
                    steepness += slope[j]
                place = interval[start]
                _add(from_table[r, c], steepness, key_table[place])
                _add(grad_keys[place], steepness, queries[r, c])
                _add(grad_values[place], mass, grad[r, c])
                start = stop
