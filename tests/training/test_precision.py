"""Mixed precision: a step of each recipe gives finite gradients near those of single precision."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.synthetic import cyclic_log, histories_of

from marsrec.data.splits import leave_one_out
from marsrec.errors import SettingsError
from marsrec.models import RECIPES, model_settings
from marsrec.training import half_precision
from marsrec.training.fit import CHECKPOINT, fit
from marsrec.training.module import training_batches
from marsrec.training.settings import TrainingSettings

CASES = [(name, {}) for name in RECIPES] + [("mars-t", {"readout.form": "streaming"})]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda case: str(case))
def test_a_step_under_autocast(name: str, options: dict) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=9, events=9, items=7)))
    torch.manual_seed(0)
    dropouts = ["encoder.dropout", "item_dropout"]  # what is dropped differs between kinds of numbers
    if "dropout" in type(RECIPES[name].readout).model_fields:
        dropouts.append("readout.dropout")
    settings = model_settings(name, options={**dict.fromkeys(dropouts, 0.0), "dim": 16, **options})
    model = settings.build(7).train()
    twins = settings.objective.needs_twins
    batch = training_batches(split, 50, model.causal, TrainingSettings(), 0, twins=twins)[0]
    losses: list[torch.Tensor] = []
    for mixed in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            torch.manual_seed(1)  # masks
            losses.append(torch.stack(list(settings.objective.losses(model, batch).values())).sum())
    torch.testing.assert_close(losses[1].float(), losses[0], rtol=2e-2, atol=0)
    losses[1].backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.fixture
def tried_anew() -> Iterator[None]:
    half_precision.works.cache_clear()
    yield
    half_precision.works.cache_clear()


@pytest.mark.usefixtures("tried_anew")
@pytest.mark.skipif(sys.platform == "win32", reason="processes end in another way there")
def test_where_half_precision_ends_the_process_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(half_precision, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    split = leave_one_out(histories_of(cyclic_log(users=9, events=9, items=7)))
    training = TrainingSettings(epochs=1, precision="bf16-mixed", accelerator="cpu")
    (tmp_path / CHECKPOINT).write_text("an earlier training")
    with pytest.raises(SettingsError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        fit(split, model_settings("sasrec"), training, folder=tmp_path, progress=False)
    assert (tmp_path / CHECKPOINT).read_text() == "an earlier training"
