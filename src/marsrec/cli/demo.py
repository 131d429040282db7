"""The demonstration: what time adds in a synthetic shop whose law is known, and what a model learned of that law."""

import math
import shutil
import sys
from datetime import UTC, datetime
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
    from marsrec.data.log import Log
    from marsrec.data.source import Source
    from marsrec.recommender import Recommender

TRAINING: dict[str, Any] = {
    "epochs": 8,
    "patience": 8,
    "targets_per_batch": 1024,
    "learning_rate": 1e-2,
    "schedule": "cosine",
}
OPTIONS = {"length": 50, "encoder.dropout": 0.2, "readout.dropout": 0.2, "item_std": 0.1}
CONTESTANTS: dict[str, tuple[dict[str, Any], str]] = {
    "sasrec": ({}, "sees the order of purchases"),
    "hawkes-t": (
        {"readout.heads": 3, "readout.clock": "request"},
        "the same encoder, also sees their ages at the request",
    ),
}
"""Settings of each model, and what it sees."""
BEST = "hawkes-t"
CHOSEN = ("HR@10", "NDCG@10")
EXAMPLE = "coffee machine"
"""What the shopper of the example bought last."""
MOMENTS = {"10 minutes later": 10 * 60, "30 days later": 30 * 86_400}


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the training.", min=0)] = 0,
    serve: Annotated[bool, typer.Option("--serve", help="Then serve the models and their page.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page.")] = 8000,
) -> None:
    """Train two models on a synthetic shop in which time decides; show what they recommend, and what they learned."""
    folders = run(out, seed)
    if serve:
        from marsrec.cli.serve import serve as serve_models
        from marsrec.serve.settings import ServeSettings

        serve_models(ServeSettings(models=tuple(folders), port=port))


def run(out: Path, seed: int = 0) -> list[Path]:
    """Train sasrec and hawkes-t on the shop, compare them, and explain a recommendation.

    Returns the folders of the models, the best first.
    """
    console.note("Opening the synthetic shop …")
    with needs("plot", "the demonstration's picture"):  # said before the training, not after it
        import matplotlib.pyplot  # noqa: F401
    from marsrec.data.histories import Histories
    from marsrec.data.shop import articles, shop
    from marsrec.data.source import SHOP, Source
    from marsrec.data.titles import with_titles

    log, truth = shop()
    histories, _ = with_titles(Histories.from_log(log), articles())
    console.note(
        f"{histories.n_users:,} shoppers, {histories.n_items:,} articles, {len(histories):,} purchases. A purchase "
        "brings others about:\nwithin minutes (coffee machine: filters), a day (a mug), or weeks (beans again)."
    )
    trained = _train(Source(histories, SHOP, synthetic=True), out, seed)
    best = trained[BEST]
    _compare(log, truth, trained)
    picture = out / "decay.png"
    _show_scales(log, truth, best, picture)
    user, soon = _show_shopper(histories, best)
    console.note(f"Picture of the decay curves: {picture}. Next:")
    if shutil.which("marsrec") is None:
        console.note(f"  source {Path(sys.prefix).name}/bin/activate")
    folders = [out / BEST, *(out / name for name in trained if name != BEST)]
    console.note(f"  {console.command('marsrec', 'explain', folders[0], '--user', user, '--at', soon)}")
    console.note(f"  {console.command('marsrec', 'serve', *folders)}    # the page (or: marsrec demo --serve)")
    console.note("  marsrec fit YOUR_LOG.csv")
    return folders


def _train(source: "Source", out: Path, seed: int) -> dict[str, "Recommender"]:
    from marsrec.recommender import Recommender
    from marsrec.training.settings import TrainingSettings

    trained = {}
    for name, (options, sees) in CONTESTANTS.items():
        console.note(f"Training {name}: {sees} …")
        recommender = Recommender(name, options=OPTIONS | options, training=TrainingSettings(**TRAINING, seed=seed))
        trained[name] = recommender.fit(source)
        recommender.save(out / name)
    return trained


def _compare(log: "Log", truth: "HawkesTruth", trained: dict[str, "Recommender"]) -> None:
    """Metrics of the models, between what takes no training and what nobody can beat."""
    import numpy as np

    from marsrec.evaluation.measures import figures, measures

    measured = {"popularity": trained[BEST].metrics["yardsticks"]["test"]["popularity"]}
    measured |= {model.metrics["model"]: model.metrics["test"] for model in trained.values()}
    chances = truth.chances(log)
    targets = _targets(log)
    items = log.frame["item"].gather(targets).str.slice(1).cast(int).to_numpy()
    ranks = 1.0 + (chances > chances[np.arange(len(items)), items][:, None]).sum(axis=1)
    measured["the law itself, if it were known"] = figures(measures(ks=(10,)), ranks)
    title = "Test on latest purchases, all articles ranked (× 100)"
    console.metrics(title, {name: {metric: row[metric] for metric in CHOSEN} for name, row in measured.items()})


def _show_scales(log: "Log", truth: "HawkesTruth", best: "Recommender", picture: Path) -> None:
    """Time scales side by side, with the share of the latest purchases that each brought about; and their picture."""
    import numpy as np

    from marsrec.cli.decay_picture import draw_decay
    from marsrec.data.moments import spell_duration
    from marsrec.lab.inspection import read_heads

    heads = read_heads(best)
    background, *gate = heads.gate.mean(0).tolist()
    lives = heads.half_lives[0, 1:].tolist()  # the same for all users; the first head never fades
    targets = _targets(log)
    unprompted, *shares = (
        np.bincount(truth.kernels[targets] + 1, minlength=1 + len(truth.rates)) / len(targets)
    ).tolist()
    true = sorted(zip((math.log(2) / truth.rates).tolist(), shares, strict=True))
    rows = [
        [spell_duration(3600 * life), f"{share:.2f}", spell_duration(3600 * found), f"{chance:.2f}"]
        for (life, share), (found, chance) in zip(true, sorted(zip(lives, gate, strict=True)), strict=True)
    ]
    rows.append(["no earlier purchase", f"{unprompted:.2f}", "no earlier purchase", f"{background:.2f}"])
    columns = ["true half-life", "share of purchases", "learned half-life", "mean gate"]
    console.table(f"Time scales of the shop, and what {BEST} learned of them", columns, rows)
    draw_decay(picture, truth, lives, gate)


def _show_shopper(histories: "Histories", best: "Recommender") -> tuple[Any, str]:
    """What is recommended to one shopper at two moments, and why; returns who it is, and the first moment."""
    user, length, last, bought = _example(histories)
    lists = {name: best.recommend(user, k=5, at=last + wait, mask_seen=False)["item"] for name, wait in MOMENTS.items()}
    title = f"For {user}, whose latest purchase is {bought}"
    rows = [[rank, *map(best.item_ids.title, items)] for rank, items in enumerate(zip(*lists.values(), strict=True), 1)]
    console.table(title, ["", *lists], rows)
    console.note(
        f"(Of all whose latest purchase is a {EXAMPLE}, the shopper with a history of median length, {length}.)"
    )
    first, wait = next(iter(MOMENTS.items()))
    console.sentence(best.explain(user, lists[first][0], at=last + wait).sentence())
    return user, datetime.fromtimestamp(last + wait, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _targets(log: "Log") -> "NDArray[np.int64]":
    """Rows of the users' latest events, which models are tested on."""
    import numpy as np

    return np.flatnonzero((log.frame["user"] != log.frame["user"].shift(-1)).fill_null(True).to_numpy())


def _example(histories: "Histories") -> tuple[Any, int, int, str]:
    """A shopper, the length of the history, and when and what was bought last: of median length among all EXAMPLEs."""
    import numpy as np

    titles = histories.item_ids.titles
    assert titles is not None
    last = histories.offsets[1:] - 1
    bought = titles.gather(histories.items[last] - 1)
    alike = np.flatnonzero(bought.str.ends_with(EXAMPLE).to_numpy())
    chosen = int(alike[np.argsort(histories.lengths[alike], kind="stable")[len(alike) // 2]])
    return (
        histories.user_ids.ids[chosen],
        int(histories.lengths[chosen]),
        int(histories.times[last[chosen]]),
        bought[chosen],
    )
