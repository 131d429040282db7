"""The demonstration: three models on synthetic data in which time decides, and a look at what the best one learned."""

import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marsrec.cli import console
from marsrec.errors import needs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from marsrec.data.hawkes import HawkesTruth
    from marsrec.data.histories import Histories

TRAINING: dict[str, Any] = {
    "epochs": 10,
    "patience": 10,
    "targets_per_batch": 1024,
    "learning_rate": 1e-2,
    "schedule": "cosine",
}
OPTIONS = {"length": 50, "encoder.dropout": 0.2, "readout.dropout": 0.2, "item_std": 0.1}
CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sasrec": ("sasrec", {}),
    "hawkes-t": ("hawkes-t", {"readout.heads": 3}),
    "hawkes-t, request clock": ("hawkes-t", {"readout.heads": 3, "readout.clock": "request"}),
}
BEST = "hawkes-t, request clock"


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo"),
    serve: Annotated[bool, typer.Option("--serve", help="Then serve the models, with a page that shows why.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page.")] = 8000,
) -> None:
    """Train sasrec, and hawkes-t on two clocks, on synthetic data in which time decides; show what was learned."""
    folders = run(out)
    if serve:
        from marsrec.cli.serve import serve as serve_models
        from marsrec.serve.settings import ServeSettings

        serve_models(ServeSettings(models=tuple(folders), port=port))


def run(out: Path) -> list[Path]:
    """Train sasrec, and hawkes-t on both clocks, on the hawkes log; compare them and explain a recommendation.

    Returns the folders of the models, the best first.
    """
    with needs("plot", "the demonstration's picture"):  # said before the training, not after it
        import matplotlib.pyplot  # noqa: F401
    from marsrec.cli.decay_picture import draw_decay
    from marsrec.data.hawkes import HawkesSettings, hawkes
    from marsrec.data.histories import Histories
    from marsrec.lab.inspection import read_heads
    from marsrec.recommender import Recommender
    from marsrec.training.settings import TrainingSettings

    training = TrainingSettings(**TRAINING)
    log, truth = hawkes(HawkesSettings())
    histories = Histories.from_log(log)
    console.note(
        f"A synthetic log of {histories.n_users:,} users, {histories.n_items:,} items and {len(histories):,} events. "
        "Most events are set off by an earlier one, minutes, hours or days ago: time decides what comes next."
    )
    trained: dict[str, Recommender] = {}
    for title, (model, options) in CONTESTANTS.items():
        console.note(f"\nTraining {title} …")
        trained[title] = Recommender(model, options=OPTIONS | options, training=training).fit(histories)
        trained[title].save(out / _folder(title))
    chosen = ("HR@10", "NDCG@10", "MRR@10")
    measured = {name: {m: model.metrics["test"][m] for m in chosen} for name, model in trained.items()}
    console.metrics("Test, all items ranked (× 100)", measured)
    for title in (name for name in trained if name != "sasrec"):
        gain = measured[title]["NDCG@10"] / measured["sasrec"]["NDCG@10"] - 1
        console.note(
            f"{title}: NDCG@10 {gain:+.1%} against sasrec, which has the same encoder and sees only the order."
        )
    console.note("On the request clock hawkes-t also sees the time of the request, which the others do not.")

    best = trained[BEST]
    heads = read_heads(best)
    background, *gate = heads.gate.mean(0).tolist()
    lives = heads.half_lives[0, 1:].tolist()  # the same for all users; the first head never fades
    users = log.frame["user"]
    test_events = (users != users.shift(-1)).fill_null(True).arg_true().to_numpy()
    _show_lives(truth, test_events, lives, gate, background)
    picture = out / "decay.png"
    draw_decay(picture, truth, lives, gate)

    user, last = _example_user(histories)
    soon, later = last + 10 * 60, last + 30 * 86_400
    lists = [best.recommend(user, k=5, at=moment, mask_seen=False)["item"] for moment in (soon, later)]
    title = f"Recommended to {user} at two moments after the latest event"
    rows = [[rank, *items] for rank, items in enumerate(zip(*lists, strict=True), start=1)]
    console.table(title, ["rank", "10 minutes later", "30 days later"], rows)
    console.note("Why, 10 minutes later:")
    console.sentence(best.explain(user, lists[0][0], at=soon).text())
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


def _show_lives(
    truth: "HawkesTruth", last: "NDArray[np.int64]", lives: list[float], gate: list[float], background: float
) -> None:
    """Time scales side by side, with the share of the last events (by their rows) that each brought about."""
    import numpy as np

    unprompted, *shares = (np.bincount(truth.kernels[last] + 1, minlength=1 + len(truth.rates)) / len(last)).tolist()
    true = sorted(zip((math.log(2) / truth.rates).tolist(), shares, strict=True))
    learned = sorted(zip(lives, gate, strict=True))
    rows = [
        [_spell(life), f"{share:.2f}", _spell(found), f"{chance:.2f}"]
        for (life, share), (found, chance) in zip(true, learned, strict=True)
    ]
    rows.append(["background", f"{unprompted:.2f}", "background", f"{background:.2f}"])
    columns = ["true half-life", "share of test events", "learned half-life", "gate"]
    console.table(f"Time scales of the process, and of {BEST}", columns, rows)
    console.note(
        "A gate is the chance that an earlier event sets off the next one at this time scale, mean over users."
    )


def _spell(hours: float) -> str:
    from marsrec.data.moments import spell_duration

    return spell_duration(3600 * hours)


def _example_user(histories: "Histories") -> tuple[Any, int]:
    """A user with a history of typical length, and the time of the latest event."""
    lengths = histories.lengths
    chosen = int(lengths.argsort(kind="stable")[len(lengths) // 2])
    return histories.user_ids.ids[chosen], int(histories.times[histories.offsets[chosen + 1] - 1])
