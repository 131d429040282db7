"""marsrec recommends the next item from timestamped histories.

The names below are imported when they are first used, so that `import marsrec` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marsrec.nn.mars import MARS as MARS
    from marsrec.recommender import Recommender as Recommender
    from marsrec.training.settings import TrainingSettings as TrainingSettings

__version__ = "0.1.0"

_HOMES = {
    "MARS": "marsrec.nn.mars",
    "Recommender": "marsrec.recommender",
    "TrainingSettings": "marsrec.training.settings",
}

__all__ = ["MARS", "Recommender", "TrainingSettings", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'marsrec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
