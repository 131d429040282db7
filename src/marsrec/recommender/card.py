"""The model card: what a saved recommender is, in the words and front matter that the Hugging Face hub reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marsrec.data.times import utc_date
from marsrec.models import title

if TYPE_CHECKING:
    from marsrec.recommender.trained import Trained

LIBRARY = "marsrec"
HOME = "https://github.com/marsrec/marsrec"
SHOWN = ("HR@10", "NDCG@10", "MRR@10")
PARTS = {"valid": "validation", "test": "test"}


def card(recommender: Trained, *, repo: str | None = None, histories: bool = False) -> str:
    """Markdown with front matter. It names no path, no user and no item.

    Parameters
    ----------
    recommender : Trained
        What is saved.
    repo : str, optional
        Where it will be found on the hub; by default it is loaded from a folder.
    histories : bool
        Whether the users' histories are saved with it.
    """
    name, metrics = title(recommender.settings), recommender.metrics
    data = metrics.get("data", {})
    of = _data_name(data)
    foreign = sorted({origin["module"] for origin in recommender.settings.origins.values()})
    sections = [
        f"# {name} on {of}",
        f"A model that recommends the next item from timestamped histories, made with [{LIBRARY}]({HOME})"
        f"{_said(' ', metrics.get('versions', {}).get(LIBRARY))}.",
        "## Use",
        _use(repo, foreign, histories),
        "## Data",
        _data(recommender, data, of),
        "## Accuracy",
        *_accuracy(metrics),
        "## Settings",
        _settings(recommender),
    ]
    return "\n\n".join([_front_matter(name, of, metrics), *sections]) + "\n"


def _front_matter(name: str, of: str, metrics: Mapping[str, Any]) -> str:
    """YAML; each value is written as JSON, which YAML reads as it is meant."""
    tags = ["recommender-systems", "sequential-recommendation", *dict.fromkeys([LIBRARY, name.split(",")[0]])]
    lines = [f"library_name: {LIBRARY}", "tags:", *(f"- {json.dumps(tag)}" for tag in tags)]
    lines += ["metrics:", *(f"- {json.dumps(metric)}" for metric in SHOWN)]
    if measured := _measured(metrics, "test"):
        lines += [
            "model-index:",
            f"- name: {json.dumps(name)}",
            "  results:",
            "  - task:",
            "      type: sequential-recommendation",
            "    dataset:",
            f"      type: {json.dumps(of)}",
            f"      name: {json.dumps(of)}",
            "      split: test",
            "    metrics:",
        ]
        for metric, value in measured.items():
            lines += [f"    - type: {json.dumps(metric)}", f"      value: {round(value, 6)}"]
    return "\n".join(["---", *lines, "---"])


def _use(repo: str | None, foreign: Sequence[str], histories: bool) -> str:
    opened = f"Recommender.from_hub({json.dumps(repo)})" if repo else 'Recommender.load("FOLDER")'
    extra = f"'{LIBRARY}[hub]'" if repo else LIBRARY
    users = 'recommender.recommend(["USER"], k=10)  # a user of the data' if histories else None
    code = [
        *(f"import {module}  # brings a part of the model" for module in foreign),
        "from marsrec import Recommender",
        "",
        f"recommender = {opened}",
        'recommender.recommend(histories=[("ITEM", "2026-01-05 10:00")], k=10)',
        *([users] if users else []),
    ]
    without = "" if histories else "\n\nThe users' histories are not part of it: give histories as above."
    return "\n".join([f"`pip install {extra}`, then", "", "```python", *code, "```"]) + without


def _data(recommender: Trained, data: Mapping[str, Any], of: str) -> str:
    if not data:
        return f"{len(recommender.item_ids):,} items; nothing else is known of them."
    drawn = " (synthetic)" if data.get("synthetic") else ""
    rows = [
        ["name", f"{of}{drawn}"],
        ["users", f"{data['users']:,}"],
        ["items", f"{data['items']:,}"],
        ["events", f"{data['interactions']:,}"],
        ["events per user", f"{data['average_length']:.1f} on average, {data['median_length']:g} at the median"],
    ]
    if {"first_time", "last_time"} <= data.keys():
        days = [utc_date(data[key], recommender.unit) for key in ("first_time", "last_time")]
        rows.append(["from, to", ", ".join(days)])
    return _table(["", ""], rows)


def _accuracy(metrics: Mapping[str, Any]) -> list[str]:
    parts = [part for part in PARTS if _measured(metrics, part)]
    if not parts:
        return ["It was not measured."]
    protocol = metrics.get("protocol", {})
    seen = "items of the user's past left out" if protocol.get("mask_seen") else "items of the user's past among them"
    split = protocol.get("split", {}).get("name", "unknown")
    rows = []
    for part in parts:
        rows.append([f"this model, {PARTS[part]}", *_figures(_measured(metrics, part))])
        for name, measured in metrics.get("yardsticks", {}).get(part, {}).items():
            rows.append([f"{name}, {PARTS[part]}", *_figures(measured)])
    return [
        f"Split {split}, {protocol.get('ranked', 'all items')} ranked, {seen}, mean over users, × 100. The rows below "
        "each figure of the model are rankings that need no training.",
        _table(["", *SHOWN], rows),
    ]


def _settings(recommender: Trained) -> str:
    training: Any = getattr(recommender, "training", None)
    made = {
        "model": recommender.settings.model_dump(mode="json"),
        "training": {} if training is None else training.model_dump(mode="json", exclude_defaults=True),
        "best_epoch": recommender.metrics.get("best_epoch"),
        "parameters": recommender.metrics.get("parameters"),
        "time": {"unit": recommender.unit},
    }
    return f"```json\n{json.dumps(made, indent=2)}\n```"


def _data_name(data: Mapping[str, Any]) -> str:
    """What the data are called; never where they were."""
    name = str(data.get("name") or "data in memory")
    return name.replace("\\", "/").rstrip("/").rpartition("/")[2] or "data in memory"


def _measured(metrics: Mapping[str, Any], part: str) -> dict[str, float]:
    return {name: float(metrics[part][name]) for name in SHOWN if name in metrics.get(part, {})}


def _figures(measured: Mapping[str, Any]) -> list[str]:
    return [f"{100 * measured[name]:.2f}" if name in measured else "" for name in SHOWN]


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join([*head, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)])


def _said(before: str, text: str | None) -> str:
    return f"{before}{text}" if text else ""
