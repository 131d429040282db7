"""marsrec recommends the next item from timestamped histories.

Its rooms, in the order in which data walks through them. Each imports from those above it and from none below.

- `errors`, `settings`, `atomic`, `compute`, `provenance`, `reprs`: what all others stand on.
- `data`: a log becomes histories, splits and batches.
- `nn`: histories become user vectors.
- `models`, `paper`: the named models, as recipes of parts; what the paper sets on its data sets.
- `evaluation`: models become ranks, ranks become metrics.
- `training`: models are fitted, and the best on validation data is kept.
- `recommender`: the class people use, and the one way from events to answers.
- `testing`: what holds for every part, as checks that anybody can call.
- `lab`: grids of runs become results and reports.
- `serve`: answers over HTTP.
- `cli`: the command line, the only room that knows all others.

The names below are imported when they are first used, so that `import marsrec` costs nothing.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marsrec.data.batches import Batch as Batch
    from marsrec.data.filters import FilterSettings as FilterSettings
    from marsrec.data.histories import Histories as Histories
    from marsrec.data.log import Log as Log
    from marsrec.data.log import LogSettings as LogSettings
    from marsrec.data.log import read_log as read_log
    from marsrec.data.source import Source as Source
    from marsrec.data.source import open_data as open_data
    from marsrec.data.splits import Split as Split
    from marsrec.data.splits import SplitSettings as SplitSettings
    from marsrec.evaluation.compare import Comparison as Comparison
    from marsrec.evaluation.compare import Evaluable as Evaluable
    from marsrec.evaluation.compare import compare as compare
    from marsrec.evaluation.evaluate import Evaluation as Evaluation
    from marsrec.evaluation.evaluate import evaluate as evaluate
    from marsrec.lab.tuning import Tuned as Tuned
    from marsrec.lab.tuning import tune as tune
    from marsrec.nn.encoders.base import Encoder as Encoder
    from marsrec.nn.encoders.base import EncoderSettings as EncoderSettings
    from marsrec.nn.hawkes import Hawkes as Hawkes
    from marsrec.nn.mars import MARS as MARS
    from marsrec.nn.model import SequenceModel as SequenceModel
    from marsrec.nn.objectives.base import ObjectiveSettings as ObjectiveSettings
    from marsrec.nn.readouts.base import Contributions as Contributions
    from marsrec.nn.readouts.base import Readout as Readout
    from marsrec.nn.readouts.base import ReadoutOutput as ReadoutOutput
    from marsrec.nn.readouts.base import ReadoutSettings as ReadoutSettings
    from marsrec.nn.readouts.base import TimeScales as TimeScales
    from marsrec.nn.repeats import Repeats as Repeats
    from marsrec.nn.scorers import Scorer as Scorer
    from marsrec.nn.scorers import ScorerSettings as ScorerSettings
    from marsrec.nn.settings import ModelSettings as ModelSettings
    from marsrec.recommender import Explanation as Explanation
    from marsrec.recommender import Recommender as Recommender
    from marsrec.recommender import Session as Session
    from marsrec.training.settings import TrainingSettings as TrainingSettings

__version__ = "0.2.0"

# Threads of OpenMP wait for each other by turning in circles. Where other processes want the same cores that takes many
# times as long as the work itself, so they are to sleep soon. It has to be said before torch loads.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_HOMES = {
    name: module
    for module, names in {
        "marsrec.data.batches": ("Batch",),
        "marsrec.data.filters": ("FilterSettings",),
        "marsrec.data.histories": ("Histories",),
        "marsrec.data.log": ("Log", "LogSettings", "read_log"),
        "marsrec.data.source": ("Source", "open_data"),
        "marsrec.data.splits": ("Split", "SplitSettings"),
        "marsrec.evaluation.compare": ("Comparison", "Evaluable", "compare"),
        "marsrec.evaluation.evaluate": ("Evaluation", "evaluate"),
        "marsrec.lab.tuning": ("Tuned", "tune"),
        "marsrec.nn.encoders.base": ("Encoder", "EncoderSettings"),
        "marsrec.nn.hawkes": ("Hawkes",),
        "marsrec.nn.mars": ("MARS",),
        "marsrec.nn.model": ("SequenceModel",),
        "marsrec.nn.objectives.base": ("ObjectiveSettings",),
        "marsrec.nn.readouts.base": ("Contributions", "Readout", "ReadoutOutput", "ReadoutSettings", "TimeScales"),
        "marsrec.nn.repeats": ("Repeats",),
        "marsrec.nn.scorers": ("Scorer", "ScorerSettings"),
        "marsrec.nn.settings": ("ModelSettings",),
        "marsrec.recommender": ("Explanation", "Recommender", "Session"),
        "marsrec.training.settings": ("TrainingSettings",),
    }.items()
    for name in names
}

__all__ = [
    "MARS",
    "Batch",
    "Comparison",
    "Contributions",
    "Encoder",
    "EncoderSettings",
    "Evaluable",
    "Evaluation",
    "Explanation",
    "FilterSettings",
    "Hawkes",
    "Histories",
    "Log",
    "LogSettings",
    "ModelSettings",
    "ObjectiveSettings",
    "Readout",
    "ReadoutOutput",
    "ReadoutSettings",
    "Recommender",
    "Repeats",
    "Scorer",
    "ScorerSettings",
    "SequenceModel",
    "Session",
    "Source",
    "Split",
    "SplitSettings",
    "TimeScales",
    "TrainingSettings",
    "Tuned",
    "__version__",
    "compare",
    "evaluate",
    "open_data",
    "read_log",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'marsrec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
