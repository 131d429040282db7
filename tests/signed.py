"""Checksums as one who means harm would write them: they fit whatever the folder holds."""

import json
from pathlib import Path
from typing import Any

from marsrec.recommender.persistence import CONFIG, _digest


def sign(folder: Path) -> Path:
    """Make the checksums those of the files as they are, where the config can be read."""
    try:
        config: Any = json.loads((folder / CONFIG).read_text())
        listed = list(config["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return folder
    config["files"] = {name: _digest(folder / name) for name in listed if (folder / name).is_file()}
    (folder / CONFIG).write_text(json.dumps(config))
    return folder
