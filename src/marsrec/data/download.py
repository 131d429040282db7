"""Downloading a file, whole or not at all."""

import urllib.request
import zipfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from marsrec.atomic import atomic_file
from marsrec.errors import DataError

CHUNK = 1 << 20  # bytes between two looks at the progress bar
PATIENCE = 60  # seconds that a server may be silent


def download(url: str, path: Path) -> Path:
    """Download a file, whole or not at all."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    request = urllib.request.Request(url, headers={"User-Agent": "marsrec"})
    with (
        urllib.request.urlopen(request, timeout=PATIENCE) as response,
        atomic_file(path) as temporary,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        size = int(response.headers.get("Content-Length") or 0)
        task = progress.add_task(path.name, total=size or None)
        with temporary.open("wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                progress.advance(task, len(chunk))
        received = temporary.stat().st_size
        if size and received != size:
            raise DataError(f"{received:,} of {size:,} bytes arrived")
        if path.suffix == ".zip" and not zipfile.is_zipfile(temporary):
            raise DataError("what arrived is not a zip file")
    return path
