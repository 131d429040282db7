"""Counts and times for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


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
