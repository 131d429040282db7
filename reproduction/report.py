"""The report: all sections, from whatever results there are."""

import json
from collections.abc import Sequence
from pathlib import Path

from marsrec.lab import comparison, efficiency_page, inspection_page, main_comparison, regimes, rule, theory, variants
from marsrec.lab.page import Section, Table, digits, write_report
from marsrec.lab.paper import METRICS
from marsrec.lab.results import Result, inspection_of
from marsrec.models import backbone

THEORY = "theory/measured.json"
"""What `marsrec lab theory` measured, beside the results."""

TITLE = "Results"
LEAD = (
    "Written by `marsrec lab report` from the files in `results/`: the tables and figures of the paper, as far as they "
    "were computed here, beside what the paper says. What was not run says so."
)


def report(found: Sequence[Result], results: Path, out: Path) -> list[Path]:
    """Write the report; the files that were written, the HTML page last."""
    return write_report(sections(found, results), out, title=TITLE, lead=LEAD)


def sections(found: Sequence[Result], results: Path) -> list[Section]:
    """All sections, in the paper's order."""
    listed = [
        main_comparison.section(found, results),
        variants.ablation(found, results),
        variants.sensitivity(found, results),
        efficiency_page.section(found, results),
        regimes.subgroups(found, results),
        regimes.entropy(found, results),
        rule.backbone_rule(found, results),
        variants.extensions(found, results),
        *inspections(found, results),
    ]
    path = results / THEORY
    listed.append(theory.section(json.loads(path.read_text()) if path.exists() else None))
    return [*listed, everything(found)]


def inspections(found: Sequence[Result], results: Path) -> list[Section]:
    """What MARS learned on each data set, on the backbone that the rule takes and on the request clock."""
    shown = []
    for data in comparison.whole(found):
        alike = comparison.alike(found, data)
        ours = backbone(comparison.density(alike[0]))
        for options in ({}, {"readout.clock": "request"}):
            for result in comparison.find(alike, ours, options=options)[:1]:
                if inspected := inspection_of(result, results):
                    shown.append(inspection_page.section(f"inspection-{result.name}", inspected))
    return shown


def everything(found: Sequence[Result]) -> Section:
    """All results, whatever their settings."""
    rows = [
        [
            result.data,
            result.model,
            *(f"{100 * result.test[metric]:.2f}" for metric in METRICS),
            f"{100 * result.valid['NDCG@10']:.2f}",
            f"{result.best_epoch} of {result.epochs}",
            digits(result.undisturbed_minutes),
            f"{result.settings.encoder.dropout:g} / {getattr(result.settings.readout, 'dropout', 0):g}",
            f"{result.training.targets_per_batch:,}",
            str(result.training.seed),
            result.name,
        ]
        for result in sorted(found, key=lambda r: (r.data, r.model, r.training.seed))
    ]
    columns = ["data", "model", *METRICS, "valid NDCG@10", "best epoch", "minutes", "dropout", "batch", "seed", "file"]
    text = (
        "Every run that has a file in `results/`. Test × 100; dropout is the encoder's and the user vector's, batch "
        "the targets of a step. All settings and the training curve are in the file."
    )
    return Section("everything", "All runs", [text, Table(columns, rows)])
