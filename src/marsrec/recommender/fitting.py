"""Training a recommender: from opened data to a network, and what is said and measured on the way."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marsrec.data.source import Source
from marsrec.data.splits import Part, Split, SplitSettings
from marsrec.evaluation.evaluate import evaluate
from marsrec.evaluation.yardsticks import yardsticks
from marsrec.models import rule, title
from marsrec.nn.settings import ModelSettings
from marsrec.provenance import machine, versions

if TYPE_CHECKING:
    from marsrec.recommender import Recommender
    from marsrec.training.fit import Fitted

logger = logging.getLogger(__name__)


def fit_recommender(
    recommender: Recommender,
    source: Source,
    split: SplitSettings,
    *,
    test: bool,
    folder: Path | None,
    resume: bool,
    progress: bool,
) -> None:
    """Train a recommender on opened data; see `Recommender.fit`."""
    from marsrec.training.fit import fit  # Lightning takes seconds, and only training needs it
    from marsrec.training.loggers import logged

    histories, parts = source.histories, split.apply(source.histories)
    settings = recommender.planned_settings(parts.average_length, source.public)
    for note in source.notes:
        logger.info(f"· {note}")
    logger.info(
        f"{title(settings)}{f' on {source.name}' if source.name else ''}: {histories.n_users:,} users, "
        f"{histories.n_items:,} items, {len(histories):,} events."
    )
    if recommender.name == "mars" and recommender.encoder is None:
        logger.info(rule(len(histories) / histories.n_users, parts.average_length, settings))
    software = versions()  # before training: a checkout may have moved on when it ends
    training = recommender.training
    with logged(training, folder, f"{source.name} {title(settings)}".strip()) as loggers:
        fitted = fit(parts, settings, training, folder=folder, resume=resume, progress=progress, loggers=loggers)
        metrics = {**_measure(fitted, parts, settings, split, test), "versions": software, "machine": machine()}
        loggers.result(metrics)
    metrics["data"] |= {"name": source.name or None, "synthetic": source.synthetic}
    # All at once: a fit that fails or is interrupted leaves what was fitted before.
    recommender.network, recommender.histories = fitted.model, histories
    recommender.settings, recommender.split_settings, recommender.metrics = settings, split, metrics
    recommender.item_ids, recommender.item_counts = histories.item_ids, parts.item_counts
    recommender.unit, recommender.log_end = histories.unit, int(histories.times.max())
    recommender.notes, recommender.columns = source.notes, source.columns


def _measure(fitted: Fitted, parts: Split, settings: ModelSettings, split: SplitSettings, test: bool) -> dict[str, Any]:
    measured: tuple[Part, ...] = ("valid", "test") if test else ("valid",)
    return {
        **{part: evaluate(fitted.model, parts, settings.length, part).metrics for part in measured},
        "yardsticks": {part: yardsticks(parts, part) for part in measured},
        "model": title(settings),
        "protocol": {
            "split": split.model_dump(mode="json"),
            "ties": parts.histories.ties,
            "mask_seen": False,
            "ranked": "all items",
        },
        "best_epoch": fitted.best_epoch,
        "epochs": len(fitted.curve),
        "minutes": round(fitted.minutes, 3),
        "complete": fitted.complete,
        "parameters": fitted.model.parameter_count(),
        "data": parts.histories.statistics(),
        "curve": fitted.curve,
    }
