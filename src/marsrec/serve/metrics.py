"""Counts and times for Prometheus."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

Family = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]
"""A metric: its name, what it means, its type, and its numbers by name and labels."""


class Metrics:
    """What a server measures of itself."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        by = ("method", "route")
        self._by_route: dict[tuple[str, str], Histogram] = {}
        self._by_status: dict[tuple[str, str, int], Counter] = {}
        self.requests = Counter("marsrec_requests", "Requests answered.", (*by, "status"), registry=registry)
        self.seconds = Histogram("marsrec_request_seconds", "Time to answer.", by, registry=registry, buckets=_SECONDS)
        self.under_way = Gauge("marsrec_requests_under_way", "Requests being answered.", registry=registry)
        self.batches = Histogram(
            "marsrec_batch_size",
            "Jobs worked on at once.",
            ("of",),
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64),
        )
        self.waiting = Gauge("marsrec_waiting", "Jobs that wait.", ("of",), registry=registry)
        self.events = Counter("marsrec_events", "Events posted.", ("new",), registry=registry)
        self.removed = Counter("marsrec_events_removed", "Stored events forgotten.", registry=registry)
        self.sessions = Gauge("marsrec_sessions", "Live sessions in memory.", ("model",), registry=registry)
        self.built = Gauge(
            "marsrec_sessions_built", "Sessions built from whole histories.", ("model",), registry=registry
        )
        self.reloads = Counter("marsrec_reloads", "Reloads of models.", ("outcome",), registry=registry)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered. What is counted where is looked up once."""
        if (counter := self._by_status.get((method, route, status))) is None:
            counter = self._by_status[method, route, status] = self.requests.labels(method, route, status)
        if (times := self._by_route.get((method, route))) is None:
            times = self._by_route[method, route] = self.seconds.labels(method, route)
        counter.inc()
        times.observe(seconds)

    def families(self) -> list[Family]:
        """All metrics as plain values, which can be sent to another process."""
        return [
            (
                family.name,
                family.documentation,
                family.type,
                [(s.name, dict(s.labels), s.value) for s in family.samples],
            )
            for family in self.registry.collect()
        ]


class _Sums(Collector):
    """Metrics of several processes, summed up."""

    def __init__(self, processes: Sequence[Sequence[Family]]) -> None:
        self.processes = processes

    def collect(self) -> Iterable[Metric]:
        """See `Collector.collect`."""
        families: dict[str, tuple[Metric, dict[tuple[str, tuple[tuple[str, str], ...]], float]]] = {}
        for name, meaning, kind, samples in (family for process in self.processes for family in process):
            _, sums = families.setdefault(name, (Metric(name, meaning, kind), {}))
            for sample, labels, value in samples:
                place = sample, tuple(labels.items())
                if sample.endswith("_created"):  # a moment: that of the first
                    sums[place] = min(sums.get(place, value), value)
                else:
                    sums[place] = sums.get(place, 0.0) + value
        for metric, sums in families.values():
            for (sample, pairs), value in sums.items():
                metric.add_sample(sample, dict(pairs), value)
            yield metric


def exposition(processes: Sequence[Sequence[Family]]) -> bytes:
    """Metrics of one or several processes, summed up, as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Sums(processes))
    return generate_latest(registry)
