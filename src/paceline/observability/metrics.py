"""Prometheus metrics under `paceline_*`, with vLLM's words where it has them, so that dashboards carry over easily.

Every metric lives in the registry that it is given. An engine's counters restart from 0 with it; here they only grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paceline.core import DrafterStats, EngineStats

_LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_NO_STATS = EngineStats()
_NO_DRAFTS = DrafterStats()


@dataclass(slots=True)
class RequestTimes:
    """When a request arrived and got its first and latest token, in seconds of one monotonic clock."""

    arrival_s: float
    first_token_s: float | None = None
    last_token_s: float | None = None


class HttpMetrics:
    """Requests by route and status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "paceline_http_requests", "HTTP requests answered", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "paceline_http_request_duration_seconds",
            "Time from a request's headers to the end of its response",
            ("route",),
            buckets=_LATENCY_BUCKETS_S,
            registry=registry,
        )

    def observe(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Counts one answered request; `method` and `route` (a path's pattern) are never a client's own text."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)


class DrafterMetrics:
    """What each drafter did, and how long drafts were."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self._model_name = model_name

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"paceline_spec_decode_{name}", text, ("model_name", *labels), registry=registry)

        self._counters = {
            "num_drafts": counter("drafter_num_drafts", "Drafts verified, by drafter", "drafter"),
            "num_draft_tokens": counter("drafter_num_draft_tokens", "Tokens drafted, by drafter", "drafter"),
            "num_accepted_tokens": counter("drafter_num_accepted_tokens", "Tokens accepted, by drafter", "drafter"),
            "drafting_s": counter("drafter_seconds", "Time to propose, by drafter", "drafter"),
        }
        self._positions = counter(
            "drafter_num_accepted_tokens_per_pos", "Tokens accepted, by drafter and depth", "drafter", "position"
        )
        self._sizes = counter("num_drafts_per_size", "Sequences' steps by the size of their draft", "size")

    def observe(self, stats: EngineStats, previous: EngineStats) -> None:
        """Adds what is new since the previous snapshot."""
        for size, grown in _growth(stats.num_drafts_per_size, previous.num_drafts_per_size):
            self._sizes.labels(self._model_name, str(size)).inc(grown)
        for name, now in stats.by_drafter.items():
            before = previous.by_drafter.get(name, _NO_DRAFTS)
            for field, metric in self._counters.items():
                metric.labels(self._model_name, name).inc(getattr(now, field) - getattr(before, field))
            for position, grown in _growth(now.num_accepted_per_position, before.num_accepted_per_position):
                self._positions.labels(self._model_name, name, str(position)).inc(grown)


def _growth(counts: tuple[int, ...], previous: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Index and increase of each count."""
    for index, count in enumerate(counts):
        yield index, count - (previous[index] if index < len(previous) else 0)


class EngineMetrics:
    """What one served model's engine does, as the gateway sees it."""

    def __init__(self, registry: CollectorRegistry, model_name: str) -> None:
        self._registry = registry
        self._model_name = model_name
        self._latest = _NO_STATS
        self._create_gauges()
        self._create_counters()
        self._create_request_metrics()
        self._drafters = DrafterMetrics(registry, model_name)

    def observe_stats(self, stats: EngineStats) -> None:
        """Takes over a snapshot of the running engine."""
        previous, self._latest = self._latest, stats
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        used = stats.num_blocks - stats.num_free_blocks
        self._cache_usage.set(used / stats.num_blocks if stats.num_blocks else 0.0)
        self._tokens_per_step.set(stats.tokens_per_step or 0.0)
        self._latency_reduction.set(stats.latency_reduction or 0.0)
        for name, counter in self._counters.items():
            counter.inc(getattr(stats, name) - getattr(previous, name))
        self._observe_positions(stats.num_accepted_per_position, previous.num_accepted_per_position)
        self._drafters.observe(stats, previous)

    def observe_ready(self, epoch: int) -> None:
        """The engine of this epoch has loaded its models."""
        self._up.set(1)
        self._epoch.set(epoch)

    def observe_down(self) -> None:
        """The engine ended, or is not ready yet; its counters will restart from 0."""
        self._latest = _NO_STATS
        for gauge in (self._up, self._running, self._waiting, self._cache_usage):
            gauge.set(0)

    def observe_restart(self) -> None:
        """An engine that had been ready ended by itself."""
        self._restarts.inc()

    def observe_prompt(self, num_tokens: int) -> None:
        """A prompt was handed to the engine."""
        self._prompt_tokens.inc(num_tokens)

    def observe_tokens(self, times: RequestTimes, num_tokens: int, now_s: float) -> None:
        """Output tokens of a request arrived; writes `times`."""
        self._generation_tokens.inc(num_tokens)
        if times.first_token_s is None:
            self._time_to_first_token.observe(now_s - times.arrival_s)
            times.first_token_s = now_s
        elif times.last_token_s is not None:
            for _ in range(num_tokens):
                self._inter_token_latency.observe((now_s - times.last_token_s) / num_tokens)
        times.last_token_s = now_s

    def observe_end(self, times: RequestTimes, finished_reason: str, now_s: float) -> None:
        """A request ended: `stop`, `length`, `abort` (its client left) or `error`."""
        self._ended.labels(self._model_name, finished_reason).inc()
        self._request_latency.observe(now_s - times.arrival_s)

    def _create_gauges(self) -> None:
        self._up = self._gauge("engine_up", "1 while an engine process is ready")
        self._epoch = self._gauge("engine_epoch", "Restarts of the engine process that is ready")
        self._running = self._gauge("num_requests_running", "Requests in the engine's batch")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait in the engine for a place in the batch")
        self._tokens_per_step = self._gauge("tokens_per_step", "Tokens committed per sequence and step since the start")
        self._latency_reduction = self._gauge(
            "avg_latency_reduction", "1 - decoding time / time of plain decoding as predicted, since the start"
        )
        self._cache_usage = self._gauge("kv_cache_usage_perc", "Part of the KV blocks in use, 1 is all")

    def _create_counters(self) -> None:
        self._restarts = self._counter("engine_restarts", "Engine processes that ended by themselves")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of requests handed to the engine")
        self._generation_tokens = self._counter("generation_tokens", "Tokens generated")
        self._counters = {
            "num_steps": self._counter("engine_steps", "Forward passes of the target"),
            "num_preemptions": self._counter("num_preemptions", "Sequences set back for lack of KV blocks"),
            "num_prefix_query_tokens": self._counter("prefix_cache_queries", "Prompt tokens looked up in the cache"),
            "num_prefix_hit_tokens": self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache"),
            "num_sequence_steps": self._counter("sequence_steps", "Sequences' steps that committed tokens"),
            "num_decoded_tokens": self._counter("sequence_step_tokens", "Tokens that sequences' steps committed"),
            "decoding_s": self._counter("spec_decode_seconds", "Time of steps that could draft"),
            "wasted_s": self._counter("spec_decode_wasted_seconds", "Time for drafts without any accepted token"),
            "lost_s": self._counter("spec_decode_lost_seconds", "Time that drafters cost beyond what they saved"),
            "plain_s": self._counter("spec_decode_plain_seconds", "Time plain decoding would have taken, predicted"),
            "compared_s": self._counter("spec_decode_compared_seconds", "Time that was taken instead of it"),
            "num_drafts": self._counter("spec_decode_num_drafts", "Drafts verified"),
            "num_draft_tokens": self._counter("spec_decode_num_draft_tokens", "Tokens drafted"),
            "num_accepted_tokens": self._counter("spec_decode_num_accepted_tokens", "Drafted tokens accepted"),
        }

    def _create_request_metrics(self) -> None:
        self._accepted_per_position = Counter(
            "paceline_spec_decode_num_accepted_tokens_per_pos",
            "Drafted tokens accepted, by depth in the draft",
            ("model_name", "position"),
            registry=self._registry,
        )
        self._ended = Counter(
            "paceline_request_success",
            "Requests ended, by reason",
            ("model_name", "finished_reason"),
            registry=self._registry,
        )
        self._time_to_first_token = self._histogram("time_to_first_token_seconds", "Arrival to first token")
        self._inter_token_latency = self._histogram("inter_token_latency_seconds", "Time per token after the first")
        self._request_latency = self._histogram("e2e_request_latency_seconds", "Arrival to end")

    def _observe_positions(self, counts: tuple[int, ...], previous: tuple[int, ...]) -> None:
        for position, grown in _growth(counts, previous):
            self._accepted_per_position.labels(self._model_name, str(position)).inc(grown)

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(f"paceline_{name}", text, ("model_name",), registry=self._registry)
        return gauge.labels(self._model_name)

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"paceline_{name}", text, ("model_name",), registry=self._registry)
        return counter.labels(self._model_name)

    def _histogram(self, name: str, text: str) -> Histogram:
        histogram = Histogram(
            f"paceline_{name}", text, ("model_name",), buckets=_LATENCY_BUCKETS_S, registry=self._registry
        )
        return histogram.labels(self._model_name)
