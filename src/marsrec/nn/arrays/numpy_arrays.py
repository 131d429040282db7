"""Fast forms computed at once, by numpy and compiled kernels, in the calling thread."""

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor, nn

from marsrec.nn.arrays.base import Array, Arrays, Map
from marsrec.nn.kernels import one_history


class NumpyArrays(Arrays):
    """Weights are the model's own memory, as far as the operations can take them as they are."""

    def constant(self, values: Tensor) -> Array:
        """See `Arrays.constant`."""
        array = values.detach().contiguous().numpy()
        return array if array.dtype == np.float32 else array.astype(np.int64)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Map:
        """See `Arrays.linear`."""
        turned = self.constant(weight).T
        if bias is None:
            return lambda x: x @ turned
        added = self.constant(bias)
        return lambda x: x @ turned + added

    def norm(self, layer: nn.Module) -> Map:
        """See `Arrays.norm`."""
        assert isinstance(layer, nn.LayerNorm)
        weight, bias, eps = self.constant(layer.weight), self.constant(layer.bias), np.float32(layer.eps)
        return lambda x: one_history.layer_norm(x, weight, bias, eps)

    def gru(self, inputs: Tensor, hidden: Tensor) -> Callable[[Array, Array], Array]:
        """See `Arrays.gru`."""
        given, weight = self.linear(inputs), np.ascontiguousarray(self.constant(hidden).T)
        return lambda x, start: one_history.gru(given(x), weight, start)

    def convolution(self, weight: Tensor, bias: Tensor) -> Callable[[Array, Array], Array]:
        """See `Arrays.convolution`."""
        turned, added = np.ascontiguousarray(self.constant(weight).T), self.constant(bias)
        return lambda x, before: one_history.convolution(x, before, turned, added)

    def scan(self, A: Tensor, D: Tensor) -> Callable[[Array, Array, Array, Array, Array], tuple[Array, Array]]:
        """See `Arrays.scan`."""
        rates, skip = self.constant(A), self.constant(D)

        def scanned(x: Array, delta: Array, B: Array, C: Array, state: Array) -> tuple[Array, Array]:
            y, after = one_history.scan(x, delta, rates, B, C, skip, state)
            return y, after

        return scanned

    def gelu(self, x: Array) -> Array:
        """See `Arrays.gelu`."""
        return one_history.gelu(x)

    def silu(self, x: Array) -> Array:
        """See `Arrays.silu`."""
        return one_history.silu(x)

    def sigmoid(self, x: Array) -> Array:
        """See `Arrays.sigmoid`."""
        return one_history.sigmoid(x)

    def softplus(self, x: Array) -> Array:
        """See `Arrays.softplus`."""
        return one_history.softplus(x)

    def tanh(self, x: Array) -> Array:
        """See `Arrays.tanh`."""
        return np.tanh(x)

    def exp(self, x: Array) -> Array:
        """See `Arrays.exp`."""
        return np.exp(x)

    def log(self, x: Array) -> Array:
        """See `Arrays.log`."""
        return np.log(x)

    def sqrt(self, x: Array) -> Array:
        """See `Arrays.sqrt`."""
        return np.sqrt(x)

    def cos(self, x: Array) -> Array:
        """See `Arrays.cos`."""
        return np.cos(x)

    def sin(self, x: Array) -> Array:
        """See `Arrays.sin`."""
        return np.sin(x)

    def count(self, x: Array) -> Array:
        """See `Arrays.count`."""
        return len(x)

    def wider(self, x: Array, axis: int) -> Array:
        """See `Arrays.wider`."""
        return np.expand_dims(x, axis)

    def highest_so_far(self, times: Array) -> Array:
        """See `Arrays.highest_so_far`."""
        return np.maximum.accumulate(times)

    def later(self, one: Array, other: Array) -> Array:
        """See `Arrays.later`."""
        return np.maximum(one, other)

    def softmax(self, x: Array) -> Array:
        """See `Arrays.softmax`."""
        weights = np.exp(x - x.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def sum(self, x: Array, axis: int) -> Array:
        """See `Arrays.sum`."""
        return x.sum(axis=axis)

    def largest(self, x: Array) -> Array:
        """See `Arrays.largest`."""
        return x.max()

    def lower_bound(self, x: Array, least: float) -> Array:
        """See `Arrays.lower_bound`."""
        return np.maximum(x, np.float32(least))

    def transposed(self, x: Array) -> Array:
        """See `Arrays.transposed`."""
        return x.T

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        """See `Arrays.concat`."""
        return np.concatenate(parts, axis=axis)

    def rows(self, x: Array, start: int, stop: int | None = None) -> Array:
        """See `Arrays.rows`."""
        return x[start:stop]

    def columns(self, x: Array, start: int, stop: int | None = None) -> Array:
        """See `Arrays.columns`."""
        return x[:, start:stop]

    def take(self, x: Array, index: Array) -> Array:
        """See `Arrays.take`."""
        return x.take(index, axis=0)

    def range(self, start: Array | int, stop: Array | int) -> Array:
        """See `Arrays.range`."""
        return np.arange(start, stop)

    def number(self, x: Array) -> Array:
        """See `Arrays.number`."""
        return np.float32(x)

    def equal(self, x: Array, y: Array | int) -> Array:
        """See `Arrays.equal`."""
        return np.float32(x == y)

    def reversed_first(self, x: Array, count: Array) -> Array:
        """See `Arrays.reversed_first`."""
        return np.concatenate([x[:count][::-1], x[count:]])

    def best(self, x: Array, most: int) -> Array:
        """See `Arrays.best`."""
        return np.argsort(-x, kind="stable")[:most]

    def elapsed(self, times: Array, now: Array, tau0: float) -> Array:
        """See `Arrays.elapsed`."""
        return np.maximum(now - times, 0).astype(np.float32) / np.float32(tau0)

    def intervals(self, times: Array, span: int, in_gaps: bool) -> Array:
        """See `Arrays.intervals`."""
        apart = times[:, None] - times
        if in_gaps:
            gaps = np.diff(times, prepend=times[:1])
            never = np.iinfo(np.int64).max
            shortest = np.minimum.accumulate(np.where(gaps > 0, gaps, never))[:, None]
            apart = (apart + shortest // 2) // shortest
        return apart.clip(0, span)

    def attention(self, query: Array, key: Array, value: Array, heads: int, causal: bool) -> Array:
        """See `Arrays.attention`."""
        return one_history.attention(query, key, value, heads, causal)

    def interval_attention(
        self, query: Array, key: Array, value: Array, intervals: Array, key_table: Array, value_table: Array, heads: int
    ) -> Array:
        """See `Arrays.interval_attention`."""
        return one_history.interval_attention(query, key, value, intervals, key_table, value_table, heads)
