"""Scorers: what they return gives the scores of their definitions, in training and where vectors are zero."""

import math

import pytest
import torch
import torch.nn.functional as F

from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import Softmax
from marsrec.nn.readouts.last import LastSettings
from marsrec.nn.scorers import Biased, BiasedSettings, Cosine, CosineSettings, DotSettings, unit

N_ITEMS, DIM = 11, 5
ALL = [DotSettings(), BiasedSettings(), CosineSettings()]


def model_with(scorer: torch.nn.Module) -> SequenceModel:
    torch.manual_seed(0)
    encoder = TransformerSettings(attention_heads=1).build(DIM, 3)
    model = SequenceModel(N_ITEMS, DIM, encoder, LastSettings().build(DIM, DIM, 1.0), scorer, item_std=0.5)
    return model.double()


def users(count: int = 4) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(count, DIM, dtype=torch.float64)


def test_biased_scores_equal_their_definition() -> None:
    scorer = BiasedSettings().build(DIM, N_ITEMS)
    assert scorer.bias.tolist() == [0.0] * (N_ITEMS + 1)
    torch.nn.init.normal_(scorer.bias)
    model = model_with(scorer).eval()
    linear, _, norm = scorer.head
    for user, scores in zip(users(), model.score(users()), strict=True):
        x = linear.weight @ user + linear.bias
        x = torch.stack([v / 2 * (1 + math.erf(v.item() / math.sqrt(2))) for v in x])
        x = (x - x.mean()) / x.var(unbiased=False).add(1e-12).sqrt() * norm.weight + norm.bias
        expected = torch.stack([x @ item for item in model.items.weight]) + scorer.bias
        torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9)


def test_cosine_scores_equal_their_definition() -> None:
    model = model_with(CosineSettings(temperature=0.1).build(DIM, N_ITEMS)).eval()
    scores = model.score(users())
    expected = F.cosine_similarity(users()[:, None], model.items.weight[None, 1:], dim=-1) / 0.1
    torch.testing.assert_close(scores[:, 1:], expected, rtol=1e-9, atol=1e-9)
    assert (scores[:, 0] == 0).all()  # padding is the zero vector
    torch.testing.assert_close(model.score(3 * users()), scores, rtol=1e-9, atol=1e-9)  # only the angle counts


def test_cosine_drops_of_the_item_table_in_training_only() -> None:
    scorer = CosineSettings(dropout=0.5, temperature=1.0).build(64, 1000)
    table, given = torch.randn(1000, 64), torch.randn(3, 64)
    vectors, items, bias = scorer.train()(given, table)
    assert bias is None
    torch.testing.assert_close(vectors, F.normalize(given, dim=1))
    assert 0.48 < (items == 0).float().mean() < 0.52
    torch.testing.assert_close(items, F.normalize(table * (items != 0), dim=1))
    torch.testing.assert_close(scorer.eval()(given, table)[1], F.normalize(table, dim=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_zero_vectors_stay_zero_with_tame_gradients(dtype: torch.dtype) -> None:
    vectors = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    units = unit(vectors)
    torch.testing.assert_close(units, torch.tensor([[0, 0], [0.6, 0.8]], dtype=dtype))
    units.sum().backward()
    assert vectors.grad.isfinite().all()
    assert vectors.grad.abs().max() <= 1


@pytest.mark.parametrize("settings", ALL, ids=lambda settings: settings.name)
def test_gradients_of_the_softmax(settings: DotSettings | BiasedSettings | CosineSettings) -> None:
    """Finite, equal to those of a plain cross-entropy of the scores, and none for padding, also for a zero user."""
    model = model_with(settings.build(DIM, N_ITEMS)).train()
    if isinstance(model.scorer, Cosine):
        model.scorer.dropout.p = 0.0
    given = torch.cat([users(), torch.zeros(1, DIM, dtype=torch.float64)]).requires_grad_()
    wanted = torch.tensor([1, 5, 11, 5, 2])
    parts = [given, model.items.weight, *model.scorer.parameters()]
    found = torch.autograd.grad(Softmax()(model, given, wanted), parts)
    expected = torch.autograd.grad(F.cross_entropy(model.score(given)[:, 1:], wanted - 1), parts)
    for part, reference in zip(found, expected, strict=True):
        assert part.isfinite().all()
        torch.testing.assert_close(part, reference, rtol=1e-9, atol=1e-9)
    assert (found[1][0] == 0).all()
    assert all(part.abs().sum() > 0 for part in found)
    if isinstance(model.scorer, Biased):
        assert torch.autograd.grad(Softmax()(model, given, wanted), model.scorer.bias)[0][0] == 0


def test_sizes() -> None:
    sizes = [sum(p.numel() for p in settings.build(64, 12_101).parameters()) for settings in ALL]
    assert sizes == [0, 4_288 + 12_102, 0]
