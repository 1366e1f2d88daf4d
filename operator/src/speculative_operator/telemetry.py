"""What operators of the operator see: Prometheus metrics and the form of log lines."""

import contextlib
import logging
import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

WRITES: Final = ("create", "apply", "update", "patch-status", "patch", "delete")
"""Verbs that change something: an unchanged world sees none of them."""


_PREFIX: Final = "speculative_operator"


class Telemetry:
    """All metrics of one operator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.passes = self._counter("passes", "Completed passes.", "outcome")
        self.pass_seconds = Histogram(
            f"{_PREFIX}_pass_seconds",
            "Duration of a pass in seconds.",
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 30),
            registry=self.registry,
        )
        self.requests = self._counter(
            "api_requests",
            "Requests to the API server; status 0: no answer.",
            "verb",
            "kind",
            "status",
        )
        self._requests: dict[tuple[str, str, int], Counter] = {}
        """The same by its labels: to look one up takes longer than to count."""
        self.restarts = self._counter(
            "watch_restarts", "Watches begun anew, by kind and why.", "kind", "why"
        )
        self.unanswered = self._counter(
            "scrape_failures", "Pods that did not answer, by role.", "role"
        )
        self.notifications = self._counter(
            "notifications", "Notifications to one receiver: sent, failed or dropped.", "outcome"
        )
        self.leading = Gauge(
            f"{_PREFIX}_leading", "1 while this operator holds the Lease.", registry=self.registry
        )
        self.resources = Gauge(
            f"{_PREFIX}_resources",
            "SpeculativeDeployments in the shard of this operator.",
            registry=self.registry,
        )
        self.shard = Gauge(
            f"{_PREFIX}_shard",
            "1: the shard of the namespaces that this operator acts on, as in 1/3.",
            ("shard",),
            registry=self.registry,
        )
        self.shard_covered = Gauge(
            f"{_PREFIX}_shard_covered",
            "0 while some namespaces of a shard are acted on by nobody.",
            ("shard",),
            registry=self.registry,
        )
        self.crd_missing_fields = Gauge(
            f"{_PREFIX}_crd_missing_fields",
            "Fields that the cluster's CRD lacks: apply the newer CRD (the log has the command).",
            ("part",),
            registry=self.registry,
        )
        self.drifted = self._by_resource(
            "acceptance_drifted",
            "1 while stable was shown to accept less than in its first hours (rollout.drift).",
        )
        self.percent_of_baseline = self._by_resource(
            "acceptance_percent_of_baseline",
            "Accepted draft tokens per step over the last blocks, in percent of the first hours'.",
        )
        self.blocked = Gauge(
            f"{_PREFIX}_blocked",
            "1 while another installation acts on the same namespaces and this one refuses to.",
            registry=self.registry,
        )

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", documentation, labels, registry=self.registry)

    def _by_resource(self, name: str, documentation: str) -> Gauge:
        labels = ("namespace", "name")
        return Gauge(f"{_PREFIX}_{name}", documentation, labels, registry=self.registry)

    def drift(self, key: tuple[str, str], *, is_drifted: bool, percent: float | None) -> None:
        """What is known of one resource; without a figure the last one stays."""
        self.drifted.labels(*key).set(is_drifted)
        if percent is not None:
            self.percent_of_baseline.labels(*key).set(percent)

    def forget_drift(self, key: tuple[str, str] | None = None) -> None:
        """Nobody judges this resource any more; None: none of them, somebody else may."""
        for gauge in (self.drifted, self.percent_of_baseline):
            if key is None:
                gauge.clear()
            else:
                with contextlib.suppress(KeyError):
                    gauge.remove(*key)

    def request(self, verb: str, kind: str, status: int) -> None:
        """Counts one answered (or, with status 0, unanswered) request."""
        answered = verb, kind, status
        counter = self._requests.get(answered)
        if counter is None:
            counter = self._requests[answered] = self.requests.labels(verb, kind, str(status))
        counter.inc()

    def writes(self) -> float:
        """How many successful writes to the API server there were, leases and events aside."""
        return sum(
            sample.value
            for metric in self.requests.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
            and sample.labels["verb"] in WRITES
            and sample.labels["status"].startswith("2")
            and sample.labels["kind"] not in ("Lease", "Event")
        )

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


def log_to_stderr(level: str = "INFO") -> None:
    """One line per record, key=value, UTC."""
    handler = logging.StreamHandler()
    line = "time=%(asctime)s.%(msecs)03dZ level=%(levelname)s from=%(name)s %(message)s"
    formatter = logging.Formatter(line, datefmt="%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # kopf logs each watched event at DEBUG and its own start at INFO.
    logging.getLogger("kopf").setLevel(logging.WARNING)
