"""What repeats are worth, fitted to the validation targets once the network is trained.

A network that has seen its training events too often is too sure of itself. So its scores are scaled down first, by the
one of some temperatures that makes the targets likeliest; own items get their scores beside them. The order of items
depends on the ratio alone, and the network stays as it is::

    P(item) = softmax( (score + own score) / temperature )

Shapes: N targets, E own items of all of them, F features.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from marsrec.data.batches import contexts, gather
from marsrec.data.splits import Split, Targets
from marsrec.evaluation.evaluate import user_vectors
from marsrec.nn.model import SequenceModel

TARGETS = 5000
"""As many validation targets suffice for two dozen numbers."""
ROWS = 128
"""Targets at a time whose scores are held."""
TEMPERATURES = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0)
STEPS = 50


@dataclass(frozen=True)
class _Seen:
    """What is known of N targets. Only own items get scores of their own, so of all others a sum is enough."""

    others: Tensor
    """(N, temperatures) logarithm of the sum of exp(score / temperature) over all items that are not own ones."""
    target: Tensor
    """(N,) the network's score of the target."""
    place: Tensor
    """(N,) which own item the target is, or E."""
    row: Tensor
    """(E,) whose item it is."""
    own: Tensor
    """(E,) the network's scores of own items."""
    features: Tensor
    """(E, F)."""


def fit_repeats(model: SequenceModel, split: Split, length: int) -> None:
    """Fit the weights of `model.repeats` to 5,000 validation targets at most. The rest of the model stays as it is.

    They are held near zero as a normal distribution would hold them: those of which few targets tell stay small.
    """
    targets = split.valid
    if model.repeats is None or len(targets) == 0:
        return
    if len(targets) > TARGETS:
        drawn = np.sort(np.random.default_rng(0).permutation(len(targets))[:TARGETS])
        targets = Targets(targets.users[drawn], targets.positions[drawn])
    seen = _look(model, split, targets, length)
    found = [(*_weights(seen, index), heat) for index, heat in enumerate(TEMPERATURES)]
    _, weights, heat = min(found, key=lambda one: one[0])
    model.repeats.weights.copy_(heat * weights)


@torch.no_grad()
def _look(model: SequenceModel, split: Split, targets: Targets, length: int) -> _Seen:
    assert model.repeats is not None
    histories = split.histories
    users = user_vectors(model, histories, targets, length)
    rows = contexts(histories, targets, length)
    found: list[tuple[Tensor, ...]] = []
    owned = 0
    for start in range(0, len(rows), ROWS):
        batch = gather(histories, rows[start : start + ROWS]).to(users.device)
        offsets, items, features = model.repeats.features(batch, model.now(batch))
        row = torch.repeat_interleave(torch.arange(len(batch.items), device=users.device), offsets.diff())
        wanted = batch.targets.gather(1, batch.last[:, None])  # (R, 1)
        scores = model.score(users[start : start + ROWS]).float()
        own, target = scores[row, items], scores.gather(1, wanted)[:, 0]
        hit = items == wanted[row, 0]
        place = torch.full_like(wanted[:, 0], -1).index_put_((row[hit],), owned + hit.nonzero()[:, 0])
        owned += len(own)
        scores[:, 0] = -torch.inf
        scores[row, items] = -torch.inf
        others = torch.stack([(scores / heat).logsumexp(1) for heat in TEMPERATURES], dim=1)
        found.append((others, target, place, start + row, own, features))
    others, target, place, row, own, features = map(torch.cat, zip(*found, strict=True))
    return _Seen(others, target, torch.where(place < 0, owned, place), row, own, features)


def _weights(seen: _Seen, index: int) -> tuple[float, Tensor]:
    """Loss of the targets at a temperature, and weights in its unit."""
    weights = torch.zeros(seen.features.shape[1], requires_grad=True, device=seen.own.device)
    optimizer = torch.optim.LBFGS([weights], max_iter=STEPS, line_search_fn="strong_wolfe")
    others, heat = seen.others[:, index], TEMPERATURES[index]

    def loss() -> Tensor:
        optimizer.zero_grad()
        added = seen.features @ weights
        own = added + seen.own / heat
        top = torch.maximum(others, others.scatter_reduce(0, seen.row, own.detach(), "amax"))
        total = (others - top).exp().index_add(0, seen.row, (own - top[seen.row]).exp())
        target = seen.target / heat + torch.cat([added, added.new_zeros(1)])[seen.place]
        value = (total.log() + top - target).sum() + 0.5 * weights.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
        return loss().item(), weights.detach()
