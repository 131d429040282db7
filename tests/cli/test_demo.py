"""The demonstration, on few shoppers and with a short training."""

import importlib
import re
import shlex
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest
from tests.cli.calls import outputs

from marsrec.data import shop as shops
from marsrec.data.shop import articles, shop


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """What it writes to stdout and stderr, and its folder."""
    out = tmp_path_factory.mktemp("a demo")
    demo: ModuleType = importlib.import_module("marsrec.cli.demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shops, "shop", lambda: shop(users=300))
        patch.setattr(demo, "TRAINING", demo.TRAINING | {"epochs": 1})
        patch.setattr(demo, "OPTIONS", demo.OPTIONS | {"dim": 16})
        return *outputs("demo", "--out", out), out


def test_the_screen_is_not_longer_or_wider_than_a_screen(shown: tuple[str, str, Path]) -> None:
    out, err, folder = shown
    lines = [*out.splitlines(), *err.replace(str(folder), "demo").splitlines()]
    assert len(lines) <= 45
    assert (
        max(len(line) for line in lines if "the last state" not in line) <= 100
    )  # a sentence goes on in the next line


def test_it_says_what_it_does_before_it_does_it(shown: tuple[str, str, Path]) -> None:
    _, err, _ = shown
    assert err.startswith("Opening the synthetic shop …\n")
    assert re.search(r"Training sasrec: .* …\n(.*\n)+Training hawkes-t: .* …\n", err)


def test_models_stand_between_what_takes_no_training_and_the_law(shown: tuple[str, str, Path]) -> None:
    out, _, _ = shown
    row = r"│ *{} *│ *([\d.]+) *│ *([\d.]+) *│"
    names = ("popularity", "sasrec", "hawkes-t, request clock", "the law itself, if it were known")
    found = [re.search(row.format(re.escape(name)), out) for name in names]
    ndcg = [float(match[2]) for match in found if match]
    assert len(ndcg) == 4
    assert ndcg[3] > 40
    assert ndcg[3] == max(ndcg)
    lives = re.findall(r"│ (15 minutes|8 hours|10 days) +│ +0\.\d\d │ [\d.]+ \w+ +│ +0\.\d\d │", out)
    assert lives == ["15 minutes", "8 hours", "10 days"]


def test_the_shopper_is_chosen_by_the_rule_that_is_told(shown: tuple[str, str, Path]) -> None:
    out, err, _ = shown
    user, bought = re.search(r"For (u\d+), whose latest purchase is (.+? coffee machine)\n", out).groups()  # type: ignore[union-attr]
    titled = shop(users=300)[0].frame.join(articles(), on="item").sort("user", "time", maintain_order=True)
    ends = titled.group_by("user", maintain_order=True).agg(pl.len(), pl.col("title").last())
    alike = ends.filter(pl.col("title").str.ends_with("coffee machine"))
    chosen = alike.filter(user=user)
    assert chosen["title"].to_list() == [bought]
    assert chosen["len"].item() == sorted(alike["len"])[len(alike) // 2]
    assert f"the shopper with a history of median length, {chosen['len'].item()}.)" in err
    explained = re.search(r"\n│ 1 │ (.+?) +│.*\n(.*\n)+?└.*\n(.+?): ", out)
    assert explained is not None
    assert explained[1] == explained[3]
    assert explained[1] in articles()["title"]


def test_what_is_printed_as_next_can_be_pasted(shown: tuple[str, str, Path]) -> None:
    _, err, folder = shown
    assert f"marsrec serve '{folder}/hawkes-t' '{folder}/sasrec'" in err  # the folder's name has a space
    explain = re.search(r"^  marsrec (explain .+)$", err, re.MULTILINE)
    assert explain is not None
    assert "coffee machine  10 minutes" in outputs(*shlex.split(explain[1]))[0]
    assert (folder / "decay.png").read_bytes().startswith(b"\x89PNG")
