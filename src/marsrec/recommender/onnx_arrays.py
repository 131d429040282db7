"""Fast forms written down as nodes of an ONNX graph, of the operators that every runtime has (opset 20)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from marsrec.errors import needs
from marsrec.nn.arrays.base import Array, Arrays, Map

if TYPE_CHECKING:
    import onnx

OPSET = 20
END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Value:
    """A value in a graph, by its name. What is computed with it becomes nodes."""

    arrays: OnnxArrays
    name: str
    whole: bool
    """Whether it holds int64 and not float32."""

    def __add__(self, other: Array) -> Value:
        return self.arrays.node("Add", self, other)

    __radd__ = __add__

    def __mul__(self, other: Array) -> Value:
        return self.arrays.node("Mul", self, other)

    __rmul__ = __mul__

    def __sub__(self, other: Array) -> Value:
        return self.arrays.node("Sub", self, other)

    def __rsub__(self, other: Array) -> Value:
        return self.arrays.node("Sub", other, self)

    def __truediv__(self, other: Array) -> Value:
        return self.arrays.node("Div", self, other)

    def __mod__(self, other: Array) -> Value:
        return self.arrays.node("Mod", self, other)

    def __matmul__(self, other: Array) -> Value:
        return self.arrays.node("MatMul", self, other)


class OnnxArrays(Arrays):
    """A graph that grows by a node with every operation."""

    def __init__(self) -> None:
        with needs("export", "an exported model"):
            import onnx
        self.onnx = onnx
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._count = 0

    # The graph.

    def given(self, name: str, shape: Sequence[str | int]) -> Value:
        """An input of integers."""
        kind = self.onnx.TensorProto.INT64
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return Value(self, name, True)

    def model(self, user: Value, dim: int) -> onnx.ModelProto:
        """The whole graph, whose output is `user` (d,)."""
        helper = self.onnx.helper
        flat = self.node("Reshape", user, self.integers([dim]))
        self.nodes.append(helper.make_node("Identity", [flat.name], ["user"]))
        output = helper.make_tensor_value_info("user", self.onnx.TensorProto.FLOAT, [dim])
        graph = helper.make_graph(self.nodes, "history to user vector", self.inputs, [output], self.initializers)
        model: onnx.ModelProto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="marsrec"
        )
        model.ir_version = 9  # that of the opset
        self.onnx.checker.check_model(model)
        return model

    def node(self, kind: str, *inputs: Array, whole: bool | None = None, **attributes: Any) -> Value:
        """The output of a new node; it holds integers if its first value does, unless `whole` says otherwise."""
        return self.several(kind, *inputs, whole=(whole,), **attributes)[0]

    def several(self, kind: str, *inputs: Array, whole: Sequence[bool | None], **attributes: Any) -> list[Value]:
        """All outputs of a new node."""
        like = next(value.whole for value in inputs if isinstance(value, Value))
        values = [value if isinstance(value, Value) else self._lifted(value, like) for value in inputs]
        outputs = [Value(self, self._name(kind), like if kept is None else kept) for kept in whole]
        names = [value.name for value in values], [value.name for value in outputs]
        self.nodes.append(self.onnx.helper.make_node(kind, *names, **attributes))
        return outputs

    def integers(self, values: Sequence[int] | int) -> Value:
        """Whole numbers that are known beforehand."""
        return self.literal(np.array(values, dtype=np.int64))

    def literal(self, values: NDArray[Any]) -> Value:
        """Numbers that are known beforehand; equal ones are kept once."""
        values = np.asarray(values, order="C")
        key = str(values.dtype), values.shape, values.tobytes()
        if key not in self._known:
            name = self._name("weight" if values.ndim > 1 else "constant")
            self.initializers.append(self.onnx.numpy_helper.from_array(values, name))
            self._known[key] = Value(self, name, bool(np.issubdtype(values.dtype, np.integer)))
        return self._known[key]

    def _lifted(self, number: float, whole: bool) -> Value:
        return self.literal(np.array(number, dtype=np.int64 if whole else np.float32))

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind.lower()}_{self._count}"

    # Weights.

    def constant(self, values: Tensor) -> Value:
        """See `Arrays.constant`."""
        array = values.detach().cpu().numpy()
        return self.literal(array.astype(np.int64 if np.issubdtype(array.dtype, np.integer) else np.float32))

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Map:
        """See `Arrays.linear`."""
        turned = self.constant(weight.detach().T)
        if bias is None:
            return lambda x: x @ turned
        added = self.constant(bias)
        return lambda x: x @ turned + added

    def norm(self, layer: nn.Module) -> Map:
        """See `Arrays.norm`."""
        assert isinstance(layer, nn.LayerNorm)
        weight, bias, eps = self.constant(layer.weight), self.constant(layer.bias), layer.eps
        return lambda x: self.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=eps)

    def gru(self, inputs: Tensor, hidden: Tensor) -> Callable[[Array, Array], Array]:
        """See `Arrays.gru`."""
        width = hidden.shape[1]

        gates = [weight.detach().chunk(3) for weight in (inputs, hidden)]  # reset, update, new
        given, recurrent = (self.constant(torch.cat([gate[1], gate[0], gate[2]])[None]) for gate in gates)
        nothing = self.literal(np.zeros((1, 6 * width), np.float32))

        def states(x: Value, start: Value) -> Value:
            (all_states,) = self.several(
                "GRU",
                self.wider(x, 1),
                given,
                recurrent,
                nothing,
                self._no_lengths(),
                self.wider(start, 0),
                whole=[False],
                hidden_size=width,
                linear_before_reset=1,
            )
            return self.node("Reshape", all_states, self.integers([-1, width]))

        return states

    def _no_lengths(self) -> Value:
        return Value(self, "", True)  # an input that is left out

    def convolution(self, weight: Tensor, bias: Tensor) -> Callable[[Array, Array], Array]:
        """See `Arrays.convolution`."""
        channels = len(weight)
        kernel, added = self.constant(weight[:, None]), self.constant(bias)

        def convolved(x: Value, before: Value) -> Value:
            rows = self.wider(self.transposed(self.concat([before, x], 0)), 0)  # (1, E, W - 1 + L)
            out = self.node("Conv", rows, kernel, added, group=channels)
            return self.transposed(self.node("Squeeze", out, self.integers([0])))

        return convolved

    def scan(self, A: Tensor, D: Tensor) -> Callable[[Array, Array, Array, Array, Array], tuple[Array, Array]]:
        """See `Arrays.scan`."""
        rates, skip, (channels, states) = self.constant(A), self.constant(D), A.shape

        def scanned(x: Value, delta: Value, B: Value, C: Value, state: Value) -> tuple[Value, Value]:
            body = self._scan_body(rates, channels, states)
            after, y = self.several("Scan", state, x, delta, B, C, whole=[False, False], body=body, num_scan_inputs=4)
            return y + x * skip, after

        return scanned

    def _scan_body(self, rates: Value, channels: int, states: int) -> onnx.GraphProto:
        """One event of the scan: state, x, Δ, B, C -> state, output. The rates are the outer graph's."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        inner = self._name("scan")
        shapes = {"h": [channels, states], "x": [channels], "delta": [channels], "B": [states], "C": [states]}
        inputs = [helper.make_tensor_value_info(f"{inner}_{name}", kind, shape) for name, shape in shapes.items()]
        steps = [
            ("Unsqueeze", ["delta", self.integers([1]).name], "step"),
            ("Mul", ["step", rates.name], "exponent"),
            ("Exp", ["exponent"], "decay"),
            ("Mul", ["decay", "h"], "kept"),
            ("Mul", ["delta", "x"], "fed"),
            ("Unsqueeze", ["fed", self.integers([1]).name], "source"),
            ("Mul", ["source", "B"], "written"),
            ("Add", ["kept", "written"], "after"),
            ("MatMul", ["after", "C"], "y"),
        ]
        own = {*shapes, *(out for _, _, out in steps)}
        nodes = [
            helper.make_node(kind_, [f"{inner}_{name}" if name in own else name for name in names], [f"{inner}_{out}"])
            for kind_, names, out in steps
        ]
        outputs = [
            helper.make_tensor_value_info(f"{inner}_after", kind, [channels, states]),
            helper.make_tensor_value_info(f"{inner}_y", kind, [channels]),
        ]
        body: onnx.GraphProto = helper.make_graph(nodes, inner, inputs, outputs)
        return body

    # All the rest.

    def gelu(self, x: Value) -> Value:
        """See `Arrays.gelu`."""
        return self.node("Gelu", x)

    def silu(self, x: Value) -> Value:
        """See `Arrays.silu`."""
        return x * self.sigmoid(x)

    def sigmoid(self, x: Value) -> Value:
        """See `Arrays.sigmoid`."""
        return self.node("Sigmoid", x)

    def softplus(self, x: Value) -> Value:
        """See `Arrays.softplus`."""
        return self.node("Softplus", x)

    def tanh(self, x: Value) -> Value:
        """See `Arrays.tanh`."""
        return self.node("Tanh", x)

    def exp(self, x: Value) -> Value:
        """See `Arrays.exp`."""
        return self.node("Exp", x)

    def log(self, x: Value) -> Value:
        """See `Arrays.log`."""
        return self.node("Log", x)

    def sqrt(self, x: Value) -> Value:
        """See `Arrays.sqrt`."""
        return self.node("Sqrt", x)

    def cos(self, x: Value) -> Value:
        """See `Arrays.cos`."""
        return self.node("Cos", x)

    def sin(self, x: Value) -> Value:
        """See `Arrays.sin`."""
        return self.node("Sin", x)

    def softmax(self, x: Value) -> Value:
        """See `Arrays.softmax`."""
        return self.node("Softmax", x, axis=-1)

    def sum(self, x: Value, axis: int) -> Value:
        """See `Arrays.sum`."""
        return self.node("ReduceSum", x, self.integers([axis]), keepdims=0)

    def largest(self, x: Value) -> Value:
        """See `Arrays.largest`."""
        return self.node("ReduceMax", x, keepdims=0)

    def lower_bound(self, x: Value, least: float) -> Value:
        """See `Arrays.lower_bound`."""
        return self.node("Max", x, least)

    def transposed(self, x: Value) -> Value:
        """See `Arrays.transposed`."""
        return self.node("Transpose", x, perm=[1, 0])

    def wider(self, x: Value, axis: int) -> Value:
        """See `Arrays.wider`."""
        return self.node("Unsqueeze", x, self.integers([axis]))

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """See `Arrays.concat`."""
        return self.node("Concat", *parts, axis=axis)

    def rows(self, x: Value, start: int, stop: int | None = None) -> Value:
        """See `Arrays.rows`."""
        return self._slice(x, start, stop, 0)

    def columns(self, x: Value, start: int, stop: int | None = None) -> Value:
        """See `Arrays.columns`."""
        return self._slice(x, start, stop, 1)

    def _slice(self, x: Value, start: int, stop: int | None, axis: int) -> Value:
        if start == 0 and stop is None:
            return x
        places = ([start], [END if stop is None else stop], [axis])
        return self.node("Slice", x, *map(self.integers, places))

    def take(self, x: Value, index: Array) -> Value:
        """See `Arrays.take`."""
        return self.node("Gather", x, index, axis=0)

    def count(self, x: Value) -> Value:
        """See `Arrays.count`."""
        return self.node("Squeeze", self.node("Shape", x, start=0, end=1, whole=True), self.integers([0]))

    def range(self, start: Array | int, stop: Array | int) -> Value:
        """See `Arrays.range`."""
        first, after = (value if isinstance(value, Value) else self.integers(value) for value in (start, stop))
        return self.node("Range", first, after, self.integers(1))

    def number(self, x: Value) -> Value:
        """See `Arrays.number`."""
        return self.node("Cast", x, whole=False, to=self.onnx.TensorProto.FLOAT)

    def equal(self, x: Value, y: Array | int) -> Value:
        """See `Arrays.equal`."""
        return self.number(self.node("Equal", x, y))

    def reversed_first(self, x: Value, count: Value) -> Value:
        """See `Arrays.reversed_first`."""
        place = self.range(0, self.count(x))
        return self.take(x, self._where(self.node("Less", place, count), count - 1 - place, place))

    def _where(self, condition: Value, one: Array, other: Array) -> Value:
        like = next(value.whole for value in (one, other) if isinstance(value, Value))
        values = [value if isinstance(value, Value) else self._lifted(value, like) for value in (one, other)]
        return self.node("Where", condition, *values, whole=like)

    def best(self, x: Value, most: int) -> Value:
        """See `Arrays.best`."""
        count = self.node("Min", self.count(x), most)
        return self.several("TopK", x, self.wider(count, 0), whole=[False, True])[1]

    def highest_so_far(self, times: Value) -> Value:
        """See `Arrays.highest_so_far`."""
        known = self._where(self._before(times), self.wider(times, 0), np.iinfo(np.int64).min)
        return self.node("ReduceMax", known, self.integers([1]), keepdims=0)

    def _before(self, x: Value) -> Value:
        """(L, L), whether the column's event comes no later than the row's."""
        place = self.range(0, self.count(x))
        return self.node("LessOrEqual", self.wider(place, 0), self.wider(place, 1))

    def elapsed(self, times: Value, now: Value, tau0: float) -> Value:
        """See `Arrays.elapsed`."""
        return self.number(self.node("Max", now - times, 0)) / float(tau0)

    def later(self, one: Value, other: Value) -> Value:
        """See `Arrays.later`."""
        return self.node("Max", one, other)

    def intervals(self, times: Value, span: int, in_gaps: bool) -> Value:
        """See `Arrays.intervals`."""
        apart = self.wider(times, 1) - self.wider(times, 0)
        if in_gaps:
            gaps = self.concat([self.integers([0]), self.rows(times, 1) - self.rows(times, 0, -1)], 0)
            longer = self._where(self.node("Greater", gaps, 0), gaps, END)
            so_far = self._where(self._before(times), self.wider(longer, 0), END)
            shortest = self.node("ReduceMin", so_far, self.integers([1]), keepdims=1)
            # Division cuts off where numpy's rounds down: that differs below zero, where all becomes zero anyway.
            apart = (apart + shortest / 2) / shortest
        return self.node("Min", self.node("Max", apart, 0), span)

    def attention(self, query: Value, key: Value, value: Value, heads: int, causal: bool) -> Value:
        """See `Arrays.attention`."""
        query, key, value = (self._by_head(part, heads) for part in (query, key, value))  # (H, L, d/H)
        logits = query @ self.node("Transpose", key, perm=[0, 2, 1]) / self._norm(query, 2)
        if causal:
            logits = self._hidden(logits)
        mixed = self.softmax(logits) @ value
        return self.node("Reshape", self.node("Transpose", mixed, perm=[1, 0, 2]), self.integers([0, -1]))

    def _by_head(self, x: Value, heads: int) -> Value:
        width = self.node("Reshape", x, self.integers([0, heads, -1]))
        return self.node("Transpose", width, perm=[1, 0, 2])

    def _axis(self, x: Value, axis: int) -> Value:
        return self.node("Squeeze", self.node("Shape", x, start=axis, end=axis + 1, whole=True), self.integers([0]))

    def _norm(self, x: Value, axis: int) -> Value:
        """Root of the width of a head."""
        return self.sqrt(self.number(self._axis(x, axis)))

    def _hidden(self, logits: Value) -> Value:
        """Logits (H, Q, L) whose event comes after the query's become -inf."""
        queries, events = self._axis(logits, 1), self._axis(logits, 2)
        place = self.wider(self.range(0, events), 0)
        own = self.wider(self.range(events - queries, events), 1)
        return self._where(self.node("LessOrEqual", place, own), logits, -math.inf)

    def interval_attention(
        self, query: Value, key: Value, value: Value, intervals: Value, key_table: Value, value_table: Value, heads: int
    ) -> Value:
        """See `Arrays.interval_attention`."""
        keys = self.wider(key, 0) + self.take(key_table, intervals)  # (Q, L, d)
        values = self.wider(value, 0) + self.take(value_table, intervals)
        asked = self.node("Reshape", query, self.integers([0, 1, heads, -1]))
        keys, values = (self.node("Reshape", part, self.integers([0, 0, heads, -1])) for part in (keys, values))
        logits = self.node("Transpose", self.sum(asked * keys, 3), perm=[2, 0, 1]) / self._norm(keys, 3)  # (H, Q, L)
        weights = self.node("Transpose", self.softmax(self._hidden(logits)), perm=[1, 2, 0])  # (Q, L, H)
        mixed = self.sum(self.wider(weights, 3) * values, 1)  # (Q, H, d/H)
        return self.node("Reshape", mixed, self.integers([0, -1]))
