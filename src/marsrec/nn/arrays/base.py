"""The operations that fast forms are written in.

Shape letters: L events of the history, d width, H heads, E channels, N states.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch import Tensor, nn

Array: TypeAlias = Any
"""numpy's array, or the name of a value in a graph. Both know + - * / % and @, all else goes through `Arrays`.
Numbers are float32, codes and times int64."""
Map: TypeAlias = Callable[[Array], Array]
FastEncoder: TypeAlias = Callable[[Array, Array, bool], Array]
"""(L, d) embedded items, (L,) times, and whether the last state alone is wanted -> (L, width) or (1, width) states."""
FastUser: TypeAlias = Callable[[Array, Array, Array], Array]
"""Codes (L,), times (L,) and the moment of the request () -> (1, d) user vector."""
FastMemory: TypeAlias = Callable[[tuple[Array, ...], Array, bool], tuple[Array, tuple[Array, ...]]]
"""The same from a memory on: memory, (L, d) embedded items, whether the last state alone -> states, and the memory
after them."""
FastReadout: TypeAlias = Callable[[Array, Array, Array, Array], Array]
"""(L, width) states, or the last alone with `state_alone`; (L, d) embedded items; (L,) times; the moment of the request
() -> (1, d) user vector."""

FastRemember: TypeAlias = Callable[[tuple[Array, ...], Array, Array, Array], tuple[Array, ...]]
"""Memory; (L, width) states, (L, d) embedded items and (L,) times after it -> the memory after them."""
FastRecall: TypeAlias = Callable[[tuple[Array, ...], Array], Array]
"""Memory and the moment of the request () -> (1, d) user vector."""

FastTakeIn: TypeAlias = Callable[[Any, Array, Array], Any]
"""The encoder's and the readout's memory, codes (L,) and times (L,) -> both after them."""


class Arrays(ABC):
    """Operations on the arrays of one history. Those that take weights prepare them once and give a function."""

    # Weights.

    @abstractmethod
    def constant(self, values: Tensor) -> Array:
        """The values of a tensor: float32, or int64 of any integers."""

    @abstractmethod
    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Map:
        """X -> x Wᵀ + b."""

    @abstractmethod
    def norm(self, layer: nn.Module) -> Map:
        """Layer norm over the last axis."""

    @abstractmethod
    def gru(self, inputs: Tensor, hidden: Tensor) -> Callable[[Array, Array], Array]:
        """(L, d) inputs and a (1, H) state before them -> (L, H) states; torch's weights, without biases."""

    @abstractmethod
    def convolution(self, weight: Tensor, bias: Tensor) -> Callable[[Array, Array], Array]:
        """(L, E) and the (W - 1, E) values before it -> (L, E), each channel a sum of its own last W values."""

    @abstractmethod
    def scan(self, A: Tensor, D: Tensor) -> Callable[[Array, Array, Array, Array, Array], tuple[Array, Array]]:
        """Inputs and Δ (L, E), B and C (L, N), a state (E, N) -> output (L, E) and state; see `selective_scan`."""

    # All the rest.

    def of(self, layer: nn.Module) -> Map:
        """A linear layer."""
        assert isinstance(layer, nn.Linear)
        return self.linear(layer.weight, layer.bias)

    @abstractmethod
    def gelu(self, x: Array) -> Array:
        """X Φ(x)."""

    @abstractmethod
    def silu(self, x: Array) -> Array:
        """X sigmoid(x)."""

    @abstractmethod
    def sigmoid(self, x: Array) -> Array:
        """1 / (1 + exp(-x))."""

    @abstractmethod
    def softplus(self, x: Array) -> Array:
        """log(1 + exp(x))."""

    @abstractmethod
    def tanh(self, x: Array) -> Array:
        """Hyperbolic tangent."""

    @abstractmethod
    def exp(self, x: Array) -> Array:
        """E to the power of x."""

    @abstractmethod
    def log(self, x: Array) -> Array:
        """Natural logarithm."""

    @abstractmethod
    def sqrt(self, x: Array) -> Array:
        """Square root."""

    @abstractmethod
    def cos(self, x: Array) -> Array:
        """Cosine."""

    @abstractmethod
    def sin(self, x: Array) -> Array:
        """Sine."""

    @abstractmethod
    def softmax(self, x: Array) -> Array:
        """Over the last axis."""

    @abstractmethod
    def sum(self, x: Array, axis: int) -> Array:
        """Over an axis, which goes."""

    @abstractmethod
    def largest(self, x: Array) -> Array:
        """The largest of all numbers, ()."""

    @abstractmethod
    def lower_bound(self, x: Array, least: float) -> Array:
        """Numbers below `least` become it."""

    @abstractmethod
    def transposed(self, x: Array) -> Array:
        """(m, n) -> (n, m)."""

    @abstractmethod
    def wider(self, x: Array, axis: int) -> Array:
        """With an axis of length 1 more."""

    @abstractmethod
    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        """One after the other."""

    @abstractmethod
    def rows(self, x: Array, start: int, stop: int | None = None) -> Array:
        """x[start:stop]; negative numbers count from the end."""

    @abstractmethod
    def columns(self, x: Array, start: int, stop: int | None = None) -> Array:
        """x[:, start:stop]."""

    @abstractmethod
    def take(self, x: Array, index: Array) -> Array:
        """Rows of x at an index of any shape."""

    @abstractmethod
    def count(self, x: Array) -> Array:
        """How many rows there are, () int64."""

    @abstractmethod
    def range(self, start: Array | int, stop: Array | int) -> Array:
        """The whole numbers from `start` to before `stop`, int64."""

    @abstractmethod
    def number(self, x: Array) -> Array:
        """Integers as float32."""

    @abstractmethod
    def equal(self, x: Array, y: Array | int) -> Array:
        """1.0 where integers are equal, else 0.0."""

    @abstractmethod
    def reversed_first(self, x: Array, count: Array) -> Array:
        """(L, d) with the first `count` rows in reversed order."""

    @abstractmethod
    def best(self, x: Array, most: int) -> Array:
        """Where the largest of (L,) numbers stand, `most` of them or all, the largest first: int64."""

    @abstractmethod
    def highest_so_far(self, times: Array) -> Array:
        """(L,) integers -> (L,), the largest up to each."""

    @abstractmethod
    def elapsed(self, times: Array, now: Array, tau0: float) -> Array:
        """Exact differences of integers, at least 0, then divided by τ0 in float32."""

    @abstractmethod
    def later(self, one: Array, other: Array) -> Array:
        """The greater of two moments."""

    @abstractmethod
    def intervals(self, times: Array, span: int, in_gaps: bool) -> Array:
        """(L,) -> (L, L) int64, see `time_intervals`; in units of the shortest gap so far, or of the times."""

    @abstractmethod
    def attention(self, query: Array, key: Array, value: Array, heads: int, causal: bool) -> Array:
        """Queries (Q, d) of the last Q of L events, keys and values (L, d) -> (Q, d)."""

    @abstractmethod
    def interval_attention(
        self, query: Array, key: Array, value: Array, intervals: Array, key_table: Array, value_table: Array, heads: int
    ) -> Array:
        """Causal attention to keys and values plus rows (S, d) of tables at the intervals (Q, L): (Q, d) -> (Q, d)."""
