"""Each kernel beside plain torch in its place: alone on what a training step hands it, and in the whole step.

`python -m benchmarks kernels`
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.long_histories import ITEMS, batch_of
from benchmarks.measure import peak_bytes, show, split_like
from benchmarks.recipes import typical_batches
from benchmarks.training import Stepper
from marsrec.data.batches import Batch
from marsrec.data.splits import Split
from marsrec.models import model_settings
from marsrec.nn import mars
from marsrec.nn.encoders import bert, mamba, time_interval, transformer
from marsrec.nn.kernels import attention, dropout
from marsrec.nn.readouts import narm

ROUNDS = 15
LONG = 1_600


class Kernel(NamedTuple):
    """A kernel, a recipe that takes it, and where the recipe's parts look it up."""

    name: str
    recipe: str
    owners: tuple[ModuleType, ...]
    plain: Callable[..., Any]
    options: Mapping[str, Any] = MappingProxyType({})

    @contextmanager
    def replaced(self, function: Callable[..., Any]) -> Iterator[None]:
        """Let models call another function in its place."""
        with ExitStack() as stack:
            for owner in self.owners:
                stack.enter_context(patch.object(owner, self.name, function))
            yield


def causal_attention(query: Tensor, key: Tensor, value: Tensor, drop: float) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, dropout_p=drop, is_causal=True)


def attention_both_ways(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, drop: float) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=drop)


def reference(owner: ModuleType, name: str) -> Callable[..., Any]:
    return partial(getattr(owner, name), implementation="reference")


KERNELS = (
    Kernel("interval_attention", "tisasrec", (time_interval,), reference(time_interval, "interval_attention")),
    Kernel("additive_attention", "narm", (narm,), reference(narm, "additive_attention")),
    Kernel("decayed_average", "mars-t", (mars,), reference(mars, "decayed_average"), {"readout.form": "dense"}),
    Kernel("causal_attention", "sasrec", (transformer,), causal_attention),
    Kernel("attention", "bert4rec", (bert,), attention_both_ways),
    Kernel("dropout", "bert4rec", (dropout, attention), F.dropout),
    Kernel("dropout", "mamba4rec", (dropout,), F.dropout),
    Kernel("selective_scan", "mamba4rec", (mamba,), reference(mamba, "selective_scan")),
)
LINEAR = tuple(kernel for kernel in KERNELS if kernel.name in ("decayed_average", "causal_attention"))
"""Those that hold no more than is linear in the length, where plain torch at least fits into memory."""


def on_data(kernel: Kernel, split: Split, length: int) -> list[str]:
    """A row of the table, for steps as they are in training."""
    settings = model_settings(kernel.recipe, split.average_length, options={**kernel.options, "length": length})
    stepper = Stepper(settings, split.histories.n_items)
    return compared(kernel, stepper, typical_batches(split, settings, stepper.model.causal))


def on_long_histories(kernel: Kernel) -> list[str]:
    """A row of the table, for long histories whose every position has a target."""
    settings = model_settings(kernel.recipe, 165.5, options={**kernel.options, "length": LONG})
    return compared(kernel, Stepper(settings, ITEMS), [batch_of(LONG)])


def compared(kernel: Kernel, stepper: Stepper, batches: list[Batch]) -> list[str]:
    """Milliseconds and megabytes with the kernel and with plain torch, alone and in the step."""
    alone = largest_call(kernel, lambda: stepper.step(batches[0]))
    original = getattr(kernel.owners[0], kernel.name)

    def step(function: Callable[..., Any], index: int) -> None:
        with kernel.replaced(function):
            stepper.step(batches[index % len(batches)])

    cells = [kernel.name]
    for run in (lambda function, _: alone(function), step):
        ways = {"kernel": partial(run, original), "plain": partial(run, kernel.plain)}
        seconds = in_turns(ways)
        ratio = median(plain / ours for ours, plain in zip(seconds["kernel"], seconds["plain"], strict=True))
        cells += [f"{1e3 * median(spent):.1f}" for spent in seconds.values()]
        cells += [f"{ratio:.2f}×", *(f"{peak_bytes(lambda way=way: way(0)) / 1e6:.0f}" for way in ways.values())]
    return [*cells[:6], kernel.recipe, *cells[6:]]


def largest_call(kernel: Kernel, step: Callable[[], None]) -> Callable[[Callable[..., Any]], None]:
    """A forward and backward pass of a function on the largest inputs that a step hands to a kernel."""
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    original = getattr(kernel.owners[0], kernel.name)

    def recorder(*args: Any, **kwargs: Any) -> Any:
        calls.append((tuple(arg.detach().clone() if isinstance(arg, Tensor) else arg for arg in args), kwargs))
        return original(*args, **kwargs)

    with kernel.replaced(recorder):
        step()
    args, kwargs = max(reversed(calls), key=lambda call: call[0][0].numel())  # dropout at rate 0 comes first
    leaves = [part.requires_grad_() for part in args if isinstance(part, Tensor) and part.is_floating_point()]

    def alone(function: Callable[..., Any]) -> None:
        out = function(*args, **kwargs)
        torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    return alone


def in_turns(contestants: dict[str, Callable[[int], None]]) -> dict[str, list[float]]:
    """Seconds of each run, by its number; those of the same number are neighbours in time."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for index in range(ROUNDS + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run(index)
            if index:  # the first compiles
                seconds[name].append(time.perf_counter() - start)
    return seconds


def main() -> None:
    for data, length in (("beauty", 50), ("ml-1m", 200)):
        split, title = split_like(data)
        tabulate(f"{title}, L={length}", [on_data(kernel, split, length) for kernel in KERNELS])
    tabulate(f"random histories, L={LONG:,}, a target at each event", [on_long_histories(kernel) for kernel in LINEAR])


def tabulate(title: str, rows: list[list[str]]) -> None:
    columns = ["ms", "plain ms", "faster", "peak MB", "plain MB"]
    show(
        f"Kernels beside plain torch, forward and backward: {title}",
        ["kernel", *columns, "step of", *columns],
        rows,
        "Left: the largest of the kernel's calls in a training step, alone. Right: whole steps. All are medians, also "
        "the ratios, each of two neighbours in time.",
    )


if __name__ == "__main__":
    main()
