"""The small model that parts are checked in, and how vectors are compared."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import polars as pl
import torch
from torch import Tensor

from marsrec.data.batches import Batch, gather, prefixes, windows
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.splits import Split, leave_one_out
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import Losses
from marsrec.nn.settings import ModelSettings
from marsrec.training.settings import TrainingSettings

ITEMS, LENGTH = 7, 10
APPROXIMATE = 2e-3
"""How far a memory of fixed size may be from the whole history: MARS sums up a mixture of exponentials there."""


@dataclass(frozen=True)
class Case:
    """A small model that is checked."""

    settings: ModelSettings

    @cached_property
    def model(self) -> SequenceModel:
        """In double precision, with weights that tell events and times apart."""
        torch.manual_seed(0)
        model = self.settings.build(ITEMS).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
            model.items.weight[0] = 0
        return model

    @cached_property
    def prefixes(self) -> Batch:
        """Histories of one to seven events, each with a target at its end."""
        return gather(split().histories, prefixes(split(), self.settings.length))

    @cached_property
    def windows(self) -> Batch:
        """The same pairs of past and target, a row per user with a target at each event."""
        return gather(split().histories, windows(split(), self.settings.length, 1, np.random.default_rng(0)))

    @cached_property
    def embedded(self) -> Tensor:
        """The items of `prefixes`, as the encoder takes them."""
        return self.model.embed(self.prefixes.items).detach().requires_grad_()

    def losses(self, data: Split) -> Losses:
        """What training minimises on the first batch."""
        from marsrec.training.module import training_batches  # Lightning takes seconds

        model, objective = self.model.train(), self.settings.objective
        twins, usual = objective.needs_twins, TrainingSettings()
        batch = training_batches(data, self.settings.length, model.causal, usual, 0, twins=twins)[0]
        torch.manual_seed(0)  # dropout, masks and drawn positions
        try:
            losses: Losses = objective.losses(model, batch)
            return losses
        finally:
            model.eval()


Check = Callable[[Case], None]
"""The first line of its docstring says what is expected, the rest what to do."""


def cyclic_log(users: int = 60, events: int = 12, items: int = 20, seed: int = 0) -> pl.DataFrame:
    """A log in which each user walks through the items in order: the next item follows from the last one."""
    rng = np.random.default_rng(seed)
    start = rng.integers(items, size=(users, 1))
    item = (start + np.arange(events)) % items
    time = 1_600_000_000 + np.cumsum(rng.integers(1, 86_400, size=(users, events)), axis=1)
    return pl.DataFrame(
        {
            "user": [f"u{u}" for u in range(users) for _ in range(events)],
            "item": [f"i{i}" for i in item.flatten()],
            "time": time.flatten(),
        }
    )


def histories(users: int, events: int) -> Histories:
    """Those of a small cyclic log."""
    return Histories.from_log(Log(cyclic_log(users, events, ITEMS), "s"))


@cache
def split() -> Split:
    """Nine users of nine events, the latest two of which are held out."""
    return leave_one_out(histories(users=9, events=9))


def close(found: Tensor, expected: Tensor, tolerance: float = 0.0) -> None:
    """Raise unless numbers are the same but for rounding, or for a tolerance."""
    tolerance = max(tolerance, 1e-9)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def far(one: Tensor, other: Tensor) -> bool:
    """Whether all vectors differ, and by more than rounding."""
    return bool(((one - other).abs().amax(dim=-1) > 1e-6).all())


def same(short: Tensor, long: Tensor, inputs: list[Tensor]) -> None:
    """Raise unless two ways give the same values, and the same gradients of the inputs."""
    close(short, long)
    weights = torch.randn_like(long)
    ways = (torch.autograd.grad((way * weights).sum(), inputs, materialize_grads=True) for way in (short, long))
    for one, other in zip(*ways, strict=True):
        close(one, other)
