"""GRU4Rec's encoder: a gated recurrent unit over embedded items (Hidasi et al., 2016; RecBole's layout).

Shape letters: B rows, L positions, d width of the model, H width of the hidden states.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from marsrec.data.batches import Batch
from marsrec.nn.arrays.base import Array, Arrays, FastEncoder, FastMemory
from marsrec.nn.encoders.base import Encoder, EncoderSettings, Memory
from marsrec.nn.kernels.dropout import Dropout
from marsrec.nn.readouts.base import ReadoutSettings


class GruSettings(EncoderSettings):
    """A recurrent network: each event updates a state of fixed size. There are no positions."""

    name: Literal["gru"] = "gru"
    hidden: int = Field(128, ge=1, le=65_536)
    """Width of the recurrent states."""
    layers: int = Field(1, ge=1, le=128)
    """Number of recurrent layers, each on the states of the one before."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout on embeddings."""
    project: bool = True
    """Whether a linear layer brings the states to the model's dim, as in GRU4Rec. Without it they are `hidden` wide, as
    NARM takes them."""

    def build(self, dim: int, length: int) -> "Gru":
        """Make the encoder, which is the same for any length."""
        return Gru(dim, self)

    def suited_to_readout(self, readout: ReadoutSettings) -> Mapping[str, Any]:
        """See `EncoderSettings.suited_to_readout`: states are as wide as the items where they become users."""
        return {"project": not readout.maps_states}


class Gru(Encoder):
    """Dropout on the items, then recurrent layers without biases, then perhaps a linear layer.

    Padding stands after all events of a row, and so no state of an event sees it.
    """

    causal = True
    recurrent = True

    def __init__(self, dim: int, settings: GruSettings) -> None:
        super().__init__(dim if settings.project else settings.hidden)
        self.dropout = Dropout(settings.dropout)
        self.gru = nn.GRU(dim, settings.hidden, settings.layers, bias=False, batch_first=True)
        self.out = nn.Linear(settings.hidden, dim) if settings.project else nn.Identity()
        for weight in self.gru.parameters():
            nn.init.xavier_uniform_(weight)

    def forward(self, embedded: Tensor, batch: Batch) -> Tensor:
        """(B, L, d) -> (B, L, width)."""
        hidden, _ = self.gru(self.dropout(embedded))  # (B, L, H)
        states: Tensor = self.out(hidden)
        return states

    def start(self, rows: int) -> Memory:
        """See `Encoder.start`: the hidden states of all layers, (B, layers, H)."""
        weight = next(self.gru.parameters())
        return (weight.new_zeros(rows, self.gru.num_layers, self.gru.hidden_size),)

    def go_on(self, memory: Memory, embedded: Tensor) -> tuple[Tensor, Memory]:
        """See `Encoder.resume`."""
        hidden, last = self.gru(embedded, memory[0].transpose(0, 1).contiguous())  # torch wants layers first
        return self.out(hidden), (last.transpose(0, 1),)

    def fast(self, arrays: Arrays) -> FastEncoder:
        """See `Encoder.fast`."""
        go_on, (start,) = self.fast_live(arrays), (arrays.constant(part[0]) for part in self.start(1))

        def states(x: Array, times: Array, last: bool) -> Array:
            return go_on((start,), x, last)[0]

        return states

    def fast_live(self, arrays: Arrays) -> FastMemory:
        """See `Encoder.fast_live`."""
        layers = [arrays.gru(*weights[:2]) for weights in self.gru.all_weights]
        out = arrays.of(self.out) if isinstance(self.out, nn.Linear) else None

        def go_on(memory: tuple[Array, ...], x: Array, last: bool) -> tuple[Array, tuple[Array, ...]]:
            (before,), ends = memory, []
            for place, layer in enumerate(layers):
                x = layer(x, arrays.rows(before, place, place + 1))
                ends.append(arrays.rows(x, -1))
            x = arrays.rows(x, -1) if last else x
            return (x if out is None else out(x)), (arrays.concat(ends, 0),)

        return go_on
