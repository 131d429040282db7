"""The Lightning module: batches of an epoch, a step, and validation by full ranking."""

import math

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from marsrec.data.batches import Batch, Batches, contexts, prefixes, same_target, windows
from marsrec.data.splits import Split
from marsrec.evaluation.evaluate import POSITIONS
from marsrec.evaluation.measures import figures, measures
from marsrec.evaluation.ranking import target_ranks
from marsrec.nn.kernels.linear_cross_entropy import NegativeSampler
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import Softmax
from marsrec.nn.settings import ModelSettings
from marsrec.training.settings import TrainingSettings


def training_batches(
    split: Split, length: int, causal: bool, settings: TrainingSettings, epoch: int, *, twins: bool = False
) -> Batches:
    """Batches of one epoch. They depend on nothing but the data, the settings and the number of the epoch."""
    generator = np.random.default_rng([settings.seed, epoch])
    if causal:
        rows = windows(split, length, max(1, round(length * (1 - settings.overlap))), generator)
        return Batches(split.histories, rows, settings.targets_per_batch, generator=generator, pool=settings.pool)
    rows = prefixes(split, length)
    others = same_target(split.histories, rows, generator) if twins else None
    if settings.prefix_share < 1:
        drawn = generator.permutation(len(rows))[: max(1, round(settings.prefix_share * len(rows)))]
        rows, others = rows[drawn], None if others is None else others[drawn]
    # A batch of prefixes of one length would teach that length alone, and the model encodes them by length in any case.
    return Batches(split.histories, rows, settings.targets_per_batch, generator=generator, pool=1, twins=others)


class TrainingModule(L.LightningModule):
    """A sequence model in training."""

    def __init__(self, network: SequenceModel, model: ModelSettings, split: Split, settings: TrainingSettings) -> None:
        super().__init__()
        self.model, self.split, self.settings = network, split, settings
        self.length, self.objective = model.length, model.objective
        self.softmax = Softmax()
        self.sums: dict[
            str, Tensor
        ] = {}  # losses of the epoch so far; Lightning's own way costs a fifth of a small step
        self.targets = 0
        if settings.sampled_negatives:
            # The power between uniform and popular draws is word2vec's; an item never seen in training is drawn too.
            weights = torch.from_numpy(split.item_counts[1:]).clamp(min=1) ** 0.75
            self.softmax = Softmax(NegativeSampler(weights), settings.sampled_negatives)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches of the current epoch; the trainer asks again at each."""
        twins = self.objective.needs_twins
        epoch = self.current_epoch
        return _loader(training_batches(self.split, self.length, self.model.causal, self.settings, epoch, twins=twins))

    def val_dataloader(self) -> DataLoader[Batch]:
        """Histories before the validation targets."""
        rows = contexts(self.split.histories, self.split.valid, self.length)
        return _loader(Batches(self.split.histories, rows, POSITIONS, count="positions"))

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Batches are dataclasses of our own."""
        return batch.to(device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam without weight decay."""
        return torch.optim.Adam(self.parameters(), lr=self.settings.learning_rate, fused=True)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the learning rate. It depends on nothing but the moment, so that a resumed run goes on with it."""
        if self.settings.schedule == "constant" and not self.settings.warm_up:
            return
        epoch = self.current_epoch + (batch_idx + 0.5) / self.trainer.num_training_batches
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = learning_rate(self.settings, epoch)

    def on_train_epoch_start(self) -> None:
        """Dropout's randomness belongs to the epoch, so that a resumed run draws what an undisturbed one draws."""
        sequence = np.random.SeedSequence([self.settings.seed, self.current_epoch, self.global_rank])
        torch.manual_seed(int(sequence.generate_state(1)[0]))
        self.sums, self.targets = {}, 0

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The loss of a batch; its parts are summed up one by one."""
        losses = self.objective.losses(self.model, batch, self.softmax)
        loss = torch.stack(list(losses.values())).sum()
        count = int((batch.targets > 0).sum())
        for name, value in {"loss": loss, **losses}.items():
            self.sums[name] = value.detach() * count + self.sums.get(name, 0.0)
        self.targets += count
        return loss

    def on_train_epoch_end(self) -> None:
        """Log the mean of each loss over the epoch's targets."""
        self.log_dict({f"train/{name}": total / self.targets for name, total in self.sums.items()})

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Rank the validation targets among all items."""
        users = self.model(batch).users
        targets = batch.targets.gather(1, batch.last[:, None])[:, 0]
        ranks = target_ranks(self.model.score, users, targets)
        values = {f"valid/{name}": value for name, value in figures(measures(ks=(10,)), ranks.numpy()).items()}
        self.log_dict(values, on_step=False, on_epoch=True, batch_size=len(ranks), sync_dist=True)


def learning_rate(settings: TrainingSettings, epoch: float) -> float:
    """The learning rate after so many epochs.

    Examples
    --------
    >>> settings = TrainingSettings(epochs=10, learning_rate=0.1, schedule="cosine", warm_up=2)
    >>> [round(learning_rate(settings, epoch), 3) for epoch in (1, 2, 6, 10)]
    [0.05, 0.1, 0.05, 0.0]
    """
    if epoch < settings.warm_up:
        return settings.learning_rate * epoch / settings.warm_up
    if settings.schedule == "constant":
        return settings.learning_rate
    share = (epoch - settings.warm_up) / max(settings.epochs - settings.warm_up, 1e-9)
    return settings.learning_rate * (1 + math.cos(math.pi * min(share, 1.0))) / 2


def _loader(batches: Batches) -> DataLoader[Batch]:
    """Batches are built in the training process: it takes less time than handing them over from a worker.

    The loader draws a number each time it is opened. It has a generator of its own, so that dropout does not depend on
    how often that was.
    """
    return DataLoader(batches, batch_size=None, shuffle=False, generator=torch.Generator())
