"""Opening data: a catalog name, an embedded log, a log file, a prepared folder, a dataframe, or histories."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marsrec.data.filters import FilterSettings
from marsrec.data.formats import PATTERN
from marsrec.data.hawkes import HawkesSettings, hawkes
from marsrec.data.histories import Histories, Ties
from marsrec.data.log import Log, LogSettings, read_log
from marsrec.data.public import load
from marsrec.data.shop import articles, shop
from marsrec.data.titles import with_titles
from marsrec.errors import DataError, SettingsError

EMBEDDED = "hawkes"
"""The general process; experiments may change its settings."""
SHOP = "shop"
"""The same with named articles."""


@dataclass(frozen=True)
class Source:
    """Histories, where they come from, and what was noticed on the way to them."""

    histories: Histories
    name: str = ""
    """What results call the data; empty for data in memory."""
    notes: tuple[str, ...] = ()
    """A sentence for each thing that was recognised, counted or dropped."""
    public: str | None = None
    """The name of the public data set that this is."""
    columns: LogSettings = field(default_factory=LogSettings)
    """How the columns of the log are called and what unit times are in, where that was said."""
    synthetic: bool = False
    """Whether it was drawn here, so that nobody's events are shown where it is shown."""


def open_data(
    data: Any,
    *,
    log_settings: LogSettings | None = None,
    filters: FilterSettings | None = None,
    ties: Ties = "file",
) -> Source:
    """Open data, whatever they come in, as histories.

    Parameters
    ----------
    data : str, Path, several of them, dataframe, Log, Histories or Source
        A log file, several, a folder of parts or a pattern; a folder that `marsrec prepare` wrote, a name that
        `marsrec datasets` lists, or "shop" or "hawkes", the embedded logs; a file or folder comes before a name. Or the
        data themselves: a dataframe of pandas, polars, pyarrow or whatever else narwhals knows, or what was opened
        already.
    log_settings : LogSettings, optional
        How to read a file or dataframe.
    filters : FilterSettings, optional
        Which users and items of a log stay.
    ties : {"file", "recbole"}
        Order of events of equal time: as in the log, or as RecBole rounds them.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.DataFrame({"user": ["ann", "ann", "bob"], "item": ["tea", "jam", "tea"], "time": [0, 60, 0]})
    >>> source = open_data(log, filters=FilterSettings(min_user_events=2))
    >>> source.histories.n_users, source.histories.n_items
    (1, 2)
    """
    reading, filters = log_settings or LogSettings(), filters or FilterSettings()
    path = Path(data).expanduser() if isinstance(data, str | Path) else None
    place = type(data).__name__ if path is None else str(path)
    if (opened := _prepared(data, path)) is not None:
        changes = {
            "log_settings": reading != LogSettings(),
            "filters": filters != FilterSettings(),
            "ties": ties not in ("file", opened.histories.ties),
        }
        if refused := ", ".join(name for name, changed in changes.items() if changed):
            raise SettingsError(
                f"{place}: already prepared, so it cannot be read, filtered or ordered differently ({refused}). "
                "Give the log instead."
            )
        return opened
    of_files = path is not None and (path.exists() or PATTERN.search(str(path)) is not None)
    if path is not None and not of_files and (path.suffix or len(path.parts) > 1):
        raise DataError(f"{path}: there is no such file.")
    if reading != LogSettings() and (isinstance(data, Log) or (path is not None and not of_files)):
        raise SettingsError(
            f"{place}: neither a log file nor a dataframe, so log_settings, the options for reading one, do not apply. "
            "Leave them out."
        )
    origin: dict[str, Any] = {}
    titles = None
    if path is None:
        log = data if isinstance(data, Log) else read_log(data, reading)
    elif of_files:
        log, origin = read_log(path, reading), {"name": called(path)}
    elif str(path) == EMBEDDED:
        log, origin = hawkes(HawkesSettings())[0], {"name": EMBEDDED, "synthetic": True}
    elif str(path) == SHOP:
        log, origin, titles = shop()[0], {"name": SHOP, "synthetic": True}, articles()
    else:
        log, origin = load(str(path)), {"name": str(path), "public": str(path)}
    log = filters.apply(log)
    histories = Histories.from_log(log, ties)
    if titles is not None:
        histories, _ = with_titles(histories, titles)
    return Source(histories, notes=log.notes, columns=reading.columns, **origin)


def called(path: Path) -> str:
    """What files are called together: by their name, or by the folder that a pattern looks in.

    Examples
    --------
    >>> called(Path("logs/shop.csv.gz")), called(Path("logs/shop/*.csv")), called(Path("logs/march-*.csv"))
    ('shop', 'shop', 'march')
    """
    name = path.name.split(".")[0]
    if PATTERN.search(name):
        name = PATTERN.split(name)[0].rstrip("-_ ") or path.parent.name
    return name or "log"


def _prepared(data: Any, path: Path | None) -> Source | None:
    """What holds histories already; None if there is a log to read."""
    if isinstance(data, Source):
        return data
    if isinstance(data, Histories):
        return Source(data)
    if path is not None and Histories.is_prepared(path):
        return Source(Histories.load(path), path.name)
    return None
