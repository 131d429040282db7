"""The public data sets of the paper: where they come from, how they are filtered, and what must come out."""

import difflib
from dataclasses import dataclass

from marsrec.data.filters import Bounds
from marsrec.errors import DataError


@dataclass(frozen=True)
class Statistics:
    """How large a data set is."""

    users: int
    items: int
    interactions: int

    def __str__(self) -> str:
        return f"{self.users:,} users, {self.items:,} items and {self.interactions:,} interactions"


@dataclass(frozen=True)
class Dataset:
    """A data set, from its official source to the statistics it must have."""

    name: str
    title: str
    homepage: str
    """Where people read about it, and get it if it is not downloaded for them."""
    expected: Statistics
    """After filtering."""
    licence: str
    citation: str
    urls: tuple[str, ...] = ()
    """Official addresses of the log, tried in this order; none if the user has to bring it."""
    member: str | None = None
    """The log's path within the zip that is downloaded."""
    file: str | None = None
    """The name of the log that the user has to bring."""
    counts: Bounds = (5, None)
    """Users and items are kept with a number of interactions in [low, high)."""
    order: str | None = None
    """Digest of the rows in their order, see `marsrec.data.public.row_order`; None where it is not known."""


_AMAZON_2014 = "https://snap.stanford.edu/data/amazon/productGraph/categoryFiles/"
_AMAZON_2023 = "benchmark/0core/rating_only/Video_Games.csv"
_AMAZON_TERMS = "No licence is stated; made public for research, with a request for citation."
_MOVIELENS_TERMS = "Research use with acknowledgement; neither redistribution nor commercial use without permission."
_YELP_TERMS = "Yelp Dataset Terms of Use: academic use, accepted by each user, no redistribution."

_MCAULEY_2015 = (
    "McAuley, Targett, Shi, van den Hengel. Image-based recommendations on styles and substitutes. SIGIR 2015."
)
_NI_2019 = "Ni, Li, McAuley. Justifying recommendations using distantly-labeled reviews. EMNLP 2019."
_HOU_2024 = "Hou, Li, He, Yan, Chen, McAuley. Bridging language and items for retrieval and recommendation. 2024."
_HARPER_2015 = "Harper, Konstan. The MovieLens datasets: history and context. ACM TiiS 5(4), 2015."
_YELP = "Yelp Open Dataset."

CATALOG: dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset(
            name="beauty",
            title="Amazon 2014, Beauty",
            homepage="https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
            urls=(_AMAZON_2014 + "ratings_Beauty.csv",),
            expected=Statistics(22_363, 12_101, 198_502),
            order="46b641b475b86caf",
            licence=_AMAZON_TERMS,
            citation=_MCAULEY_2015,
        ),
        Dataset(
            name="sports",
            title="Amazon 2014, Sports and Outdoors",
            homepage="https://cseweb.ucsd.edu/~jmcauley/datasets/amazon/links.html",
            urls=(_AMAZON_2014 + "ratings_Sports_and_Outdoors.csv",),
            expected=Statistics(35_598, 18_357, 296_337),
            order="bdf304dc19b6123a",
            licence=_AMAZON_TERMS,
            citation=_MCAULEY_2015,
        ),
        Dataset(
            name="games",
            title="Amazon Reviews 2023, Video Games",
            homepage="https://amazon-reviews-2023.github.io/",
            urls=(
                f"https://mcauleylab.ucsd.edu/public_datasets/data/amazon_2023/{_AMAZON_2023}.gz",
                f"https://huggingface.co/datasets/McAuley-Lab/Amazon-Reviews-2023/resolve/main/{_AMAZON_2023}",
            ),
            expected=Statistics(94_762, 25_612, 814_586),
            licence=_AMAZON_TERMS,
            citation=_HOU_2024,
        ),
        Dataset(
            name="ml-1m",
            title="MovieLens 1M",
            homepage="https://grouplens.org/datasets/movielens/1m/",
            urls=("https://files.grouplens.org/datasets/movielens/ml-1m.zip",),
            member="ml-1m/ratings.dat",
            expected=Statistics(6_040, 3_416, 999_611),
            order="713e0de6b6c9c7c5",
            licence=_MOVIELENS_TERMS,
            citation=_HARPER_2015,
        ),
        Dataset(
            name="ml-100k",
            title="MovieLens 100K",
            homepage="https://grouplens.org/datasets/movielens/100k/",
            urls=("https://files.grouplens.org/datasets/movielens/ml-100k.zip",),
            member="ml-100k/u.data",
            expected=Statistics(943, 1_349, 99_287),
            order="2c334c789286e1b8",
            licence=_MOVIELENS_TERMS,
            citation=_HARPER_2015,
        ),
        Dataset(
            name="yelp",
            title="Yelp Open Dataset, reviews",
            homepage="https://business.yelp.com/data/resources/open-dataset/",
            file="yelp_academic_dataset_review.json",
            expected=Statistics(233_247, 109_062, 2_918_699),
            counts=(5, 200),
            licence=_YELP_TERMS,
            citation=_YELP,
        ),
        Dataset(
            name="games-2018",
            title="Amazon 2018, Video Games",
            homepage="https://nijianmo.github.io/amazon/",
            expected=Statistics(50_597, 16_874, 453_637),
            order="205efcf89ef46af8",
            licence=_AMAZON_TERMS,
            citation=_NI_2019,
        ),
        Dataset(
            name="yelp-2019",
            title="Yelp Open Dataset, reviews of the year 2019",
            homepage="https://business.yelp.com/data/resources/open-dataset/",
            expected=Statistics(30_431, 20_033, 316_354),
            order="0b0f2cc3909c862a",
            licence=_YELP_TERMS,
            citation=_YELP,
        ),
    )
}
"""All data sets by name. `games-2018` and `yelp-2019` stand in for `games` and `yelp`; they come as parquet files."""


def find(name: str) -> Dataset:
    """Look a data set up by its name.

    Examples
    --------
    >>> print(find("beauty").expected)
    22,363 users, 12,101 items and 198,502 interactions
    >>> find("beuaty")
    Traceback (most recent call last):
    marsrec.errors.DataError: there is no data set 'beuaty'. Did you mean beauty? Known are beauty, sports, games, ...
    """
    if name in CATALOG:
        return CATALOG[name]
    guess = "".join(f" Did you mean {close}?" for close in difflib.get_close_matches(name.lower(), CATALOG, n=1))
    raise DataError(
        f"there is no data set {name!r}.{guess} Known are {', '.join(CATALOG)}, and the synthetic shop and hawkes."
    )
