"""Operators that are called directly refuse histories and moments that are not in order, and name the row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from marsrec.nn.hawkes import Hawkes
from marsrec.nn.mars import MARS

TIMES = torch.tensor([[10, 20, 20, 30], [10, 10, 40, 40]])
Call = Callable[..., Any]


def mars(times: Tensor, **given: Any) -> Any:
    return MARS(8, 2)(torch.randn(*times.shape, 8), times, **given)


def mars_everywhere(times: Tensor, now: Tensor | None = None, **given: Any) -> Any:
    now = None if now is None else torch.maximum(times, now[:, None])
    return MARS(8, 2)(torch.randn(*times.shape, 8), times, now=now, every=True, **given)


def hawkes(times: Tensor, now: Tensor | None = None, **given: Any) -> Any:
    now = (times[:, -1] if now is None else now)[:, None]
    return Hawkes(8, 2)(torch.randn(2, 4, 8), torch.randn(2, 4, 8), times, now=now, first=3, **given)


def hawkes_weights(times: Tensor, now: Tensor | None = None, lengths: Tensor | None = None, **given: Any) -> Any:
    lengths = torch.tensor([4, 4]) if lengths is None else lengths
    return Hawkes(8, 2).weigh(times, times[:, -1] if now is None else now, lengths, **given)


every_way = pytest.mark.parametrize("call", [mars, mars_everywhere, hawkes, hawkes_weights])


@every_way
def test_times_that_go_back(call: Call) -> None:
    times = TIMES.clone()
    times[1, 2] = 5
    with pytest.raises(ValueError, match=r"times of row 1 go back from 10 to 5 at position 2\. Sort events by time"):
        call(times)
    call(times, checked=False)


@every_way
def test_times_in_padding_may_be_anything(call: Call) -> None:
    times = TIMES.clone()
    times[1, 2:] = 0
    call(times, now=torch.tensor([30, 10]), lengths=torch.tensor([4, 2]))
    with pytest.raises(ValueError, match=r"row 1 go back from 10 to 0 at position 2\. .* tell padding by lengths"):
        call(times, now=torch.tensor([30, 10]), lengths=torch.tensor([4, 3]))


@pytest.mark.parametrize("call", [mars, hawkes, hawkes_weights])
def test_a_moment_before_the_latest_event(call: Call) -> None:
    call(TIMES, now=torch.tensor([30, 40]))
    with pytest.raises(ValueError, match=r"now is 39 in row 1, before the latest event that it sees, at 40\. Ask"):
        call(TIMES, now=torch.tensor([30, 39]))


def test_a_moment_before_the_event_at_its_position() -> None:
    states, now = torch.randn(2, 4, 8), TIMES.clone()
    now[0, 2] = 19
    with pytest.raises(ValueError, match="now is 19 in row 0, before the latest event that it sees, at 20"):
        MARS(8, 2)(states, TIMES, now=now, every=True)
    with pytest.raises(ValueError, match="now is 19 in row 0, before the latest event that it sees, at 20"):
        Hawkes(8, 2)(states, states, TIMES, now=now[:, 1:], first=1)


@every_way
@pytest.mark.parametrize("length", [0, -1, 5, 2**40])
def test_lengths_that_do_not_fit(call: Call, length: int) -> None:
    with pytest.raises(ValueError, match=rf"between 1 and the 4 positions of times; found {length} in row 1"):
        call(TIMES, lengths=torch.tensor([4, length]))


@every_way
def test_lengths_of_another_shape(call: Call) -> None:
    with pytest.raises(ValueError, match=r"lengths is integers \(2,\), one per row; found torch.int64 \(3,\)"):
        call(TIMES, lengths=torch.tensor([4, 4, 4]))


def test_shapes_of_the_hawkes_operator_are_named() -> None:
    with pytest.raises(ValueError, match=r"now is integers \(2, 1\), .*; found torch.int64 \(2, 4\)"):
        Hawkes(8, 2)(torch.randn(2, 4, 8), torch.randn(2, 4, 8), TIMES, now=TIMES, first=3)
    with pytest.raises(ValueError, match="times are integers"):
        Hawkes(8, 2)(torch.randn(2, 4, 8), torch.randn(2, 4, 8), TIMES.float(), now=TIMES)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_graph_that_is_traced_has_no_checks() -> None:
    operator, states = MARS(8, 2), torch.randn(2, 4, 8)
    traced = torch.jit.trace(operator, (states, TIMES))
    kinds = {node.kind() for node in traced.inlined_graph.nodes()}
    assert not kinds & {"aten::any", "aten::nonzero", "aten::lt"}
