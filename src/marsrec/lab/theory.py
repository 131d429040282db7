"""The paper's three propositions in numbers: what they say, what is measured, and where the two part.

`measure` computes, for minutes; `section` tells, from the measurements alone.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from marsrec.data.moments import spell_duration
from marsrec.lab import approximation, complexity, identifiability
from marsrec.lab.complexity import READ, Sweep
from marsrec.lab.page import COLORS, MARKERS, STYLES, Picture, Section, Table, plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Part = str | Table | Picture

SMALL = 1e-3  # an error that counts as gone
STEEP = 1.25  # an exponent that counts as more than linear, given how disturbed timings are
KNOWN = {
    "parents": "parents known",
    "background": "background rates known",
    "times": "times alone",
}


def measure(quick: bool = False) -> dict[str, Any]:
    """Everything that `section` tells, as numbers that can be written to JSON.

    Parameters
    ----------
    quick : bool
        Less of everything, in under a minute.
    """
    return {
        "quick": quick,
        "approximation": approximation.measure(quick),
        "complexity": complexity.measure(quick),
        "identifiability": identifiability.measure(quick),
    }


def section(measured: Mapping[str, Any]) -> Section:
    """The page "Theory in numbers", from what `measure` returned."""
    parts: list[Part] = [
        "The paper gives three propositions. Here is what numbers say to each of them, where they can say something."
    ]
    if measured["quick"]:
        parts.append("Measured in the quick form: smaller sizes, fewer repetitions and short trainings.")
    parts += _approximation(measured["approximation"])
    parts += _complexity(measured["complexity"])
    parts += _identifiability(measured["identifiability"])
    return Section("theory", "Theory in numbers", parts)


# --------------------------------------------------------------------- proposition 1


def _approximation(measured: Mapping[str, Any]) -> list[Part]:
    counts, shapes = measured["counts"], measured["shapes"]
    ends = {kind: {shape["name"]: shape[kind][-1]["error"] for shape in shapes} for kind in ("positive", "signed")}
    fits = {kind: [name for name, error in errors.items() if error < SMALL] for kind, errors in ends.items()}
    out = [shape for shape in shapes if shape["lower_bound"] > SMALL and not shape["jump"]]
    alone = [shape["name"] for shape in out if shape["positive"][0]["error"] < 1.01 * shape["lower_bound"]]
    jumps = [shape for shape in shapes if shape["jump"]]
    heaviest = max((mixture["total"], shape["name"]) for shape in shapes for mixture in shape["signed"])
    parts: list[Part] = [
        "## Proposition 1: approximation",
        "It says that mixtures of K exponentials come arbitrarily near to any non-increasing decay: in the text with "
        "real weights that sum to 1, in the appendix with weights in [0, 1]. A gate that is a softmax has the latter.",
        f"With K = {counts[-1]} and real weights, errors below {SMALL:g} were found for {_listed(fits['signed'])}. "
        f"With weights of at least 0, for {_listed(fits['positive'])}.",
    ]
    if out:
        bounds = ", ".join(f"{shape['lower_bound']:.3f} for {_the(shape['name'])}" for shape in out)
        parts.append(
            f"Weights of at least 0 cannot do better than an error of {bounds}, whatever K is: a bound from linear "
            "programming duality, not from a search that gave up. Such mixtures are completely monotone (Bernstein), "
            "and these shapes are not. The appendix's proposition is therefore false for them."
            + (f" For {_listed(alone)} one head already is as good as any number of them." if alone else "")
        )
    for shape in jumps:
        least = min(mixture["error"] for kind in ("positive", "signed") for mixture in shape[kind])
        parts.append(
            f"At a jump from 1 to 0 a continuous function is wrong by at least 1/2 on one side of it, so that neither "
            f"version holds for {_the(shape['name'])}; the smallest error that was found is {least:.3f}."
        )
    parts.append(
        f"Real weights cancel each other: Σ|α| goes up to {heaviest[0]:,.0f} ({heaviest[1]}), with no weight beyond "
        f"±{measured['largest']:g} allowed. Figures for a given K are the best that was found, an upper bound of the "
        "best there is."
    )
    rows = [
        [
            f"{shape['name']}: {shape['formula']}",
            "yes" if shape["completely_monotone"] else "no",
            kind,
            *(f"{mixture['error']:.1e}" for mixture in shape[kind]),
            f"{shape[kind][-1]['total']:.1f}",
            f"{shape['lower_bound']:.3f}" if kind == "positive" else "",
        ]
        for shape in shapes
        for kind in ("positive", "signed")
    ]
    columns = ["decay on [0, 1]", "completely monotone", "weights", *(f"K = {k}" for k in counts)]
    columns += [f"Σ abs α at {counts[-1]}", "bound for all K"]
    caption = "Largest error on [0, 1] of the best mixture that was found."
    return [
        *parts,
        Table(columns, rows, caption),
        Picture(
            "theory-approximation",
            "Largest error against the number of heads: weights of at least 0 on the left, real weights on the right.",
            lambda: _draw_errors(counts, shapes),
        ),
    ]


def _draw_errors(counts: Sequence[int], shapes: Sequence[Mapping[str, Any]]) -> "Figure":
    figure, axes = plot(2, height=4.2, share_y=True)
    titles = {"positive": "weights ≥ 0 (appendix)", "signed": "real weights (text)"}
    for axis, kind in zip(axes, titles, strict=True):
        for index, shape in enumerate(shapes):
            errors = [mixture["error"] for mixture in shape[kind]]
            _line(axis, index, counts, errors, shape["name"])
        axis.set(title=titles[kind], xlabel="number K of exponentials", xscale="log", yscale="log")
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
    axes[0].set_ylabel("largest error")
    axes[0].legend(frameon=False, fontsize=8, loc="lower left")
    return figure


# --------------------------------------------------------------------- proposition 2


def _complexity(measured: Mapping[str, Any]) -> list[Part]:
    sweeps = [Sweep(**sweep) for sweep in measured["sweeps"]]
    read = [sweep for sweep in sweeps if sweep.name == READ]
    steep = [sweep.size for sweep in read if max(sweep.slope, sweep.last_slope) > STEEP]
    flat = [sweep.size for sweep in read if sweep.last_slope < 0.75]
    exponents = ", ".join(f"{sweep.slope:.2f} in {sweep.size}" for sweep in read)
    base = ", ".join(f"{name} = {value}" for name, value in measured["base"].items())
    verdict = (
        f"More than linear, beyond {STEEP:g}, in {_listed(steep)}: that is not what the proposition says."
        if steep
        else f"None is above {STEEP:g}, also not between the two largest sizes: no faster than L d K, as it says."
    )
    if flat:
        verdict += f" In {_listed(flat)} costs that do not grow still weigh at the largest sizes (below 0.75)."
    beside = "; ".join(f"{sweep.name}, {sweep.last_slope:.2f}" for sweep in sweeps if sweep.name != READ)
    rows = [
        [
            sweep.name,
            complexity.TITLES[sweep.name],
            sweep.size,
            f"{sweep.values[0]} to {sweep.values[-1]}",
            f"{1e3 * sweep.seconds[0]:.3f} to {1e3 * sweep.seconds[-1]:.3f}",
            f"{sweep.slope:.2f}",
            f"{sweep.last_slope:.2f}",
        ]
        for sweep in sweeps
    ]
    columns = ["what", "operations", "swept", "sizes", "milliseconds per history", "exponent", "at the end"]
    disturbed = median(share for sweep in sweeps for share in sweep.spread)
    return [
        "## Proposition 2: complexity",
        f"It says that the operator takes O(L d K) time. Read at the latest event, time grows with the exponents "
        f"{exponents}, swept one at a time around {base}; 1 is linear. {verdict}",
        "Training reads out at every event, which the proposition does not speak of. Exponents over L between the two "
        f"largest lengths: {beside}.",
        Table(
            columns,
            rows,
            f"Medians of {measured['repetitions']} repetitions in turns, {measured['threads']} thread(s), float32. In "
            f"the median row the middle half of the repetitions spans {disturbed:.0%} of their median. “Exponent” is "
            "fitted to all sizes, “at the end” to the two largest.",
        ),
        Picture(
            "theory-complexity",
            "Milliseconds per history against size, both on log scales. Left: the operator at the latest event, over "
            "each size. Right: over the length, beside attention and the training forms.",
            lambda: _draw_cost(sweeps),
        ),
    ]


def _draw_cost(sweeps: Sequence[Sweep]) -> "Figure":
    figure, axes = plot(2, height=4.2)
    panels = [
        (READ, "L, d or K", [(s, s.size) for s in sweeps if s.name == READ]),
        ("over the length", "L", [(s, s.name) for s in sweeps if s.size == "L"]),
    ]
    for axis, (title, label, lines) in zip(axes, panels, strict=True):
        for index, (sweep, name) in enumerate(lines):
            milliseconds = [1e3 * second for second in sweep.seconds]
            _line(axis, index, sweep.values, milliseconds, f"{name}: {sweep.slope:.2f}")
        axis.set(title=title, xlabel=label, xscale="log", yscale="log")
        ticks = sorted({value for sweep, _ in lines for value in sweep.values})
        axis.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=8)
        axis.minorticks_off()
        axis.legend(frameon=False, fontsize=8, title="exponent", title_fontsize=8)
    axes[0].set_ylabel("milliseconds per history")
    return figure


# --------------------------------------------------------------------- proposition 3


def _identifiability(measured: Mapping[str, Any]) -> list[Part]:
    likelihood, learned = measured["likelihood"], measured["learned"]
    most = max(row["users"] for row in learned)
    parts: list[Part] = [
        "## Proposition 3: identifiability",
        "It says that the rates and weights of a Hawkes process are recovered if the diversity loss keeps the heads "
        "apart. (As it is written, its condition never holds: that loss is at most 0. What is meant is that the "
        "divergences of the heads are positive.) The process here has half-lives of "
        f"{_listed([_spell(life) for life in measured['half_lives']])} and weights of "
        f"{_listed([f'{weight:g}' for weight in measured['weights']])}, the same for all users. Errors are the mean "
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
            "request clock, one seed. JSD: mean over pairs of heads, in nats. NDCG × 100.",
        ),
        Picture(
            "theory-identifiability",
            "Errors of the half-lives (left) and weights (right) against the number of users: maximum likelihood "
            "(lines) and trained models (single markers).",
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


def _medians(rows: Sequence[Mapping[str, Any]], known: str) -> list[tuple[int, tuple[float, float]]]:
    """Numbers of users, and medians over the seeds of both errors."""
    found = []
    for users in sorted({row["users"] for row in rows if row["known"] == known}):
        same = [row for row in rows if row["known"] == known and row["users"] == users]
        found.append((users, (median(row["rate_error"] for row in same), median(row["weight_error"] for row in same))))
    return found


def _draw_recovery(likelihood: Sequence[Mapping[str, Any]], learned: Sequence[Mapping[str, Any]]) -> "Figure":
    figure, axes = plot(2, height=4.4)
    titles = ("half-lives, mean |log found / true|", "weights, l1 distance")
    for which, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        for index, (known, name) in enumerate(KNOWN.items()):
            if medians := _medians(likelihood, known):
                users = [users for users, _ in medians]
                _line(axis, index, users, [errors[which] for _, errors in medians], f"likelihood, {name}")
        groups = sorted({(row["time_scale"], row["diversity"]) for row in learned})
        for index, group in enumerate(groups, start=len(KNOWN)):
            rows = [row for row in learned if (row["time_scale"], row["diversity"]) == group]
            errors = [row[("rate_error", "weight_error")[which]] for row in rows]
            label = f"mars-t, {group[0]} time, diversity {group[1]:g}"
            _line(axis, index, [row["users"] for row in rows], errors, label)
        ticks = sorted({row["users"] for row in [*likelihood, *learned]})
        axis.set(title=title, xlabel="users", xscale="log", yscale="log")
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def _line(axis: "Axes", index: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    style = {"color": COLORS[index], "linestyle": STYLES[index], "marker": MARKERS[index]}
    axis.plot(x, np.maximum(y, 1e-12), label=label, markersize=5, **style)  # type: ignore[arg-type]


def _spell(hours: float) -> str:
    return "ever" if hours >= identifiability.FOREVER else spell_duration(3600 * hours)


def _the(name: str) -> str:
    return f"the {name}"


def _listed(names: Sequence[str]) -> str:
    """Names with an "and", or "none"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"
