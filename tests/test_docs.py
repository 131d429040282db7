"""The code of README and docs runs, the commands that they name exist, and README's figures are those of the results.

`test_site.py` and `test_notebooks.py` beside this hold the site and the notebooks. A block under
`<!-- not run: REASON -->` is left out. One with a `title` is written to that file, for those after it.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer
from tests.cli.calls import call

from marsrec import Recommender, TrainingSettings
from marsrec.cli import app
from marsrec.training import fit as training

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?P<skipped><!-- not run: .+? -->\n+)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"\n]+)\")?\n(?P<code>.*?)^```$",
    re.M | re.S,
)
INLINE = re.compile(r"`((?:marsrec|python -m) [^`]+)`")
COMMANDS = typer.main.get_command(app)
FIRST = [ROOT / "README.md", ROOT / "docs/own-log.md", ROOT / "docs/clocks.md"]
"""Pages whose commands a new user types one after the other."""
RUN = ("prepare", "fit", "recommend", "explain", "compare")


def blocks(page: Path, *languages: str) -> list[tuple[str | None, str]]:
    """Titles and texts."""
    found = BLOCK.finditer(page.read_text())
    wanted = (block for block in found if block["language"] in languages and not block["skipped"])
    return [(block["title"], block["code"]) for block in wanted]


def commands(page: Path) -> Iterator[str]:
    """Command lines in blocks, with continued lines joined, and those within sentences."""
    for _, code in blocks(page, "bash", "sh", "console"):
        lines = re.sub(r"\\\n\s*", "", code).splitlines()
        yield from (line for line in lines if re.search(r"\b(marsrec|python -m) ", line))
    yield from (" ".join(line.split()) for line in INLINE.findall(BLOCK.sub("", page.read_text())))


def by_page(pages: list[Path]) -> Any:
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.stem)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages take for granted: logs of a shop, and a model of it."""
    folder = tmp_path_factory.mktemp("shop")
    items = ["tea", "milk", "sugar", "jam", "bread", "salt", "rice", "oats", "figs", "nuts"]
    rows = [(4711 + user, items[(user + i) % 10], 1_700_000_000 + 3600 * i) for user in range(20) for i in range(8)]
    log = pl.DataFrame(rows, schema=["user", "item", "time"], orient="row").with_columns(pl.col("user").cast(pl.String))
    log.write_csv(folder / "shop.csv")
    log.with_columns(rating=5).write_csv(folder / "ratings.csv")
    pl.DataFrame({"item": items, "title": [item.title() for item in items]}).write_csv(folder / "items.csv")
    quick = TrainingSettings(epochs=1)
    small = {"dim": 8, "length": 8}
    Recommender("mars-t", options=small, training=quick).fit(folder / "shop.csv", progress=False).save(folder / "model")
    return folder


@pytest.fixture
def in_the_shop(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the shop, where trainings are short."""
    shutil.copytree(shop, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = training.fit

    def short(split: Any, model: Any, settings: TrainingSettings, **how: Any) -> Any:
        return whole(split, model, settings.model_copy(update={"epochs": min(settings.epochs, 2)}), **how)

    monkeypatch.setattr(training, "fit", short)


@pytest.mark.usefixtures("parts_of_this_test", "in_the_shop")
@by_page([page for page in PAGES if blocks(page, "python")])
def test_the_code_of_a_page_runs(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for title, code in blocks(page, "python"):
        if title is not None:
            Path(title).write_text(code)
            continue
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.usefixtures("in_the_shop")
@by_page(FIRST)
def test_commands_of_a_page_run(page: Path) -> None:
    """One after the other: each finds what those before it wrote."""
    lines = [line for _, code in blocks(page, "bash") for line in code.splitlines() if line.startswith("marsrec ")]
    assert lines
    for line in lines:
        _, command, *words = shlex.split(line, comments=True)
        if command in RUN:
            call(command, *words)
        elif command == "serve":
            assert (Path(words[0]) / "config.json").exists(), line


@by_page([page for page in PAGES if any(commands(page))])
def test_commands_of_a_page_exist(page: Path) -> None:
    for line in commands(page):
        for words in simple(line):
            if words[:1] == ["marsrec"]:
                check(COMMANDS, words[1:], line)
            elif words[:2] == ["python", "-m"] and words[2].split(".")[0] in ("benchmarks", "reproduction"):
                module = words[2] if len(words) == 3 or words[2] != "benchmarks" else f"benchmarks.{words[3]}"
                assert find_spec(module), line


def simple(line: str) -> Iterator[list[str]]:
    """The simple commands of a line."""
    words = shlex.split(line, comments=True)
    separators = [place for place, word in enumerate(words) if word in ("&&", "||", "|", ";", "&", ">", ">>", "<")]
    for start, end in zip([-1, *separators], [*separators, len(words)], strict=True):
        yield [word for word in words[start + 1 : end] if "=" not in word or word.startswith("-")]


def check(command: Any, words: list[str], line: str) -> None:
    """Raise unless the command and its options exist."""
    if hasattr(command, "commands"):
        if words[:1] == ["--import"]:
            words = words[2:]
        if not words or words[0].startswith("-") or words[0].isupper():
            return
        assert words[0] in command.commands, line
        check(command.commands[words[0]], words[1:], line)
        return
    known = {name for parameter in made(command).params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if re.match(r"--?[a-z]", word):
            assert word.partition("=")[0] in known | {"--help"}, line


def made(command: Any) -> Any:
    """A command with its options, which are made when it is called."""
    return command.make_context(command.name, [], resilient_parsing=True).command


def test_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def rows_of(page: str, heading: str, following: str) -> dict[str, list[str]]:
    """The cells of the first table after a heading whose rows begin with a model, by model."""
    text = (ROOT / page).read_text()
    text = text[text.index(heading) : text.index(following, text.index(heading) + 1)]
    rows = ([cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| "))
    return {row[0].partition(",")[0]: row for row in rows}


def test_figures_of_the_readme_are_those_of_the_results() -> None:
    shown = rows_of("README.md", "## How good", "## See it")
    measured = rows_of("docs/results/main.md", "## beauty\n", "## beauty: is")
    differences = rows_of("docs/results/main.md", "## beauty: is", "## sports")
    costs = rows_of("docs/results/efficiency.md", "## beauty: 12,101", "## beauty: accuracy")
    models = [model for model in shown if model in measured and model != "model"]
    assert len(models) == 10
    usual_step, usual_vector = (float(costs["sasrec"][place].split()[0]) for place in (4, 3))
    for model in models:
        _, hit_rate, ndcg, difference, step, vector = shown[model]
        assert [hit_rate, ndcg] == measured[model][1:3]
        if model != "mars-t":
            assert difference == differences[model][2].partition(", p")[0]
        for ratio, place, usual in ((step, 4, usual_step), (vector, 3, usual_vector)):
            exact = float(costs[model][place].split()[0]) / usual
            assert ratio == (f"{exact:.0f}×" if exact >= 10 else f"{exact:.1f}×")
