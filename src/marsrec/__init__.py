"""marsrec recommends the next item from timestamped histories.

Its rooms, in the order in which data walks through them. Each imports from those above it and from none below.

- `errors`, `settings`, `atomic`, `compute`, `provenance`: what all others stand on.
- `data`: a log becomes histories, splits and batches.
- `nn`: histories become user vectors.
- `models`, `paper`: the named models, as recipes of parts; what the paper sets on its data sets.
- `evaluation`: models become ranks, ranks become metrics.
- `training`: models are fitted, and the best on validation data is kept.
- `recommender`: the class people use, and the one way from events to answers.
- `lab`: grids of runs become results and reports.
- `serve`: answers over HTTP.
- `cli`: the command line, the only room that knows all others.

The names below are imported when they are first used, so that `import marsrec` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marsrec.evaluation.compare import compare as compare
    from marsrec.evaluation.evaluate import evaluate as evaluate
    from marsrec.nn.mars import MARS as MARS
    from marsrec.recommender import Recommender as Recommender
    from marsrec.training.settings import TrainingSettings as TrainingSettings

__version__ = "0.1.0"

_HOMES = {
    "MARS": "marsrec.nn.mars",
    "Recommender": "marsrec.recommender",
    "TrainingSettings": "marsrec.training.settings",
    "compare": "marsrec.evaluation.compare",
    "evaluate": "marsrec.evaluation.evaluate",
}

__all__ = ["MARS", "Recommender", "TrainingSettings", "__version__", "compare", "evaluate"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'marsrec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
