"""Training learns what is there to learn, and a killed run ends like an undisturbed one."""

import logging
import os
import re
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import torch
from tests.synthetic import cyclic_log, histories_of

from marsrec.data.batches import Batch
from marsrec.data.hawkes import HawkesSettings, hawkes
from marsrec.data.histories import Histories
from marsrec.data.splits import global_time, leave_one_out
from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.evaluate import evaluate
from marsrec.models import model_settings
from marsrec.nn.by_length import by_length
from marsrec.nn.settings import ModelSettings
from marsrec.training.fit import CHECKPOINT, CURVE, Fitted, fit
from marsrec.training.module import learning_rate, training_batches
from marsrec.training.settings import TrainingSettings

SMALL = {"dim": 32, "encoder.layers": 1, "encoder.dropout": 0.1, "length": 12}
QUICK = TrainingSettings(epochs=60, patience=60, learning_rate=5e-3, targets_per_batch=256)


def test_mars_learns_what_only_time_tells() -> None:
    """Soon after an event its successors come next, later the user's favourites: the moment of the request decides."""
    log, _ = hawkes(HawkesSettings(users=400, items=60, tastes=6))
    split = leave_one_out(Histories.from_log(log))
    training = QUICK.model_copy(update={"epochs": 6, "targets_per_batch": 512})
    reached = {}
    for model, clock in (("sasrec", {}), ("mars-t", {"readout.clock": "request"})):
        settings = model_settings(model, options=SMALL | {"length": 20} | clock)
        reached[model] = evaluate(fit(split, settings, training, progress=False).model, split, 20).metrics["NDCG@10"]
    assert reached["mars-t"] > 1.05 * reached["sasrec"], reached


def test_early_stopping_restores_the_best_weights() -> None:
    split = leave_one_out(histories_of(cyclic_log(users=30)))
    training = TrainingSettings(epochs=60, patience=2, learning_rate=0.05, targets_per_batch=64)
    fitted = fit(split, model_settings("sasrec", options=SMALL), training, progress=False)
    values = [row["valid/NDCG@10"] for row in fitted.curve]
    assert fitted.best_epoch == values.index(max(values)) + 1
    assert len(values) == fitted.best_epoch + 2
    measured = evaluate(fitted.model, split, 12, "valid").metrics
    assert measured["NDCG@10"] == pytest.approx(max(values), abs=1e-6)


def test_auxiliary_losses_are_logged_one_by_one(tmp_path: Path) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    training = TrainingSettings(epochs=2, targets_per_batch=64)
    fit(split, model_settings("mars-t", options=SMALL), training, folder=tmp_path, progress=False)
    curve = pl.read_csv(tmp_path / CURVE)
    assert curve["epoch"].to_list() == [1, 2]
    parts = curve["train/cross_entropy"] + curve["train/diversity"] + curve["train/balance"]
    assert (parts - curve["train/loss"]).abs().max() < 1e-5
    assert (curve["train/diversity"] < 0).all()
    assert (curve["train/balance"] >= 0.01).all()


def test_the_line_of_an_epoch_has_its_mean_loss(caplog: pytest.LogCaptureFixture) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=60)))
    training = TrainingSettings(epochs=2, targets_per_batch=32, learning_rate=0.01)
    with caplog.at_level(logging.INFO, "marsrec"):
        curve = fit(split, model_settings("sasrec", options=SMALL), training).curve
    lines = re.findall(r"epoch +(\d)/2  loss (\d+\.\d+)  valid", caplog.text)
    assert lines == [(str(row["epoch"]), f"{row['train/loss']:.3f}") for row in curve]
    assert len(lines) == 2


def test_time_limit_keeps_the_best_so_far(tmp_path: Path) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    training = TrainingSettings(epochs=10_000, patience=10_000, max_minutes=1 / 60)
    fitted = fit(split, model_settings("sasrec", options=SMALL), training, folder=tmp_path, progress=False)
    assert 1 <= len(fitted.curve) < 10_000
    assert fitted.best_epoch >= 1


def train(folder: Path, *, resume: bool = False) -> Fitted:
    """A training that takes some epochs, in one thread: how many there are decides the last digits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        split = leave_one_out(histories_of(cyclic_log(users=100)))
        settings = model_settings("mars-t", options={"dim": 32, "encoder.layers": 1, "length": 12})
        training = TrainingSettings(epochs=8, patience=3, targets_per_batch=64, schedule="cosine", warm_up=2)
        return fit(split, settings, training, folder=folder, resume=resume, progress=False)
    finally:
        torch.set_num_threads(threads)


def test_resume_after_sigkill_equals_the_undisturbed_run_bit_for_bit(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    code = f"from pathlib import Path; from tests.training.test_fit import train; train(Path({str(tmp_path / 'b')!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=root, env=environment)
    state = tmp_path / "b" / CURVE
    deadline = time.monotonic() + 60
    while not (state.exists() and pl.read_csv(state).height >= 2):
        assert killed.poll() is None, "finished before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    killed.kill()
    killed.wait()
    assert pl.read_csv(state).height < 8

    undisturbed, resumed = train(tmp_path / "a"), train(tmp_path / "b", resume=True)
    curves = [[{**row, "seconds": None} for row in fitted.curve] for fitted in (undisturbed, resumed)]
    assert curves[0] == curves[1]
    first, second = (fitted.model.state_dict() for fitted in (undisturbed, resumed))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_resuming_a_training_that_ended_by_itself_changes_nothing(tmp_path: Path) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=30)))
    training = TrainingSettings(epochs=60, patience=2, learning_rate=0.05, targets_per_batch=64)
    settings = model_settings("sasrec", options=SMALL)
    first = fit(split, settings, training, folder=tmp_path, progress=False)
    again = fit(split, settings, training, folder=tmp_path, resume=True, progress=False)
    assert again.curve == first.curve
    assert all(torch.equal(a, b) for a, b in zip(first.model.parameters(), again.model.parameters(), strict=True))


def test_resuming_after_the_time_limit_trains_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=60)))
    settings = model_settings("sasrec", options=SMALL)
    limited = TrainingSettings(epochs=6, targets_per_batch=64, max_minutes=0.5)
    with monkeypatch.context() as patch:  # a second passes each time the clock is looked at, as after every batch
        patch.setattr("marsrec.training.fit.time", SimpleNamespace(monotonic=map(float, count()).__next__))
        cut = fit(split, settings, limited, folder=tmp_path, progress=False)
    assert not cut.complete
    assert 1 < len(cut.curve) < 6
    unlimited = limited.model_copy(update={"max_minutes": None})
    resumed = fit(split, settings, unlimited, folder=tmp_path, resume=True, progress=False)
    undisturbed = fit(split, settings, unlimited, progress=False)
    assert resumed.complete
    assert [r["train/loss"] for r in resumed.curve] == [r["train/loss"] for r in undisturbed.curve]


def test_the_learning_rate_of_each_step_is_the_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    stepped = torch.optim.Adam.step

    def step(self: torch.optim.Adam, *args: object, **kwargs: object) -> object:
        rates.append(self.param_groups[0]["lr"])
        return stepped(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    split, settings = leave_one_out(histories_of(cyclic_log(users=40))), model_settings("sasrec", options=SMALL)
    training = TrainingSettings(epochs=4, learning_rate=0.1, schedule="cosine", warm_up=1, targets_per_batch=64)
    fit(split, settings, training, progress=False)
    steps = len(rates) // 4
    assert steps > 1
    assert rates == pytest.approx([learning_rate(training, (step + 0.5) / steps) for step in range(4 * steps)])
    assert 0 < rates[-1] < rates[steps] < 0.1


def test_a_preset_sets_what_is_not_given() -> None:
    fast = TrainingSettings(preset="fast", epochs=8)
    assert (fast.epochs, fast.learning_rate, fast.schedule, fast.warm_up) == (8, 3e-3, "cosine", 2)
    assert TrainingSettings(preset="fast", epochs=1).warm_up == 0  # else the rate would not reach its value
    assert TrainingSettings(preset="paper") == TrainingSettings()
    assert TrainingSettings.model_validate_json(fast.model_dump_json()) == fast


def test_a_warm_up_leaves_epochs_to_train() -> None:
    with pytest.raises(SettingsError, match="Give fewer epochs of warm-up"):
        TrainingSettings(epochs=3, warm_up=3)


def test_a_cosine_ends_with_the_epochs_that_it_began_with(tmp_path: Path) -> None:
    split, settings = leave_one_out(histories_of(cyclic_log(users=20))), model_settings("sasrec", options=SMALL)
    fit(split, settings, TrainingSettings(epochs=1, schedule="cosine"), folder=tmp_path, progress=False)
    with pytest.raises(SettingsError, match="other data or settings"):
        fit(split, settings, TrainingSettings(epochs=2, schedule="cosine"), folder=tmp_path, resume=True)


def test_a_log_without_training_pairs_is_named() -> None:
    split = leave_one_out(histories_of(cyclic_log(users=5, events=3)))
    with pytest.raises(DataError, match="nothing to train on"):
        fit(split, model_settings("sasrec", options=SMALL), QUICK, progress=False)


def test_unknown_accelerators_are_named() -> None:
    split = leave_one_out(histories_of(cyclic_log(users=5)))
    with pytest.raises(SettingsError, match="training settings"):
        fit(split, model_settings("sasrec", options=SMALL), TrainingSettings(accelerator="abacus"), progress=False)


def test_resume_refuses_other_settings_and_damaged_states(tmp_path: Path) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    settings = model_settings("sasrec", options=SMALL)
    fit(split, settings, TrainingSettings(epochs=1), folder=tmp_path, progress=False)
    other = TrainingSettings(epochs=2, seed=1)
    with pytest.raises(SettingsError, match="other data or settings"):
        fit(split, settings, other, folder=tmp_path, resume=True, progress=False)
    elsewhere = global_time(split.histories, 0.5, 0.9)
    with pytest.raises(SettingsError, match="other data or settings"):
        fit(elsewhere, settings, TrainingSettings(epochs=2), folder=tmp_path, resume=True)
    content = (tmp_path / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"not a readable checkpoint.*without --resume"):
        fit(split, settings, other, folder=tmp_path, resume=True, progress=False)


def test_resume_asks_for_what_decides_the_result(tmp_path: Path) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    settings = model_settings("sasrec", options=SMALL)
    fit(split, settings, TrainingSettings(epochs=1), folder=tmp_path, progress=False)
    two = TrainingSettings(epochs=2, accelerator="cpu", devices=2)
    with pytest.raises(SettingsError, match="other data or settings"):
        fit(split, settings, two, folder=tmp_path, resume=True, progress=False)
    falling = TrainingSettings(epochs=2, schedule="cosine")
    with pytest.raises(SettingsError, match="other data or settings"):
        fit(split, settings, falling, folder=tmp_path, resume=True, progress=False)
    elsewhere = TrainingSettings(epochs=2, accelerator="cpu", max_minutes=10)
    resumed = fit(split, settings, elsewhere, folder=tmp_path, resume=True, progress=False)
    assert [row["epoch"] for row in resumed.curve] == [1, 2]


def test_a_share_of_the_prefixes_is_drawn_anew_for_each_epoch() -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    training = TrainingSettings(prefix_share=0.25, targets_per_batch=10_000)
    everything = len(training_batches(split, 12, False, TrainingSettings(), 0).rows)
    drawn = [training_batches(split, 12, False, training, epoch).rows for epoch in (0, 1, 1)]
    assert [len(rows) for rows in drawn] == [round(everything / 4)] * 3
    chosen = [{tuple(row) for row in rows} for rows in drawn]
    assert chosen[0] != chosen[1]
    assert chosen[1] == chosen[2]  # a resumed run draws the same
    with pytest.raises(SettingsError, match="not causal"):
        fit(split, model_settings("sasrec", options=SMALL), training, progress=False)


def test_twins_are_drawn_among_all_prefixes() -> None:
    """With few rows in an epoch most targets would have no other row in it."""
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    drawn = training_batches(split, 12, False, TrainingSettings(prefix_share=0.05), 0, twins=True)
    assert drawn.twins is not None
    assert (drawn.twins != drawn.rows).any(axis=1).all()
    items = split.histories.items
    assert (items[drawn.twins[:, 2]] == items[drawn.rows[:, 2]]).all()


def test_batches_of_prefixes_have_all_lengths() -> None:
    split = leave_one_out(histories_of(cyclic_log(users=200)))
    batches = training_batches(split, 12, False, TrainingSettings(targets_per_batch=100), 0)
    lengths = batches.rows[:, 1] - batches.rows[:, 0]
    assert len(batches) > 5
    assert all(set(lengths[batch]) == set(lengths) for batch in batches.batches if len(batch) == 100)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("name", ["sigma", "echomamba4rec", "bert4rec", "fearec"])
def test_prefixes_encoded_in_parts_have_the_same_gradients(
    name: str, published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    options = {"dim": 8, "length": 12, "encoder.dropout": 0.0}
    if name == "sigma":
        options["encoder.gate_dropout"] = 0.0
    if name == "fearec" and not published:  # a history and its twin may be the same, where the distance has no slope
        options["objective.frequency_weight"] = 0.0
    settings = model_settings(name, options=options, published=published)
    batch = training_batches(split, 12, False, TrainingSettings(), 0, twins=settings.objective.needs_twins)[0]
    whole, parts, again = (
        _gradients(settings, batch, limits, monkeypatch) for limits in ((10**6, 10**6), (100, 10**6), (100, 100))
    )
    if name == "fearec" and published:  # the lags are those of the rows that are encoded together
        assert not torch.allclose(parts, whole)
    else:
        torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(again, parts, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["sigma", "fearec"])
def test_what_is_computed_again_drops_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    settings = model_settings(name, options={"dim": 8, "length": 12, "encoder.dropout": 0.5})
    batch = training_batches(split, 12, False, TrainingSettings(), 0, twins=settings.objective.needs_twins)[0]
    held, again = (_gradients(settings, batch, limits, monkeypatch) for limits in ((100, 10**6), (100, 100)))
    torch.testing.assert_close(again, held, rtol=1e-9, atol=1e-9)


def _gradients(
    settings: ModelSettings, batch: Batch, limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    """Of all parameters, where this many positions are encoded at once, and held."""
    for limit, positions in zip(("AT_ONCE", "HELD"), limits, strict=True):
        monkeypatch.setattr(f"marsrec.nn.by_length.{limit}", positions)
    torch.manual_seed(0)
    model = settings.build(20).double().train()
    torch.manual_seed(1)
    torch.stack(list(settings.objective.losses(model, batch).values())).sum().backward()
    given = (parameter for parameter in model.parameters() if parameter.grad is not None)
    return torch.cat([parameter.grad.flatten() for parameter in given])


def test_rows_encoded_by_length_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.tensor([3, 5, 1, 5, 2, 4])
    embedded = torch.arange(6.0)[:, None, None] + torch.arange(5.0)[:, None] / 10  # row.position
    events = embedded[torch.arange(5) < lengths[:, None]]
    seen = []

    def states(part: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        seen.append((len(part), part.shape[1]))
        assert part.shape[1] == int(lengths[rows].max())
        return part + 100 * rows[:, None, None]

    for at_once, shapes in (
        (1000, [(4, 5), (2, 2)]),  # at least half as long as the longest
        (10, [(2, 5), (2, 4), (2, 2)]),
        (1, [(1, n) for n in (5, 5, 4, 3, 2, 1)]),
    ):
        monkeypatch.setattr("marsrec.nn.by_length.AT_ONCE", at_once)
        seen.clear()
        every = by_length(states, events, lengths)
        assert seen == shapes
        first = by_length(lambda part, rows: states(part, rows)[:, 0], events, lengths)
        assert every.shape == (6, 5, 1)
        for row, length in enumerate(lengths.tolist()):
            torch.testing.assert_close(every[row, :length], embedded[row, :length] + 100 * row)
            torch.testing.assert_close(first[row], embedded[row, 0] + 100 * row)
    seen.clear()
    monkeypatch.setattr("marsrec.nn.by_length.AT_ONCE", 10)
    by_length(states, events, lengths, at_least=5)  # an encoder that pads to 5
    assert [rows for rows, _ in seen] == [2, 2, 2]
