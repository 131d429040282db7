"""Opening data by what people call it: a catalog name, the embedded hawkes log, a prepared folder or a log file."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marsrec.data.catalog import CATALOG, PaperSettings, load
from marsrec.data.filters import filter_counts
from marsrec.data.hawkes import HawkesSettings, hawkes
from marsrec.data.histories import Histories, Ties
from marsrec.data.log import Log, LogSettings, read_log
from marsrec.errors import DataError, SettingsError
from marsrec.settings import Settings

EMBEDDED = "hawkes"


class FilterSettings(Settings):
    """Which users and items stay, by their number of events: [low, high), repeated until nothing changes."""

    min_user_events: int = 1
    """Users with fewer events go."""
    max_user_events: int | None = None
    """Users with this many events or more go."""
    min_item_events: int = 1
    """Items with fewer events go."""
    max_item_events: int | None = None
    """Items with this many events or more go."""

    @property
    def bounds(self) -> dict[str, tuple[int, int | None]]:
        """The arguments of `filter_counts`."""
        return {
            "users": (self.min_user_events, self.max_user_events),
            "items": (self.min_item_events, self.max_item_events),
        }


@dataclass(frozen=True)
class Source:
    """Histories, what was noticed on the way to them, and the settings their authors used."""

    name: str
    histories: Histories
    notes: tuple[str, ...] = ()
    paper: PaperSettings | None = None
    """What the paper sets on this data set."""
    names: LogSettings = field(default_factory=LogSettings)
    """How the columns of the log are called, where that was said."""
    synthetic: bool = False
    """Whether it was drawn here, so that nobody's events are shown where it is shown."""


def open_data(
    data: str | Path,
    *,
    log: LogSettings | None = None,
    filters: FilterSettings | None = None,
    ties: Ties = "file",
) -> Source:
    """Open histories by name or path.

    Parameters
    ----------
    data : str or Path
        A folder that `marsrec prepare` wrote, a log file, "hawkes", or a name that `marsrec datasets` lists. A file or
        folder comes before a name.
    log, filters, ties : settings
        How to read, filter and order a log. Prepared folders are what they are; asking for a filter there is an error.
    """
    path = Path(data).expanduser()
    filters = filters or FilterSettings()
    if Histories.is_prepared(path):
        if filters != FilterSettings() or ties != "file" or (log or LogSettings()) != LogSettings():
            raise DataError(f"{path}: already prepared, so it cannot be read or filtered in another way. Give the log.")
        return Source(path.name, Histories.load(path))
    paper, synthetic = None, False
    if not path.is_file() and (log or LogSettings()) != LogSettings():
        raise DataError(f"{data}: not a log file, so the options for reading one do not apply. Leave them out.")
    if path.is_file():
        read, name = read_log(path, log or LogSettings()), path.name.split(".")[0]
    elif path.is_dir():
        raise DataError(f"{path}: a folder that `marsrec prepare` did not write. Give a log file or prepare one.")
    elif str(data) == EMBEDDED:
        read, name, synthetic = hawkes(HawkesSettings())[0], EMBEDDED, True
    elif path.suffix or len(path.parts) > 1:
        raise DataError(f"{path}: there is no such file.")
    else:
        read, name = load(str(data)), str(data)
        paper = CATALOG[name].paper
    if filters != FilterSettings():
        read = filter_counts(read, **filters.bounds)
    return Source(name, Histories.from_log(read, ties), read.notes, paper, (log or LogSettings()).names, synthetic)


def source_from(log: Any, how: LogSettings, ties: Ties) -> Source:
    """Histories of data in memory, of a log file, or of a prepared folder."""
    if isinstance(log, Histories | Log) and how != LogSettings():
        raise SettingsError(
            f"log_settings say how to read a file or dataframe; this is a {type(log).__name__} already."
        )
    if isinstance(log, Histories):
        if ties not in ("file", log.ties):
            raise SettingsError(f"ties={ties!r}: these histories are in order already. Give the log instead.")
        return Source("histories", log)
    if isinstance(log, str | Path) and Histories.is_prepared(Path(log).expanduser()):
        return open_data(log, log=how, ties=ties)
    read = log if isinstance(log, Log) else read_log(log, how)
    return Source(read.source, Histories.from_log(read, ties), read.notes, names=how.names)
