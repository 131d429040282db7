"""Item embedding, encoder, readout and scorer, put together."""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastRecall, FastTakeIn, FastUser
from marsrec.nn.by_length import by_length
from marsrec.nn.encoders.base import Encoder, Memory, picked
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import Readout, ReadoutOutput
from marsrec.nn.repeats import Added, Repeats
from marsrec.nn.scorers import Scorer

ModelMemory = tuple[Memory, Memory]
"""What a recurrent model remembers of histories: the encoder's part and the readout's."""


class SequenceModel(nn.Module):
    """history -> item embedding -> encoder -> states -> readout -> user vectors -> scorer -> item scores.

    Row 0 of the item embedding is padding: it is never trained, never a target and never ranked.
    """

    def __init__(
        self,
        n_items: int,
        dim: int,
        encoder: Encoder,
        readout: Readout,
        scorer: Scorer,
        *,
        item_std: float = 0.02,
        item_dropout: float = 0.0,
        repeats: Repeats | None = None,
    ) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items + 1, dim, padding_idx=0)
        nn.init.normal_(self.items.weight[1:], std=item_std)
        self.item_dropout = Dropout(item_dropout)
        self.encoder = encoder
        self.readout = readout
        self.scorer = scorer
        self.repeats = repeats

    @property
    def causal(self) -> bool:
        """Whether one pass gives the states of all prefixes."""
        return self.encoder.causal

    @property
    def sees_times(self) -> bool:
        """Whether the times of the events decide what is recommended; else their order alone."""
        return self.encoder.sees_times or self.readout.sees_times

    @property
    def sees_request_time(self) -> bool:
        """Whether the moment of the request decides what is recommended."""
        return self.readout.sees_request_time

    @property
    def splits(self) -> bool:
        """Whether scores split into what each past event adds to them."""
        return self.readout.splits and self.scorer.linear

    def forward(self, batch: Batch, at_targets: bool = False) -> ReadoutOutput:
        """User vectors (B, d) at the latest events, or (N, d) at the targets, which takes a causal encoder."""
        if self.readout.state_alone:
            return self.readout.users(self._at_targets(batch) if at_targets else self._latest(batch))
        embedded, states = self.encode(batch)
        output: ReadoutOutput = self.readout(states, embedded, batch, at_targets)
        return output

    def embed(self, items: Tensor) -> Tensor:
        """Codes of items (...) -> their embeddings (..., d), with dropout in training."""
        embedded: Tensor = self.item_dropout(self.items(items))
        return embedded

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embedded items (B, L, d) and states (B, L, width)."""
        embedded = self.embed(batch.items)
        if not self._in_parts:
            return embedded, self.encoder(embedded, batch)
        states = self._by_length(self.encoder, picked(embedded, batch.inside), batch)
        return embedded, F.pad(states, (0, 0, 0, embedded.shape[1] - states.shape[1]))

    def _at_targets(self, batch: Batch) -> Tensor:
        """States (N, width) at the targets."""
        return self.encoder.at(self.embed(batch.items), batch, batch.targets > 0)

    def _latest(self, batch: Batch) -> Tensor:
        """States (B, width) at the latest events."""
        if not self._in_parts:
            return self.encoder.latest(self.embed(batch.items), batch)
        events = self.embed(batch.items[batch.inside])
        return self._by_length(self.encoder.latest, events, batch)

    def _by_length(self, encode: Callable[[Tensor, Batch], Tensor], events: Tensor, batch: Batch) -> Tensor:
        alone = replace(batch, twins=None)
        return by_length(lambda part, rows: encode(part, alone[rows]), events, batch.lengths, self.encoder.padded_to)

    @property
    def _in_parts(self) -> bool:
        """Whether rows are encoded by length: where each is trained on one target, which makes for many of them."""
        return not self.causal and (self.training or self.encoder.padded_to > 0)

    def fast(self, arrays: Arrays) -> FastUser | None:
        """The same for one history, in the operations of `marsrec.nn.arrays`; None where a part has no such form."""
        encode, read = self.encoder.fast(arrays), self.readout.fast(arrays)
        if encode is None or read is None:
            return None
        items, alone = arrays.constant(self.items.weight), self.readout.state_alone

        def users(codes: Array, times: Array, now: Array) -> Array:
            embedded = arrays.take(items, codes)
            return read(encode(embedded, times, alone), embedded, times, now)

        return users

    # Live: a memory of fixed size instead of the history.

    @property
    def recurrent(self) -> bool:
        """Whether `start`, `resume` and `recall` work: an event costs the same however many came before."""
        return self.encoder.recurrent and self.readout.streams and self.repeats is None

    def start(self, rows: int) -> ModelMemory:
        """The memory of histories without events."""
        table = self.items.weight
        return self.encoder.start(rows), self.readout.start(table.new_zeros(rows, table.shape[1]))

    @torch.no_grad()
    def resume(self, memory: ModelMemory, items: Tensor, times: Tensor) -> ModelMemory:
        """Take in (B, L) events after those remembered."""
        embedded = self.items(items)
        states, encoded = self.encoder.resume(memory[0], embedded)
        return encoded, self.readout.remember(memory[1], states, embedded, times)

    @torch.no_grad()
    def recall(self, memory: ModelMemory, now: Tensor) -> Tensor:
        """User vectors (B, d) for requests at the moments `now` (B,), not before the latest events."""
        return self.readout.recall(memory[1], now)

    def fast_live(self, arrays: Arrays) -> tuple[FastTakeIn, FastRecall] | None:
        """`resume` and `recall` for one history, without the axis of rows; None where torch has to do it."""
        if not self.recurrent:
            return None
        encode, read = self.encoder.fast_live(arrays), self.readout.fast_live(arrays)
        if encode is None or read is None:
            return None
        items, (remember, recall) = arrays.constant(self.items.weight), read

        def take_in(memory: ModelMemory, codes: Array, times: Array) -> ModelMemory:
            embedded = arrays.take(items, codes)
            states, encoded = encode(memory[0], embedded, False)
            return encoded, remember(memory[1], states, embedded, times)

        return take_in, recall

    def score(self, users: Tensor) -> Tensor:
        """(N, d) user vectors -> (N, items + 1) scores; column 0 is padding and means nothing."""
        users, items, bias = self.scorer(users, self.items.weight)
        scores: Tensor = users @ items.T
        return scores if bias is None else scores + bias

    @torch.no_grad()
    def own_scores(self, batch: Batch) -> Added | None:
        """What comes on top of the scores of items that users had; None for models without `repeats`."""
        if self.repeats is None:
            return None
        added: Added = self.repeats(batch, self.now(batch))
        return added

    def now(self, batch: Batch) -> Tensor:
        """(B,) from when ages are measured: the latest event or, on the request clock, the moment of the request."""
        clock = batch.target_times if self.sees_request_time else batch.times
        return clock.gather(1, batch.last[:, None])[:, 0]

    def parameter_count(self) -> int:
        """Number of trainable parameters, the item embedding with its padding row included."""
        return sum(parameter.numel() for parameter in self.parameters())
