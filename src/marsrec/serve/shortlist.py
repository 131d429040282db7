"""Large catalogs: an approximate index names the items that may score best, and only these are scored, exactly."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from marsrec.errors import needs
from marsrec.evaluation.ranking import Seen, top_k
from marsrec.nn.model import SequenceModel

RECALL = 0.99
"""Share of the true ten best that the index must find, for the users it is tried on."""

MAX_SHORT = 100
"""More items than this are ranked exactly: the index is tuned for the ten best."""
_K = 10
_MOST_HIDDEN = 256
"""More items than this are not looked up in place of seen ones; whoever then gets too few is ranked exactly."""


@dataclass(frozen=True)
class Shortlist:
    """An inverted file over the item vectors: items in lists around centres, of which the nearest are searched.

    Its own scores are in half precision and only choose the items; what is answered is scored by the network.
    """

    network: SequenceModel
    index: Any
    recall: float
    """Share of the true ten best that it found for the users it was tried on."""
    most: int = MAX_SHORT
    """See `Ranker.most`."""

    @property
    def lists(self) -> int:
        """Lists that the items are in."""
        return int(self.index.nlist)

    @property
    def searched(self) -> int:
        """Lists that are searched for a user."""
        return int(self.index.nprobe)

    @classmethod
    @torch.no_grad()
    def build(cls, network: SequenceModel, users: Tensor) -> "Shortlist":
        """Put the items into lists, and search as many lists as the ten best items of these users (N, d) want."""
        with needs("ann", "an approximate index"):
            import faiss

        _, items, bias = network.scorer(users[:1], network.items.weight)
        vectors = items if bias is None else torch.cat([items, bias[:, None]], dim=1)
        points = vectors[1:].float().cpu().numpy()
        lists = max(1, min(int(4 * len(points) ** 0.5), len(points) // 39))  # faiss wants 39 points a list to train
        index: Any = faiss.index_factory(points.shape[1], f"IVF{lists},SQfp16", faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # a handful of items is no reason for a warning
        index.train(points[np.random.default_rng(0).permutation(len(points))[: 39 * lists]])
        index.add(points)
        k = min(_K, len(points))
        worst = top_k(network.score, users, k)[0][:, -1:]
        for searched in (2**power for power in range(3, 31)):  # all lists find all items
            index.nprobe = min(searched, lists)
            scores = _exact(network, users, _likely(network, index, users, k))
            # By score: an item that scores as much as the tenth is as good as the tenth.
            recall = float((scores >= worst - 1e-5 * worst.abs()).float().mean())
            if recall >= RECALL or index.nprobe == lists:
                break
        return cls(network, index, recall)

    @torch.no_grad()
    def top_k(self, users: Tensor, k: int, seen: Seen) -> tuple[Tensor, Tensor]:
        """The k best items, as `ranking.top_k` finds them, but for those that the index misses."""
        offsets, hidden = seen
        most = int((offsets[1:] - offsets[:-1]).max())
        likely = _likely(self.network, self.index, users, k + min(most, _MOST_HIDDEN))
        codes = likely.sort(dim=1).values  # equal scores go by code
        scores = _exact(self.network, users, codes)
        for row in range(len(users)):
            taken = torch.isin(codes[row], hidden[offsets[row] : offsets[row + 1]].to(codes.device))
            scores[row, taken] = -torch.inf
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        scores, codes = scores[:, :k], codes.gather(1, order)[:, :k]
        codes = codes.masked_fill(scores == -torch.inf, 0)
        for row in (scores[:, -1] == -torch.inf).nonzero().flatten().tolist():
            own = offsets[row : row + 2] - offsets[row], hidden[offsets[row] : offsets[row + 1]]
            scores[row : row + 1], codes[row : row + 1] = top_k(self.network.score, users[row : row + 1], k, seen=own)
        return scores, codes


def _likely(network: SequenceModel, index: Any, users: Tensor, k: int) -> Tensor:
    """(N, k) codes of the items that score best in the index; 0 where it found fewer."""
    import faiss

    queries, _, bias = network.scorer(users, network.items.weight[:1])
    queries = queries if bias is None else F.pad(queries, (0, 1), value=1.0)
    faiss.omp_set_num_threads(torch.get_num_threads())  # holds for the thread that calls
    _, found = index.search(queries.float().cpu().numpy(), k)
    return torch.from_numpy(found + 1).to(users.device)


def _exact(network: SequenceModel, users: Tensor, codes: Tensor) -> Tensor:
    """(N, k) scores of each user's own items (N, k); -inf for code 0."""
    vectors, items, bias = network.scorer(users, network.items.weight[codes])
    scores: Tensor = (items @ vectors[:, :, None]).squeeze(2)
    scores = scores if bias is None else scores + bias[codes]
    return scores.masked_fill(codes == 0, -torch.inf)
