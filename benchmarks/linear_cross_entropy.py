"""Loss and gradients over a whole catalog: time and memory beside torch's cross-entropy and the bare products."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import medians, peak_bytes, show
from marsrec.nn.kernels.linear_cross_entropy import linear_cross_entropy

POSITIONS, WIDTH, ITEMS = 2_048, 64, 12_101  # one training step on beauty
CHUNK_ROWS = 128


def three_products(users: Tensor, items: Tensor, chunk_rows: int) -> None:
    """The logits, the users' and the items' gradient with no softmax between, in buffers that are reused."""
    logits = torch.empty(chunk_rows, len(items))
    grad_users, grad_items = torch.empty_like(users), torch.zeros_like(items)
    for start in range(0, len(users), chunk_rows):
        rows = slice(start, start + chunk_rows)
        torch.mm(users[rows], items.T, out=logits)
        torch.mm(logits, items, out=grad_users[rows])
        grad_items.addmm_(logits.T, users[rows])


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    users = torch.randn(POSITIONS, WIDTH, generator=generator).requires_grad_()
    items = (0.1 * torch.randn(ITEMS, WIDTH, generator=generator)).requires_grad_()
    targets = torch.randint(ITEMS, (POSITIONS,), generator=generator)

    def step(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            loss().backward()  # type: ignore[no-untyped-call]
            users.grad = items.grad = None  # leave nothing behind that would be freed in the next run

        return run

    ours, torchs, whole, chunked = (
        "linear_cross_entropy",
        "F.cross_entropy(users @ items.T)",
        "its three products alone",
        f"the same, {CHUNK_ROWS} rows at a time",
    )
    contestants: dict[str, Callable[[], object]] = {
        torchs: step(lambda: F.cross_entropy(users @ items.T, targets)),
        ours: step(lambda: linear_cross_entropy(users, items, targets, chunk_rows=CHUNK_ROWS)),
        whole: lambda: three_products(users.detach(), items.detach(), POSITIONS),
        chunked: lambda: three_products(users.detach(), items.detach(), CHUNK_ROWS),
    }
    seconds = medians(contestants)
    peaks = {name: peak_bytes(contestants[name]) for name in (torchs, ours)}

    rows = []
    for name, value in seconds.items():
        peak = f"{peaks[name] / 1e6:.1f}" if name in peaks else ""
        rows.append([name, f"{value * 1e3:.1f}", f"{value / seconds[ours]:.2f}×", peak])
    show(
        f"Loss and gradients, {POSITIONS:,} × {WIDTH} × {ITEMS:,} float32, {torch.get_num_threads()} threads",
        ["", "median ms", "against ours", "peak MB"],
        rows,
        f"{seconds[torchs] / seconds[ours]:.1f}× faster than torch's (wanted: 2), "
        f"{peaks[torchs] / peaks[ours]:.0f}× less memory (wanted: 10), "
        f"{seconds[ours] / seconds[whole]:.2f}× the time of its products (wanted: 1.6), "
        f"{seconds[ours] / seconds[chunked]:.2f}× in chunks",
    )


if __name__ == "__main__":
    main()
