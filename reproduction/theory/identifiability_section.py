"""Proposition 3 on the page: whether the rates and weights of a process are found."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from marsrec.data.moments import spell_duration
from marsrec.lab.page import Picture, Table
from marsrec.lab.plot import COLORS, MARKERS, plot
from reproduction.theory.recovery import FOREVER
from reproduction.theory.wording import Part, draw_line, listed, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KNOWN = {
    "parents": "parents known",
    "background": "background rates known",
    "times": "times alone",
}


def tell(measured: Mapping[str, Any]) -> list[Part]:
    """The section, from what was measured."""
    likelihood, learned = measured["likelihood"], measured["learned"]
    most = max(row["users"] for row in learned)
    parts: list[Part] = [
        "## Proposition 3: identifiability",
        "It says that the rates and weights of a Hawkes process are recovered if the diversity loss keeps the heads "
        "apart. (As it is written, its condition never holds: that loss is at most 0. What is meant is that the "
        "divergences of the heads are positive.) The process here has half-lives of "
        f"{listed([_spell(life) for life in measured['half_lives']])} and weights of "
        f"{listed([f'{weight:g}' for weight in measured['weights']])}, the same for all users. Errors are the mean "
        "|log| of found over true half-lives, in order (0.69 is a factor of 2), and the l1 distance of the weights.",
    ]
    for known, title in KNOWN.items():
        medians = _medians(likelihood, known)
        if len(medians) < 2:
            continue
        (few, first), (many, last) = medians[0], medians[-1]
        parts.append(
            f"**Maximum likelihood, {title}.** From {few:,} to {many:,} users the error of the half-lives goes from "
            f"{first[0]:.3f} to {last[0]:.3f}, that of the weights from {first[1]:.3f} to {last[1]:.3f}."
            + (" Both shrink." if last[0] < first[0] and last[1] < first[1] else " Not both shrink.")
            + _convergence([row for row in likelihood if row["known"] == known])
        )
    for row in (row for row in learned if row["users"] == most):
        closer = row["rate_error"] < row["start"]["rate_error"]
        parts.append(
            f"**mars-t, {row['time_scale']} time, diversity {row['diversity']:g}, {most:,} users.** Training moves the "
            f"error of the half-lives from {row['start']['rate_error']:.2f} to {row['rate_error']:.2f}, "
            f"{'nearer to' if closer else 'not nearer to'} the truth; the gate is {row['weight_error']:.2f} off."
        )
    parts += _verdicts(likelihood, learned, most)
    rows = [
        [
            f"mars-t, {row['time_scale']} time, diversity {row['diversity']:g}",
            f"{row['users']:,}",
            ", ".join(_spell(life) for life in row["half_lives"]),
            ", ".join(f"{weight:.2f}" for weight in row["weights"]),
            f"{row['rate_error']:.2f}",
            f"{row['weight_error']:.2f}",
            f"{row['divergence']:.3f}",
            f"{100 * row['ndcg']:.1f}",
        ]
        for row in learned
    ]
    truth = [_spell(life) for life in measured["half_lives"]], [f"{weight:.2f}" for weight in measured["weights"]]
    rows.insert(0, ["the process", "", ", ".join(truth[0]), ", ".join(truth[1]), "0", "0", "", ""])
    columns = ["model", "users", "half-lives", "weights", "error, half-lives", "error, weights", "JSD", "NDCG@10"]
    epochs = max(row["epochs"] for row in learned)
    return [
        *parts,
        Table(
            columns,
            rows,
            f"Median half-life and mean gate of each head over test histories after at most {epochs} epochs, on the "
            "request clock, one seed; the weights with the best validation NDCG@10 count. JSD: mean over pairs of "
            f"heads, in nats. NDCG × 100. {_settings(measured.get('training'))}",
        ),
        Picture(
            "theory-identifiability",
            "Errors of the half-lives (left) and weights (right) against the number of users: maximum likelihood "
            "(lines, medians over seeds) and trained models (markers, one training each, side by side).",
            lambda: _draw_recovery(likelihood, learned),
        ),
    ]


def _verdicts(likelihood: Sequence[Mapping[str, Any]], learned: Sequence[Mapping[str, Any]], most: int) -> list[Part]:
    """What follows for the proposition, as far as the numbers go."""
    by = {(row["time_scale"], row["diversity"] > 0): row for row in learned if row["users"] == most}
    sentences = []
    for scale in ("linear", "log"):
        if (scale, True) in by and (scale, False) in by:
            kept, without = by[scale, True], by[scale, False]
            sentences.append(
                f"In {scale} time the heads' divergence is {kept['divergence']:.3f} nats with the diversity loss and "
                f"{without['divergence']:.3f} without it"
                + (": without it the heads do not collapse." if without["divergence"] > 0.01 else ".")
            )
    best = min((row for row in learned if row["users"] == most), key=lambda row: row["rate_error"])
    users, (reached, _) = _medians(likelihood, "times")[-1]
    sentences.append(
        f"With {best['users']:,} users the nearest model is {best['rate_error']:.2f} off in log half-life; maximum "
        f"likelihood of the times alone, with {users:,} users, is {reached:.3f} off"
        + (
            ". So heads that differ are not yet the rates of the process. A possible reason: the cross-entropy of the "
            "next item is not the likelihood that the proof speaks of, and a head's softmax divides out what its "
            "weight α would be."
            if best["rate_error"] > 3 * reached and best["divergence"] > 0.01
            else "."
        )
    )
    return [" ".join(sentences)]


def _convergence(fits: Sequence[Mapping[str, Any]]) -> str:
    """Whether EM came to its end, and where not, as a sentence to add."""
    if any("converged" not in fit for fit in fits):
        return " Whether EM converged was not recorded."
    left = [f"{fit['users']:,} users, seed {fit['seed']}" for fit in fits if not fit["converged"]]
    most = max(fit["rounds"] for fit in fits)
    if left:
        return f" EM had not converged after {most} rounds for {'; '.join(left)}."
    return f" EM converged within {most} rounds."


def _settings(training: Mapping[str, Any] | None) -> str:
    """How the models were trained, as a sentence."""
    if training is None:
        return "With which settings was not recorded."
    return (
        f"Trained by Adam at a learning rate of {training['learning_rate']:g} with {training['targets_per_batch']:,} "
        f"targets per step, on the latest {training['length']} events; dropout is {training['encoder.dropout']:g} in "
        f"the encoder and {training['readout.dropout']:g} on the user vector."
    )


def _medians(rows: Sequence[Mapping[str, Any]], known: str) -> list[tuple[int, tuple[float, float]]]:
    """Numbers of users, and medians over the seeds of both errors."""
    found = []
    for users in sorted({row["users"] for row in rows if row["known"] == known}):
        same = [row for row in rows if row["known"] == known and row["users"] == users]
        found.append((users, (median(row["rate_error"] for row in same), median(row["weight_error"] for row in same))))
    return found


def _draw_recovery(likelihood: Sequence[Mapping[str, Any]], learned: Sequence[Mapping[str, Any]]) -> "Figure":
    figure, axes = plot(2, height=4.4)
    labels = ("error of the half-lives, mean |log(found / true)|", "error of the weights, l1 distance")
    for which, (axis, error) in enumerate(zip(axes, labels, strict=True)):
        for index, (known, name) in enumerate(KNOWN.items()):
            if medians := _medians(likelihood, known):
                users = [users for users, _ in medians]
                draw_line(axis, index, users, [errors[which] for _, errors in medians], f"likelihood, {name}")
        groups = sorted({(row["time_scale"], row["diversity"]) for row in learned})
        for index, group in enumerate(groups, start=len(KNOWN)):
            rows = [row for row in learned if (row["time_scale"], row["diversity"]) == group]
            errors = [row[("rate_error", "weight_error")[which]] for row in rows]
            aside = 1.05 ** (2 * (index - len(KNOWN)) - len(groups) + 1)  # else they would cover each other
            users = [aside * row["users"] for row in rows]
            label = f"mars-t, {group[0]} time, diversity {group[1]:g}"
            axis.plot(users, errors, MARKERS[index], color=COLORS[index], markersize=7, mec="black", label=label)
        ticks = sorted({row["users"] for row in [*likelihood, *learned]})
        axis.set(xlabel="number of users", ylabel=error, xscale="log", yscale="log")
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        plain_ticks(axis)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _spell(hours: float) -> str:
    return "ever" if hours >= FOREVER else spell_duration(3600 * hours)
