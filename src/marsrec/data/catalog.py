"""The public data sets of the paper: where they come from, how they are filtered, and what must come out."""

import difflib
import hashlib
import http.client
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from marsrec.atomic import atomic_file
from marsrec.data.download import download
from marsrec.data.filters import Bounds, filter_counts
from marsrec.data.log import Log, read_log
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
    """Digest of the rows in their order, see `row_order`; None where it is not known."""


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
    raise DataError(f"there is no data set {name!r}.{guess} Known are {', '.join(CATALOG)}, and the synthetic hawkes.")


def cache_folder() -> Path:
    """Where downloads and filtered data sets are kept: $MARSREC_CACHE, or ~/.cache/marsrec."""
    return Path(os.environ.get("MARSREC_CACHE") or "~/.cache/marsrec").expanduser()


def locate(dataset: str | Dataset, folder: Path | None = None) -> Path | None:
    """Find the filtered file `<name>.parquet` of a data set, if it is there.

    Parameters
    ----------
    dataset : str or Dataset
    folder : Path, optional
        Where to look; if not given, in $MARSREC_DATA and then in the cache.

    Examples
    --------
    >>> import tempfile
    >>> print(locate("beauty", Path(tempfile.mkdtemp())))
    None
    """
    dataset = find(dataset) if isinstance(dataset, str) else dataset
    return _first_file(f"{dataset.name}.parquet", folder)


def load(dataset: str | Dataset, folder: Path | None = None, *, verify: bool = True) -> Log:
    """Load a data set, filtered: from its parquet file, or else from its official source, once.

    Parameters
    ----------
    dataset : str or Dataset
        A name in `CATALOG`, or a data set of one's own.
    folder : Path, optional
        Where to look for files and to keep them. If not given, files in $MARSREC_DATA come first, then those in the
        cache, and new ones are kept in the cache.
    verify : bool
        Refuse data whose statistics are not the expected ones.

    Returns
    -------
    Log
        Rows that happened at the same time are in the order of the file.

    Raises
    ------
    DataError
        If the name is unknown, the data cannot be had, or the statistics differ.

    Examples
    --------
    >>> log = load("ml-100k")  # doctest: +SKIP
    >>> len(log)  # doctest: +SKIP
    99287
    """
    dataset = find(dataset) if isinstance(dataset, str) else dataset
    if ready := locate(dataset, folder):
        log = read_log(ready)
        return _verified(log, dataset) if verify else log
    keep = folder or cache_folder()
    log = _read_source(_source(dataset, folder), dataset)
    log = filter_counts(log, users=dataset.counts, items=dataset.counts)
    if verify:
        log = _verified(log, dataset)
    path = keep / f"{dataset.name}.parquet"
    with atomic_file(path) as temporary:
        log.frame.rename({"time": "timestamp"}).write_parquet(temporary)
    return replace(log, notes=(*log.notes, f"kept as {path}"))


def _folders(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    if given := os.environ.get("MARSREC_DATA"):
        yield Path(given).expanduser()
    yield cache_folder()


def _first_file(name: str, folder: Path | None) -> Path | None:
    return next((path for place in _folders(folder) if (path := place / name).is_file()), None)


def _verified(log: Log, dataset: Dataset) -> Log:
    found = Statistics(log.n_users, log.n_items, len(log))
    if found != dataset.expected:
        raise DataError(
            f"{log.source}: {dataset.name} must have {dataset.expected} after filtering, and this has {found}. "
            "It is another version or was filtered otherwise: put the right file in its place, "
            "or load it with verify=False."
        )
    if dataset.order is not None and row_order(log) != dataset.order:
        said = (
            f"{dataset.name}: the rows stand in another order than those that the project's figures come from, so that "
            "events of equal time may, too"
        )
        log = replace(log, notes=(*log.notes, said))
    return log


def row_order(log: Log) -> str:
    """A short digest of a log's rows in their order, which decides between events of equal time."""
    rows = log.frame.select("user", "item", "time").write_csv(include_header=False, separator="\t")
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


def _source(dataset: Dataset, folder: Path | None) -> Path:
    """The official file: brought by the user, downloaded earlier, or downloaded now."""
    names = [url.rsplit("/", 1)[-1] for url in dataset.urls]
    if dataset.file is not None:
        names = [dataset.file, f"{dataset.file}.gz"]
    for name in names:
        if path := _first_file(name, folder):
            return path
    keep = folder or cache_folder()
    if not dataset.urls:
        wanted = dataset.file or f"{dataset.name}.parquet (user, item, timestamp)"
        raise DataError(
            f"{dataset.name}: it is not downloaded for you ({dataset.licence}). "
            f"Get it from {dataset.homepage} and put {wanted} into {' or '.join(map(str, _folders(folder)))}."
        )
    failures = []
    for url, name in zip(dataset.urls, names, strict=True):
        try:
            return download(url, keep / name)
        except (OSError, http.client.HTTPException, DataError) as error:
            failures.append(f"{url} ({error})")
    raise DataError(
        f"{dataset.name}: could not be downloaded from {' or '.join(failures)}. "
        f"Try again later, or get it from {dataset.homepage} and put {names[0]} into {keep}."
    )


def _read_source(path: Path, dataset: Dataset) -> Log:
    if dataset.member is None:
        return read_log(path)
    with tempfile.TemporaryDirectory() as folder:
        extracted = Path(folder) / Path(dataset.member).name
        try:
            with zipfile.ZipFile(path) as archive, archive.open(dataset.member) as member, extracted.open("wb") as file:
                shutil.copyfileobj(member, file)
        except (zipfile.BadZipFile, KeyError) as error:
            raise DataError(
                f"{path}: cannot take {dataset.member} out of it ({error}). Delete it and load again."
            ) from error
        return replace(read_log(extracted), source=f"{path}/{dataset.member}")
