"""The backbone rule is judged by what is significant, on data of every density, with the same settings."""

from pathlib import Path
from typing import Any

import pytest
from reproduction.rule import FIXED, Point, crossings, section
from tests.lab.made import result, write_with_ranks

from marsrec.lab.experiment import read_experiment
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.results import Result

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def contest(folder: Path, data: str, average: float, sparse: int, dense: int, **given: Any) -> list[Result]:
    """Both models with so many hits among a hundred users."""
    made = []
    for model, hits in (("mars-t", sparse), ("mars-m", dense)):
        made.append(result(model, hits / 100, data=data, average=average, **given))
        write_with_ranks(folder, made[-1], [1.0] * hits + [99.0] * (100 - hits), [5] * 100)
    return made


def table(page: Section) -> Table:
    return next(part for part in page.parts if isinstance(part, Table))


def lines(page: Section) -> dict[str, list[float]]:
    picture = next(part for part in page.parts if isinstance(part, Picture))
    named = zip(*picture.draw().axes[0].get_legend_handles_labels(), strict=True)
    return {name: list(handle.lines[0].get_ydata()) for handle, name in named}


def test_the_rule_is_judged_on_data_of_every_density(tmp_path: Path) -> None:
    found = [
        *contest(tmp_path, "ml-1m-latest20", 18.0, 50, 30),
        *contest(tmp_path, "ml-1m-latest100", 80.0, 50, 70),
        *contest(tmp_path, "hawkes-mean_events80", 78.0, 70, 50, options=FIXED),
        *contest(tmp_path, "hawkes-mean_events20", 17.0, 50, 50, options=FIXED),
    ]
    page = section(found, tmp_path)
    assert "is without 0) in 3, and the rule takes the better model in 2 of them." in str(page.parts[1])
    assert "The two cross: ml-1m at about 38 events." in str(page.parts[1])
    assert [(row[0], row[6].strip("*").split(":")[0], row[8], row[9]) for row in table(page).rows[:4]] == [
        ("hawkes-mean_events20", "+0.0%", "mars-t", "not significant"),
        ("ml-1m-latest20", "-40.0%", "mars-t", "mars-t"),
        ("hawkes-mean_events80", "-28.6%", "mars-m", "mars-t"),
        ("ml-1m-latest100", "+40.0%", "mars-m", "mars-m"),
    ]
    drawn = lines(page)
    assert drawn["ml-1m"] == pytest.approx([-40, 40])
    assert drawn["hawkes, fixed settings"] == pytest.approx([0, -100 * 2 / 7])


def test_generated_data_of_other_settings_are_not_compared(tmp_path: Path) -> None:
    own = contest(tmp_path, "hawkes-mean_events80", 78.0, 70, 50, options={"length": 50})
    assert [row[0] for row in table(section(own, tmp_path)).rows] == [
        "beauty",
        "sports",
        "games",
        "ml-1m",
        "yelp",
    ]
    found = [*own, *contest(tmp_path, "hawkes", 33.0, 50, 60), *contest(tmp_path, "ml-1m-latest20", 18.0, 50, 30)]
    found += contest(tmp_path, "ml-1m-latest40", 38.0, 50, 30)
    assert list(lines(section(found, tmp_path))) == ["ml-1m", "hawkes"]


@pytest.mark.parametrize("name", ["density", "smoke"])
def test_the_experiments_have_the_fixed_settings(name: str) -> None:
    runs = read_experiment(EXPERIMENTS / f"{name}.toml").runs
    generated = [run for run in runs if run.hawkes]
    assert generated
    assert all(run.options == FIXED for run in generated)


def test_one_line_is_trained_alike(tmp_path: Path) -> None:
    found = [
        *contest(tmp_path, "ml-100k-latest10", 8.0, 50, 30),
        *contest(tmp_path, "ml-100k-latest40", 30.0, 50, 30),
        *contest(tmp_path, "ml-100k", 100.0, 30, 50, epochs=1),
    ]
    page = section(found, tmp_path)
    assert "No crossing is statistically significant here." in str(page.parts[1])
    assert [len(line) for line in lines(page).values()] == [2, 1]
    assert "ml-100k (epochs 1)" in lines(page)
    smoke = read_experiment(EXPERIMENTS / "smoke.toml").runs
    assert len({run.training.epochs for run in smoke if run.data == "ml-100k" and run.model == "mars-t"}) == 1


def test_the_papers_two_stand_beside_ours(tmp_path: Path) -> None:
    found = contest(tmp_path, "beauty", 6.9, 10, 9)
    row = table(section(found, tmp_path)).rows[0]
    assert row[:6] == [
        "beauty",
        "6.9",
        "10.00 / 5.00",
        "8.84 / 4.40 (+13.1% / +13.6%)",
        "9.00 / 4.50",
        "8.02 / 4.13 (+12.2% / +9.0%)",
    ]
    assert row[6].startswith("-10.0%: -1.00 [")
    assert row[7] == "-6.1% (-3.9 points)"
    other = [one.model_copy(update={"statistics": {"average_length": 8.9, "users": 3}}) for one in found]
    assert [table(section(other, tmp_path)).rows[0][place] for place in (3, 5, 7)] == ["none"] * 3


def test_what_was_not_run_says_so(tmp_path: Path) -> None:
    page = section([result("mars-t", 0.08)], tmp_path)
    assert page.parts[1] == "mars-t and mars-m on the same data: not run. Data of several densities: not run."
    rows = table(page).rows
    assert rows[0][4:] == ["not run", "8.02 / 4.13", "not run", "-6.1%", "mars-t", ""]
    assert rows[1] == ["sports", "", "not run", "5.22 / 2.43", "not run", "4.73 / 2.26", "not run", "-7.0%", "", ""]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ((-0.2, 0.2, 0.3), ["at about 20 events"]),
        ((-0.2, 0.05, 0.3), ["between 10 and 160 events"]),  # the middle one is not significant, whatever its sign
        ((-0.05, 0.2, 0.3), []),
        ((-0.2, 0.2, -0.2), ["at about 20 events", "at about 80 events"]),
        ((-0.05, 0.05, -0.05), []),
    ],
)
def test_only_significant_differences_make_a_crossing(gains: tuple[float, ...], expected: list[str]) -> None:
    points = [Point(length, gain, gain - 0.1, gain + 0.1) for length, gain in zip((10, 40, 160), gains, strict=True)]
    assert crossings(points[::-1]) == expected
