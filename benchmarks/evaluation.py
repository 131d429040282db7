"""Full ranking: users per second and memory, whatever the catalog."""

import time

import torch

from benchmarks.measure import peak_bytes, show, split_like
from marsrec.data.splits import Split
from marsrec.evaluation.evaluate import evaluate, user_vectors
from marsrec.evaluation.ranking import target_ranks
from marsrec.models import model_settings

USERS = 5_000


def whole(split: Split, name: str, length: int) -> list[str]:
    settings = model_settings("mars-t", 165.5 if length > 50 else 8.9, options={"length": length})
    model = settings.build(split.histories.n_items).eval()
    evaluate(model, split, length)  # compiles the ranking kernel
    start = time.perf_counter()
    evaluate(model, split, length)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    user_vectors(model, split.histories, split.test, length)
    encoding = time.perf_counter() - start
    peak = peak_bytes(lambda: evaluate(model, split, length)) / 1e6
    count = len(split.test)
    items = split.histories.n_items
    return [
        name,
        f"{items:,}",
        f"{count:,}",
        f"{count / seconds:,.0f}",
        f"{100 * encoding / seconds:.0f} %",
        f"{peak:.0f}",
    ]


def ranking(items: int) -> list[str]:
    torch.manual_seed(0)
    table, users = torch.randn(items + 1, 64), torch.randn(USERS if items < 10**6 else 200, 64)
    targets = torch.randint(1, items + 1, (len(users),))

    def run() -> None:
        target_ranks(lambda rows: rows @ table.T, users, targets)

    run()
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return [
        f"{items:,}",
        f"{len(users) / seconds:,.0f}",
        f"{peak_bytes(run) / 1e6:.0f}",
        f"{4 * len(users) * items / 1e6:,.0f}",
    ]


def main() -> None:
    show(
        "Evaluation of mars-t on the test targets, all items ranked",
        ["data", "items", "users", "users/s", "of which encoding", "peak MB"],
        [whole(*split_like("beauty"), 50), whole(*split_like("ml-1m"), 200)],
    )
    show(
        "Ranking alone, by size of the catalog",
        ["items", "users/s", "peak MB", "all scores at once MB"],
        [ranking(items) for items in (10_000, 100_000, 1_000_000)],
    )


if __name__ == "__main__":
    main()
