"""The next item at each position, and what the readout adds to it."""

from typing import Literal

from marsrec.data.batches import Batch
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import Losses, ObjectiveSettings, Softmax


class NextItemSettings(ObjectiveSettings):
    """The item that follows each event."""

    name: Literal["next item"] = "next item"

    def losses(self, model: SequenceModel, batch: Batch, softmax: Softmax | None = None) -> Losses:
        """Losses of a batch: windows for causal models, prefixes for others.

        A causal model reads out at every position in one pass; another reads out at the end of each row. On the same
        (past, next item) pairs both give the same cross-entropy.
        """
        output = model(batch, at_targets=model.causal)
        targets = batch.targets[batch.targets > 0]
        return {"cross_entropy": (softmax or Softmax())(model, output.users, targets), **output.losses}
