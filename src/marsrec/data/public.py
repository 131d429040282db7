"""Public data sets: found in a folder, or fetched from their official source, filtered and kept; and verified."""

import hashlib
import http.client
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from marsrec.atomic import atomic_file
from marsrec.data.catalog import Dataset, Statistics, find
from marsrec.data.download import download
from marsrec.data.filters import filter_counts
from marsrec.data.log import Log, read_log
from marsrec.errors import DataError


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
            "It is another version or was filtered differently: replace it by the right file, "
            "or load it with verify=False."
        )
    if dataset.order is not None and row_order(log) != dataset.order:
        note = (
            f"{dataset.name}: the rows stand in another order than those that the project's figures come from, so that "
            "events of equal time may, too"
        )
        log = replace(log, notes=(*log.notes, note))
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
            f"{dataset.name}: it cannot be downloaded automatically ({dataset.licence}). "
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
