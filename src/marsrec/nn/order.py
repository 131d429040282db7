"""What an operator takes for granted of histories, checked where somebody hands them over."""

import torch
from torch import Tensor


def check_order(
    times: Tensor, now: Tensor | None = None, lengths: Tensor | None = None, *, every: bool = False, first: int = 0
) -> None:
    """Raise unless lengths fit, times never decrease within them, and no moment is before the latest event it sees.

    It looks at values, for which a GPU has to be waited for; a graph that is traced has none, and goes unchecked.

    Parameters
    ----------
    times : Tensor (B, L)
        Times of the events as integers.
    now : Tensor (B,), or (B, L - first) with `every`
        Moments of the readouts.
    lengths : Tensor (B,), optional
        Number of events of each row; all L if not given.
    every : bool
        Whether every position from `first` on is read out, or the latest event alone.
    first : int
        See `every`.

    Examples
    --------
    >>> check_order(torch.tensor([[1, 5, 5], [1, 5, 0]]), lengths=torch.tensor([3, 2]))
    >>> check_order(torch.tensor([[1, 5, 5], [1, 5, 0]]))
    Traceback (most recent call last):
        ...
    ValueError: times of row 1 go back from 5 to 0 at position 2. Sort events by time; tell padding by lengths.
    """
    traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if traced or times.is_meta or torch.compiler.is_compiling():
        return
    rows, longest = times.shape
    if lengths is not None:
        if lengths.shape != (rows,) or lengths.is_floating_point():
            raise ValueError(
                f"lengths is integers {(rows,)}, one per row; found {lengths.dtype} {tuple(lengths.shape)}"
            )
        if (wrong := (lengths < 1) | (lengths > longest)).any():
            row = int(wrong.int().argmax())
            raise ValueError(
                f"lengths are between 1 and the {longest} positions of times; found {int(lengths[row])} in row {row}. "
                "Leave out users without events, and cut or pad rows to what lengths says."
            )
    order = torch.arange(longest, device=times.device)
    inside = order < (lengths[:, None] if lengths is not None else longest)
    if (back := (times[:, 1:] < times[:, :-1]) & inside[..., 1:]).any():
        row, place = (int(found[0]) for found in back.nonzero(as_tuple=True))
        raise ValueError(
            f"times of row {row} go back from {int(times[row, place])} to {int(times[row, place + 1])} at position "
            f"{place + 1}. Sort events by time; tell padding by lengths."
        )
    if now is None or longest == 0:
        return
    if every:
        latest, now, inside = times[:, first:], now, inside[..., first:]
    else:
        last = lengths[:, None] - 1 if lengths is not None else order[-1:].expand(rows, 1)
        latest, now, inside = times.gather(1, last), now[:, None], inside[..., :1]
    if (early := (now < latest) & inside).any():
        row, place = (int(found[0]) for found in early.nonzero(as_tuple=True))
        raise ValueError(
            f"now is {int(now[row, place])} in row {row}, before the latest event that it sees, at "
            f"{int(latest[row, place])}. Ask for a moment at or after it, or leave out later events."
        )
