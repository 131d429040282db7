"""What a model made of one history, in numbers: rates, gate, weights, and scores split exactly.

As in `marsrec.recommender.explanation`, but of many items at once, and also for what a session of a recurrent model
folds: all events, weighed by the streaming form's mixture.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.mars import Mars
from marsrec.nn.scorers import Dot
from marsrec.recommender.session import PIECE


@dataclass(frozen=True)
class Heads:
    """What MARS decided. K heads, L events."""

    rates: Tensor
    """(K,) exponents."""
    gate: Tensor
    """(K,)."""
    weights: Tensor
    """(K, L)."""


@dataclass(frozen=True)
class Split:
    """Scores of n items in parts that sum to them."""

    last: Tensor
    """(n,) shares of the last state."""
    shares: Tensor
    """(n, K, S) shares of the latest events by head."""
    earlier: Tensor
    """(n, K) shares of all events before those."""


@dataclass(frozen=True)
class Reading:
    """A history as a model saw it, oldest event first."""

    codes: NDArray[np.int64]
    times: NDArray[np.int64]
    now: int
    """From when ages are measured."""
    user: Tensor
    """(1, d) user vector."""
    states: Tensor
    """(L, d)."""
    heads: Heads | None
    """None for models without MARS."""
    earlier: int = 0
    """How many more events counted before these."""

    def latest(self, shown: int) -> "Reading":
        """What was read of the latest `shown` events; the states before them can be let go."""
        heads = self.heads
        if heads is not None:
            heads = replace(heads, weights=heads.weights[:, -shown:].clone())
        codes, times, states = self.codes[-shown:].copy(), self.times[-shown:].copy(), self.states[-shown:].clone()
        earlier = self.earlier + len(self.codes) - len(codes)
        return replace(self, codes=codes, times=times, states=states, heads=heads, earlier=earlier)

    def split(self, network: SequenceModel, codes: Tensor, shown: int) -> Split | None:
        """Scores of items in parts, those of the latest `shown` events one by one.

        None where scores do not split: without MARS, or with a scorer that is not linear in the states.
        """
        readout = network.readout
        if self.heads is None or not isinstance(readout, Mars) or not isinstance(network.scorer, Dot):
            return None
        vectors = network.items.weight.detach()[codes.long()]  # (n, d)
        each = vectors @ readout.operator.values(self.states).detach().T  # (n, L)
        weights = self.heads.gate[:, None] * self.heads.weights  # (K, L)
        shares = weights[:, -shown:] * each[:, None, -shown:]
        return Split(vectors @ self.states[-1], shares, each[:, :-shown] @ weights[:, :-shown].T)


@torch.no_grad()
def read(
    network: SequenceModel, codes: NDArray[np.int64], times: NDArray[np.int64], asked: int, *, folded: bool
) -> Reading:
    """Read out one history with at least one event.

    Parameters
    ----------
    network : SequenceModel
        The model.
    codes, times : arrays (L,)
        Its events, all of which are looked at.
    asked : int
        The moment of the request.
    folded : bool
        Take the events in and weigh them as a session of a recurrent model does.
    """
    device = network.items.weight.device
    items, moments = torch.from_numpy(codes)[None].to(device), torch.from_numpy(times)[None].to(device)
    now = torch.full_like(moments, asked)
    batch = Batch(items, moments, torch.tensor([len(codes)], device=device), torch.zeros_like(items), now)
    embedded, states = _folded(network, items) if folded else network.encode(batch)
    readout = network.readout
    if not isinstance(readout, Mars):
        user = readout(states, embedded, batch, at_targets=False).users
        return Reading(codes, times, int(times[-1]), user, states[0], None)
    operator = readout.operator
    if folded:
        operator = copy.copy(operator)
        operator.form = "streaming"
    on_request = readout.settings.clock == "request"
    seen = operator.read(
        states,
        batch.times,
        now=now[:, 0] if on_request else None,
        lengths=batch.lengths,
        last_items=batch.at_last(embedded),
    )
    assert seen.weights is not None
    heads = Heads(seen.rates[0, 0], seen.gate[0, 0], seen.weights[0])
    return Reading(codes, times, asked if on_request else int(times[-1]), seen.users[:, 0], states[0], heads)


def _folded(network: SequenceModel, items: Tensor) -> tuple[Tensor, Tensor]:
    """What `SequenceModel.encode` gives, some events at a time: a long history takes less memory."""
    embedded: Tensor = network.items(items)
    memory, states = network.encoder.start(len(items)), []
    for start in range(0, items.shape[1], PIECE):
        part, memory = network.encoder.resume(memory, embedded[:, start : start + PIECE])
        states.append(part)
    return embedded, torch.cat(states, dim=1)
