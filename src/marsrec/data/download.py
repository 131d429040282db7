"""Downloading a file, whole or not at all."""

import logging
import time
import urllib.request
import zipfile
from pathlib import Path

from marsrec.atomic import atomic_file
from marsrec.errors import DataError

log = logging.getLogger(__name__)

CHUNK = 1 << 20  # bytes between two looks at the clock
EVERY = 5  # seconds between two lines of progress
PATIENCE = 60  # seconds that a server may be silent


def download(url: str, path: Path) -> Path:
    """Download a file, whole or not at all."""
    request = urllib.request.Request(url, headers={"User-Agent": "marsrec"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response, atomic_file(path) as temporary:
        size = int(response.headers.get("Content-Length") or 0)
        whole = f" of {size / 1e6:,.1f}" if size else ""
        log.info(f"Downloading {url}")
        latest = time.monotonic()
        with temporary.open("wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                if time.monotonic() - latest > EVERY:
                    log.info(f"  {file.tell() / 1e6:,.1f}{whole} MB")
                    latest = time.monotonic()
        received = temporary.stat().st_size
        if size and received != size:
            raise DataError(f"{received:,} of {size:,} bytes arrived")
        if path.suffix == ".zip" and not zipfile.is_zipfile(temporary):
            raise DataError("what arrived is not a zip file")
    return path
