"""The demonstration: three models on synthetic data in which time decides, and a look at what MARS learned."""

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from marsrec.cli import console
from marsrec.data.hawkes import HawkesSettings, HawkesTruth, hawkes
from marsrec.data.histories import Histories
from marsrec.data.moments import spell_duration
from marsrec.lab.inspection import read_heads
from marsrec.lab.plot import COLORS, STYLES, plot
from marsrec.recommender import Recommender
from marsrec.training.settings import TrainingSettings

TRAINING = TrainingSettings(epochs=12, patience=3, targets_per_batch=1024, learning_rate=3e-3, tensorboard=False)
OPTIONS = {"length": 50, "encoder.dropout": 0.2}
CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sasrec": ("sasrec", {}),
    "mars-t": ("mars-t", {}),
    "mars-t, request clock": ("mars-t", {"readout.clock": "request"}),
}
BEST = "mars-t, request clock"


def run(out: Path) -> list[Path]:
    """Train sasrec, and mars-t on both clocks, on the hawkes log; compare them and explain a recommendation.

    Returns the folders of the models, the best first.
    """
    log, truth = hawkes(HawkesSettings())
    histories = Histories.from_log(log)
    console.note(
        f"A synthetic log of {histories.n_users:,} users, {histories.n_items:,} items and {len(histories):,} events. "
        "Most events are set off by an earlier one, minutes, hours or days ago: time decides what comes next."
    )
    trained: dict[str, Recommender] = {}
    for title, (model, options) in CONTESTANTS.items():
        console.note(f"\nTraining {title} …")
        trained[title] = Recommender(model, options=OPTIONS | options, training=TRAINING).fit(histories)
        trained[title].save(out / _folder(title))
    chosen = ("HR@10", "NDCG@10", "MRR@10")
    measured = {name: {m: model.metrics["test"][m] for m in chosen} for name, model in trained.items()}
    console.metrics("Test, all items ranked (× 100)", measured)
    for title in (name for name in trained if name != "sasrec"):
        gain = measured[title]["NDCG@10"] / measured["sasrec"]["NDCG@10"] - 1
        console.note(
            f"{title}: NDCG@10 {gain:+.1%} against sasrec, which has the same encoder and sees only the order."
        )
    console.note("On the request clock mars-t also sees the time of the request, which the others do not.")

    mars = trained[BEST]
    heads = read_heads(mars)
    rates, user_of = heads.rates.median(0)
    lives, gate = heads.half_lives.gather(0, user_of[None])[0].numpy(), heads.gate.mean(0).numpy()
    _show_lives(truth, lives, gate)
    picture = out / "decay.png"
    draw_decay(picture, truth, rates.numpy(), lives, gate)

    user, last = _example_user(histories)
    soon, later = last + 10 * 60, last + 30 * 86_400
    lists = [mars.recommend(user, k=5, at=moment, mask_seen=False)["item"] for moment in (soon, later)]
    title = f"Recommended to {user} at two moments after the latest event"
    rows = [[rank, *items] for rank, items in enumerate(zip(*lists, strict=True), start=1)]
    console.table(title, ["rank", "10 minutes later", "30 days later"], rows)
    console.note("Why, 10 minutes later:")
    console.explanation(mars.explain(user, lists[0][0], at=soon), lists[0][0], top=5)
    console.note(f"\nPicture of the decay curves: {picture}")
    folder = out / _folder(BEST)
    console.note(f"Saved models: {', '.join(str(out / _folder(title)) for title in trained)}. Next:")
    if shutil.which("marsrec") is None:
        console.note(f"  source {Path(sys.prefix).name}/bin/activate")
    console.note(f"  marsrec recommend {folder} --user {user}")
    console.note(f"  marsrec explain {folder} --user {user}")
    console.note(f"  marsrec serve {folder} {out / 'sasrec'}    # http://127.0.0.1:8000 is a page that shows why")
    console.note("  marsrec fit YOUR_LOG.csv")
    return [folder, *(out / _folder(title) for title in trained if title != BEST)]


def _folder(title: str) -> str:
    return title.replace(",", "").replace(" ", "-")


def _show_lives(truth: HawkesTruth, lives: Any, gate: Any) -> None:
    learned = sorted(zip(lives.tolist(), gate.tolist(), strict=True))
    true = sorted(zip((np.log(2) / truth.rates).tolist(), truth.weights.tolist(), strict=True))
    rows = []
    for index in range(max(len(learned), len(true))):
        left = [_spell(true[index][0]), f"{true[index][1]:.2f}"] if index < len(true) else ["", ""]
        right = [_spell(learned[index][0]), f"{learned[index][1]:.2f}"] if index < len(learned) else ["", ""]
        rows.append(left + right)
    columns = ["true half-life", "weight", "learned half-life", "gate"]
    console.table(f"Time scales of the process, and of the heads of {BEST} (median user)", columns, rows)


def _spell(hours: float) -> str:
    return spell_duration(3600 * hours)


def _example_user(histories: Histories) -> tuple[Any, int]:
    """A user with a history of typical length, and the time of the latest event."""
    lengths = histories.lengths
    chosen = int(np.argsort(lengths, kind="stable")[len(lengths) // 2])
    return histories.user_ids.ids[chosen], int(histories.times[histories.offsets[chosen + 1] - 1])


def draw_decay(path: Path, truth: HawkesTruth, rates: Any, lives: Any, gate: Any) -> None:
    """Draw the true excitation kernels and the learned decay curves over age, on logarithmic time."""
    hours = np.logspace(-2, np.log10(24 * 90), 400)
    figure, (left, right) = plot(2, width=11, height=5, share_y=True)
    for index, k in enumerate(np.argsort(-truth.rates)):
        curve = np.exp(-truth.rates[k] * hours)
        label = f"half-life {_spell(np.log(2) / truth.rates[k])}, weight {truth.weights[k]:.2f}"
        left.plot(hours, curve, linestyle=STYLES[index + 1], color=COLORS[index + 1], label=label)
    mixture = (truth.weights[:, None] * np.exp(-truth.rates[:, None] * hours)).sum(0) / truth.weights.sum()
    left.plot(hours, mixture, color="black", linewidth=3, alpha=0.35, label="mixture")
    left.set_title("What the data do: excitation by an earlier event")
    for index, k in enumerate(np.argsort(-rates)):
        curve = (1 + hours) ** -rates[k]
        label = f"half-life {_spell(lives[k])}, gate {gate[k]:.2f}"
        right.plot(hours, curve, linestyle=STYLES[index + 1], color=COLORS[index + 1], label=label)
    mixed = (gate[:, None] * (1 + hours) ** -rates[:, None]).sum(0)
    right.plot(hours, mixed, color="black", linewidth=3, alpha=0.35, label="fused by the gate")
    right.set_title("What mars-t learned: weight of an event by its age")
    marks = {1 / 60: "1 min", 1: "1 h", 24: "1 day", 24 * 7: "1 week", 24 * 90: "90 days"}
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(list(marks), list(marks.values()))
        axis.minorticks_off()
        axis.set_xlabel("age of the event")
        axis.set_ylim(0, 1.02)
        axis.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    left.set_ylabel("relative to a new event")
    figure.savefig(path, dpi=150)
