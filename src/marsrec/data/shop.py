"""The synthetic shop: articles with names, drawn from the process of `marsrec.data.hawkes` by a law that is known.

Each kernel of the process has a meaning here. A purchase brings about others within *minutes*, of what belongs to it (a
coffee machine: filters and beans); within a *day*, of what comes to mind then (a mug); and within *weeks*, of what has
been used up (beans, the same as before all others). A shopper has a taste for two of the departments.
"""

from collections import defaultdict
from itertools import combinations
from typing import NamedTuple

import numpy as np
import polars as pl

from marsrec.data.hawkes import Assortment, HawkesSettings, HawkesTruth, hawkes
from marsrec.data.log import Log

FAVOURITES = 6
"""Articles that a taste knows of a department."""


class Kind(NamedTuple):
    """Articles of one kind, and the kinds that they bring about; lists of kinds are separated by commas."""

    department: str
    name: str
    sorts: str
    minutes: str
    day: str
    weeks: str = ""
    """Where it is empty, the kind is used up within weeks: it follows itself, the same article before all others."""


MAKERS = {
    "Coffee": ("Alba", "Corvo", "Lumo"),
    "Office": ("Quill", "Orbit", "Tinta"),
    "Baby": ("Pip", "Nido", "Hush"),
    "Books": ("Marlow", "Ferro", "Lindqvist"),
    "Running": ("Volt", "Strada", "Kite"),
    "Cats": ("Minou", "Tiger", "Momo"),
    "Garden": ("Verde", "Terra", "Flora"),
}
"""Departments and their makers, each of whom makes all sorts of all kinds."""

KINDS = (
    Kind(
        "Coffee",
        "coffee machine",
        "espresso filter capsule mini",
        "coffee filters, coffee beans",
        "mug",
        "coffee beans",
    ),
    Kind("Coffee", "coffee beans", "dark mild decaf organic", "coffee filters", "mug"),
    Kind("Coffee", "coffee filters", "paper bamboo small large", "coffee beans", "mug"),
    Kind("Coffee", "mug", "blue white glass steel", "coffee beans", "cookbook", "coffee beans"),
    Kind("Office", "printer", "laser inkjet photo pocket", "printer ink, printer paper", "notebook", "printer ink"),
    Kind("Office", "printer ink", "black cyan magenta yellow", "printer paper", "notebook"),
    Kind("Office", "printer paper", "white recycled glossy heavy", "printer ink", "notebook"),
    Kind("Office", "notebook", "ruled plain squared dotted", "printer paper", "novel"),
    Kind("Baby", "nappies", "newborn small medium night", "baby wipes", "baby food"),
    Kind("Baby", "baby wipes", "sensitive scented moist dry", "nappies", "baby food"),
    Kind("Baby", "baby food", "carrot apple pear rice", "baby wipes", "nappies"),
    Kind("Books", "novel", "crime historical romantic sea", "reading lamp", "novel", "cookbook"),
    Kind("Books", "cookbook", "vegetarian baking Italian soup", "novel", "mug", "novel"),
    Kind("Books", "reading lamp", "clip-on standing folding red", "novel", "novel", "notebook"),
    Kind("Running", "running shoes", "road trail track winter", "running socks", "energy bars", "energy bars"),
    Kind("Running", "running socks", "ankle long wool thin", "running shoes", "energy bars"),
    Kind("Running", "energy bars", "nut date cocoa oat", "running socks", "running shoes"),
    Kind("Cats", "cat food", "salmon chicken tuna turkey", "cat litter", "cat toy"),
    Kind("Cats", "cat litter", "clay wood silica fine", "cat food", "cat toy"),
    Kind("Cats", "cat toy", "feather mouse ball tunnel", "cat food", "cat toy", "cat litter"),
    Kind("Garden", "plant pot", "clay hanging round square", "potting soil", "seeds", "potting soil"),
    Kind("Garden", "potting soil", "cactus orchid herb rose", "plant pot", "seeds"),
    Kind("Garden", "seeds", "tomato basil lettuce poppy", "potting soil", "plant pot"),
)
ARTICLES = tuple(
    (f"{maker} {sort} {kind.name}", kind)
    for kind in KINDS
    for maker in MAKERS[kind.department]
    for sort in kind.sorts.split()
)
"""Title and kind of each item."""
TASTES = tuple(combinations(MAKERS, 2))


def articles() -> pl.DataFrame:
    """What the items of the shop are: a title, and a department as the category.

    Examples
    --------
    >>> articles().row(0), len(articles())
    (('i0', 'Alba espresso coffee machine', 'Coffee'), 276)
    """
    rows = [(f"i{code}", title, kind.department) for code, (title, kind) in enumerate(ARTICLES)]
    return pl.DataFrame(rows, schema=["item", "title", "category"], orient="row")


def shop(*, users: int = 2000, seed: int = 0) -> tuple[Log, HawkesTruth]:
    """Draw a log of the shop.

    Parameters
    ----------
    users : int
        Number of shoppers.
    seed : int
        Everything that shoppers do follows from it; the law is the same for all seeds.

    Returns
    -------
    log : Log
        Rows by user and time; times in seconds. `articles` tells what the items are called.
    truth : HawkesTruth
        The law, with the kernels in the order minutes, day, weeks.

    Examples
    --------
    >>> log, truth = shop(users=100)
    >>> successors = truth.successors[:, 0]  # of the first article, an espresso machine, by kernel
    >>> articles()["title"].gather(successors[:, 0]).to_list()
    ['Lumo decaf coffee beans', 'Corvo blue mug', 'Corvo decaf coffee beans']
    """
    settings = HawkesSettings(users=users, items=len(ARTICLES), tastes=len(TASTES), seed=seed)
    return hawkes(settings, assortment(settings))


def assortment(settings: HawkesSettings) -> Assortment:
    """Which articles each taste knows, by popularity, and which ones each article brings about, the likeliest first."""
    generator = np.random.default_rng(0)
    kinds, departments = defaultdict(list), defaultdict(list)
    for code, (_, kind) in enumerate(ARTICLES):
        kinds[kind.name].append(code)
        departments[kind.department].append(code)
    background = np.zeros((len(TASTES), len(ARTICLES)))
    popularity = np.arange(1, 1 + 2 * FAVOURITES) ** -settings.zipf
    for taste, liked in enumerate(TASTES):
        known = [generator.choice(departments[department], FAVOURITES, replace=False) for department in liked]
        background[taste, generator.permutation(np.concatenate(known))] = popularity / popularity.sum()
    successors = np.empty((3, len(ARTICLES), settings.successors), np.int64)
    for code, (_, kind) in enumerate(ARTICLES):
        for kernel, followers in enumerate((kind.minutes, kind.day, kind.weeks or kind.name)):
            others = [other for name in followers.split(", ") for other in kinds[name] if other != code]
            itself = [] if kernel < 2 or kind.weeks else [code]
            successors[kernel, code] = [*itself, *generator.permutation(others)][: settings.successors]
    return Assortment(background, successors)
