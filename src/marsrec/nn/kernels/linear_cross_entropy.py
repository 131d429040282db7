"""Cross-entropy over a whole catalog without its logits, and sampled softmax for catalogs too large for that.

Shapes: N positions, V items, S negatives, C rows of a chunk, d width.
"""

from typing import Any

import torch
from numba import prange
from torch import Tensor

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import ZERO, exp, largest

_LOGITS = 1 << 20  # that are held at once where a catalog is small: fewer and larger products are faster


def linear_cross_entropy(
    users: Tensor,
    items: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    left_out: Tensor | None = None,
    chunk_rows: int | None = None,
) -> Tensor:
    """Mean cross-entropy of `softmax(users @ items.T + bias)`, holding a few rows of logits at a time.

    Equals `F.cross_entropy(users @ items.T + bias, targets)`. When gradients are wanted, they are computed together
    with the loss, while a chunk's logits are still in the cache; the backward pass only scales them.

    Parameters
    ----------
    users : Tensor (N, d)
        User vectors. Their dtype is the dtype of the matrix products; for bfloat16 and float16 the softmax, the loss
        and the sum of the item gradients are float32.
    items : Tensor (V, d)
        Item vectors, for example an embedding table without its padding row.
    targets : Tensor (N,)
        Row of `items` that is right, for each user vector (int64).
    bias : Tensor (V,), optional
        Added to the logits.
    left_out : Tensor (N,), optional
        Row of `items` that is no candidate, for each user vector; never its target.
    chunk_rows : int, optional
        Rows of logits that are held at once: memory is `chunk_rows * V` instead of `N * V`. Fewer than 64 make poor
        matrix products; many small chunks suffer most when other processes want the same cores. If not given, as many
        as make a million logits, at least 128 and at most 512.

    Returns
    -------
    Tensor ()
        The mean over the N positions; 0 for no positions, which then contribute nothing.

    Examples
    --------
    >>> users, items = torch.zeros(3, 2, requires_grad=True), torch.eye(4, 2)
    >>> loss = linear_cross_entropy(users, items, torch.tensor([0, 1, 3]))
    >>> print(f"{loss.item():.4f}")  # four items, all equally likely: log 4
    1.3863
    """
    if users.ndim != 2 or items.ndim != 2 or users.shape[1] != items.shape[1] or targets.shape != users.shape[:1]:
        raise ValueError(
            "linear_cross_entropy wants users (N, d), items (V, d) and targets (N,), "
            f"got {tuple(users.shape)}, {tuple(items.shape)} and {tuple(targets.shape)}"
        )
    if bias is not None and bias.shape != items.shape[:1]:
        raise ValueError(f"linear_cross_entropy wants one bias per item, {items.shape[0]}, got {tuple(bias.shape)}")
    if left_out is not None and left_out.shape != targets.shape:
        raise ValueError(f"left_out must be one row of items per user, {len(users)}, got {tuple(left_out.shape)}")
    if chunk_rows is None:
        chunk_rows = min(max(_LOGITS // max(len(items), 1), 128), 512)
    if chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1, got {chunk_rows}")
    if users.dtype == torch.float16:  # gradients of single items, made before a loss is scaled up, would be lost in it
        users = users.float()
    # Casting out here lets autograd hand each input a gradient of its own dtype, as under autocast.
    items = items.to(users.dtype)
    bias = None if bias is None else bias.to(users.dtype)
    loss: Tensor = _LinearCrossEntropy.apply(users, items, targets, bias, left_out, chunk_rows, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        users: Tensor,
        items: Tensor,
        targets: Tensor,
        bias: Tensor | None,
        left_out: Tensor | None,
        chunk_rows: int,
        grad_enabled: bool,
    ) -> Tensor:
        (count, width), catalog = users.shape, items.shape[0]
        for_users, for_items, _, for_bias, *_ = (grad_enabled and needed for needed in ctx.needs_input_grad)
        wide = torch.promote_types(users.dtype, torch.float32)
        users, items = users.contiguous(), items.contiguous()  # once here instead of in every product
        grad_users = torch.empty_like(users) if for_users else None
        grad_items = items.new_zeros(catalog, width, dtype=wide) if for_items else None
        grad_bias = items.new_zeros(catalog, dtype=wide) if for_bias else None

        losses = users.new_empty(count, dtype=wide)
        logits = users.new_empty(min(chunk_rows, count), catalog)
        exps = None if wide == users.dtype else torch.empty_like(logits, dtype=wide)
        for start in range(0, count, chunk_rows):
            rows = slice(start, start + chunk_rows)
            user, target = users[rows], targets[rows, None]  # (C, d), (C, 1)
            logit = logits[: len(user)]  # (C, V)
            exp = logit if exps is None else exps[: len(user)]
            torch.mm(user, items.T, out=logit)
            if bias is not None:
                logit += bias
            if left_out is not None:
                logit.scatter_(1, left_out[rows, None], -torch.inf)
            if exps is not None:
                exp.copy_(logit)
            target_logit = exp.gather(1, target)  # (C, 1)
            top, total = _exponentiate(exp)  # (C, 1)
            losses[rows] = (total.log() + top - target_logit).squeeze(1)

            # The softmax is exp / total. Dividing the d columns of a product is cheaper than the V columns of exp.
            scale = 1 / (total * count)  # (C, 1)
            if exps is not None:
                logit.copy_(exp)
            if grad_users is not None:
                torch.mm(logit, items, out=grad_users[rows]).mul_(scale)
            if grad_items is not None:
                scaled = (user * scale).to(user.dtype)
                if exps is None:
                    grad_items.addmm_(logit.T, scaled)
                else:  # a sum in half precision over all chunks would swallow small gradients
                    grad_items += logit.T @ scaled
            if grad_bias is not None:
                grad_bias.addmv_(exp.T, scale.squeeze(1))

        # What the softmax's gradient subtracts at the target, for all positions at once.
        if grad_users is not None:
            grad_users.sub_(items[targets], alpha=1 / max(count, 1))
        if grad_items is not None:
            grad_items.index_add_(0, targets, users.to(wide), alpha=-1 / max(count, 1))
        if grad_bias is not None:
            grad_bias.index_add_(0, targets, torch.ones_like(losses), alpha=-1 / max(count, 1))
        ctx.save_for_backward(
            grad_users,
            None if grad_items is None else grad_items.to(items.dtype),
            None if grad_bias is None else grad_bias.to(items.dtype),
        )
        return losses.sum() / max(count, 1)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True; what is saved here has forgotten how it depends on the inputs
            raise RuntimeError(
                "linear_cross_entropy cannot be differentiated twice; "
                "for second derivatives use F.cross_entropy(users @ items.T, targets)"
            )
        users, items, bias = (None if grad is None else grad * grad_loss.to(grad.dtype) for grad in ctx.saved_tensors)
        return users, items, None, bias, None, None, None


def _exponentiate(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Turn (C, V) logits into exp(logit - largest of the row) in place; return the largest and the sums, (C, 1)."""
    if logits.is_cpu and logits.dtype == torch.float32:
        top, total = logits.new_empty(2, len(logits), 1)
        with like_torch():
            _exponentiate_rows(logits.numpy(), top.numpy(), total.numpy())
        return top, total
    top = logits.amax(1, keepdim=True)
    return top, logits.sub_(top).exp_().sum(1, keepdim=True)


@kernel()
def _exponentiate_rows(logits: Any, tops: Any, totals: Any) -> None:
    for c in prange(len(logits)):
        row = logits[c]
        top = largest(row)
        total = ZERO
        for v in range(len(row)):
            value = exp(row[v] - top)
            row[v] = value
            total += value
        tops[c, 0], totals[c, 0] = top, total


def sampled_softmax(
    users: Tensor, items: Tensor, targets: Tensor, negatives: Tensor, *, log_q_negatives: Tensor
) -> Tensor:
    """Mean cross-entropy over each target and S negatives that all positions share, with log-Q correction.

    A negative that is drawn `q` times on average stands for `1 / q` items of its kind, hence `log q` is subtracted
    from its logit; a target is a candidate for certain, log 1 = 0. Negatives that hit a position's own target are
    removed there, so that a target competes once. Z is then estimated without bias, and the loss and its gradient with
    a bias that vanishes like 1 / S. They are those of the full softmax, exactly, when every item was drawn as often as
    expected: `exp(log_q)` times; the simplest such draw is every item once, with `log_q` 0.

    Parameters
    ----------
    users : Tensor (N, d)
        User vectors.
    items : Tensor (V, d)
        Item vectors.
    targets : Tensor (N,)
        Row of `items` that is right, for each user vector.
    negatives : Tensor (S,)
        Rows of `items`, drawn with replacement; see `NegativeSampler`.
    log_q_negatives : Tensor (S,)
        Log of the expected number of times that each negative's item is drawn, `log(S * probability)`.

    Returns
    -------
    Tensor ()
        The mean over the N positions.

    Examples
    --------
    >>> users, items, targets = torch.randn(3, 2), torch.randn(5, 2), torch.tensor([0, 4, 2])
    >>> everything = sampled_softmax(users, items, targets, torch.arange(5), log_q_negatives=torch.zeros(5))
    >>> torch.allclose(everything, linear_cross_entropy(users, items, targets))
    True
    """
    target_logits = (users * items.index_select(0, targets)).sum(1, keepdim=True)  # (N, 1)
    logits = users @ items.index_select(0, negatives).T - log_q_negatives  # (N, S)
    logits = logits.masked_fill(negatives == targets[:, None], -torch.inf)
    return (torch.cat([target_logits, logits], dim=1).logsumexp(1) - target_logits.squeeze(1)).mean()


class NegativeSampler:
    """Draw items with replacement, in proportion to their weights.

    Parameters
    ----------
    weights : Tensor (V,)
        Not negative, for example how often each item occurs, or that to the power of 0.75. Items of weight 0 are
        never drawn.

    Examples
    --------
    >>> sampler = NegativeSampler(torch.tensor([0.0, 3.0, 1.0]))
    >>> negatives, log_q = sampler.draw(4)
    >>> bool((negatives > 0).all())
    True
    >>> bool((log_q.exp().round() == torch.tensor([0.0, 3.0, 1.0])[negatives]).all())
    True
    """

    def __init__(self, weights: Tensor) -> None:
        # float64, because a float32 sum over a large catalog would give rare items a weight of 0.
        weights = weights.double()
        self._cumulative = weights.cumsum(0)
        self._log_probabilities = (weights / self._cumulative[-1]).log().float()

    def draw(self, size: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw `size` items; return them with the log of their expected number of draws.

        Parameters
        ----------
        size : int
            How many.
        generator : torch.Generator, optional
            On the device of the weights; the global one if none.
        """
        cumulative = self._cumulative
        points = torch.rand(size, dtype=cumulative.dtype, device=cumulative.device, generator=generator)
        negatives = torch.searchsorted(cumulative, points * cumulative[-1], right=True).clamp_(max=len(cumulative) - 1)
        return negatives, self._log_probabilities[negatives] + torch.tensor(float(size)).log().item()
