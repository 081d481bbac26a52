"""Prometheus metrics called `paceline_*`. They have vLLM's names if vLLM has the same metric, so dashboards carry over.

The metrics follow the events of a status board. Metrics of an engine have the labels `model_name` and `engine`. An
engine's counters restart from 0 when it restarts; the counters here only grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from paceline.core import DrafterStats, EngineStats
from paceline.observability.status_board import (
    EngineAdded,
    EngineDown,
    EngineReady,
    EngineRestarting,
    Event,
    HttpAnswered,
    PromptSubmitted,
    RequestEnded,
    StatsReported,
    StatusBoard,
    TokensReceived,
)

_LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_LABELS = ("model_name", "engine")
_NO_STATS = EngineStats()
_NO_DRAFTS = DrafterStats()

Metric = TypeVar("Metric", Counter, Gauge, Histogram)


class Metrics:
    """All metrics of one server, which /metrics shows."""

    def __init__(self, registry: CollectorRegistry, board: StatusBoard) -> None:
        self._http = HttpMetrics(registry)
        self._families = EngineFamilies(registry)
        self._engines: dict[str, EngineMetrics] = {}
        board.subscribe(self.observe)

    def observe(self, event: Event) -> None:
        """Updates the metrics with an event of the board."""
        match event:
            case HttpAnswered():
                self._http.observe(event)
            case EngineAdded():
                self._engines[event.engine] = EngineMetrics(self._families, event.model_name, event.engine)
            case _:
                self._engines[event.engine].observe(event)


class HttpMetrics:
    """The metrics of HTTP requests, by route and status."""

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

    def observe(self, event: HttpAnswered) -> None:
        """Counts one answered request."""
        self._requests.labels(event.method, event.route, str(event.status)).inc()
        self._seconds.labels(event.route).observe(event.duration_s)


class EngineFamilies:
    """The metric families of engines, without labels: `EngineMetrics` adds the labels of one engine."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.up = self._gauge("engine_up", "1 while an engine process is ready")
        self.epoch = self._gauge("engine_epoch", "Restarts of the engine before the process that is ready")
        self.running = self._gauge("num_requests_running", "Requests in the engine's batch")
        self.waiting = self._gauge("num_requests_waiting", "Requests that wait in the engine for a place in the batch")
        self.tokens_per_step = self._gauge("tokens_per_step", "Tokens committed per sequence and step since the start")
        self.latency_reduction = self._gauge(
            "avg_latency_reduction", "1 - decoding time / predicted time of plain decoding, since the start"
        )
        self.cache_usage = self._gauge("kv_cache_usage_perc", "Share of the KV blocks that are in use; 1 means all")
        self.restarts = self._counter("engine_restarts", "Engine processes that ended by themselves")
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of requests sent to the engine")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated")
        self.ended = self._counter("request_success", "Requests ended, by reason", "finished_reason")
        self.time_to_first_token = self._histogram(
            "time_to_first_token_seconds", "Time from a request's arrival to its first token"
        )
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", "Time per token after the first")
        self.request_latency = self._histogram(
            "e2e_request_latency_seconds", "Time from a request's arrival to its end"
        )
        self.of_stats = self._stats_counters()
        self.accepted_per_position = self._counter(
            "spec_decode_num_accepted_tokens_per_pos", "Drafted tokens accepted, by depth in the draft", "position"
        )
        self.sizes = self._counter(
            "spec_decode_num_drafts_per_size", "Steps of sequences, by the number of tokens in their draft", "size"
        )
        self.of_drafters = self._drafter_counters()
        self.drafter_positions = self._counter(
            "spec_decode_drafter_num_accepted_tokens_per_pos",
            "Tokens accepted, by drafter and depth",
            "drafter",
            "position",
        )

    def _stats_counters(self) -> dict[str, Counter]:
        """Returns the counters that follow `EngineStats`, by the name of their field."""
        return {
            "num_steps": self._counter("engine_steps", "Forward passes of the target"),
            "num_preemptions": self._counter("num_preemptions", "Sequences preempted because KV blocks ran out"),
            "num_prefix_query_tokens": self._counter(
                "prefix_cache_queries", "Prompt tokens looked up in the prefix cache"
            ),
            "num_prefix_hit_tokens": self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache"),
            "num_sequence_steps": self._counter("sequence_steps", "Steps of sequences that committed tokens"),
            "num_decoded_tokens": self._counter("sequence_step_tokens", "Tokens committed in steps of sequences"),
            "num_masks": self._counter("constraint_masks", "Rows of logits that a constraint restricted"),
            "mask_s": self._counter("constraint_mask_seconds", "Time to compute the masks of the target's rows"),
            "masked_step_s": self._counter("constraint_step_seconds", "Time of steps with a constraint"),
            "decoding_s": self._counter("spec_decode_seconds", "Time of steps that could draft"),
            "wasted_s": self._counter("spec_decode_wasted_seconds", "Time spent on drafts without an accepted token"),
            "lost_s": self._counter("spec_decode_lost_seconds", "Time by which drafters cost more than they saved"),
            "plain_s": self._counter("spec_decode_plain_seconds", "Predicted time of plain decoding"),
            "compared_s": self._counter(
                "spec_decode_compared_seconds", "Actual time of the steps for which plain decoding was predicted"
            ),
            "num_drafts": self._counter("spec_decode_num_drafts", "Drafts verified"),
            "num_draft_tokens": self._counter("spec_decode_num_draft_tokens", "Tokens drafted"),
            "num_accepted_tokens": self._counter("spec_decode_num_accepted_tokens", "Drafted tokens accepted"),
        }

    def _drafter_counters(self) -> dict[str, Counter]:
        """Returns the counters that follow `DrafterStats`, by the name of their field."""

        def counter(name: str, text: str) -> Counter:
            return self._counter(f"spec_decode_drafter_{name}", text, "drafter")

        return {
            "num_drafts": counter("num_drafts", "Drafts verified, by drafter"),
            "num_draft_tokens": counter("num_draft_tokens", "Tokens drafted, by drafter"),
            "num_accepted_tokens": counter("num_accepted_tokens", "Tokens accepted, by drafter"),
            "drafting_s": counter("seconds", "Time spent on proposing drafts, by drafter"),
        }

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"paceline_{name}", text, _LABELS, registry=self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"paceline_{name}", text, (*_LABELS, *labels), registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"paceline_{name}", text, _LABELS, buckets=_LATENCY_BUCKETS_S, registry=self._registry)


class EngineMetrics:
    """The metrics of one engine, as the gateway sees it."""

    def __init__(self, families: EngineFamilies, model_name: str, engine: str) -> None:
        self._labels = (model_name, engine)
        self._families = families
        self._latest = _NO_STATS
        self._up, self._epoch = self._own(families.up), self._own(families.epoch)
        self._running, self._waiting = self._own(families.running), self._own(families.waiting)
        self._tokens_per_step = self._own(families.tokens_per_step)
        self._latency_reduction = self._own(families.latency_reduction)
        self._cache_usage = self._own(families.cache_usage)
        self._restarts = self._own(families.restarts)
        self._prompt_tokens = self._own(families.prompt_tokens)
        self._generation_tokens = self._own(families.generation_tokens)
        self._time_to_first_token = self._own(families.time_to_first_token)
        self._inter_token_latency = self._own(families.inter_token_latency)
        self._request_latency = self._own(families.request_latency)
        self._of_stats = {name: self._own(family) for name, family in families.of_stats.items()}

    def observe(self, event: Event) -> None:
        """Updates the metrics with an event of this engine."""
        match event:
            case TokensReceived():
                self._observe_tokens(event)
            case StatsReported():
                self._observe_stats(event.stats)
            case PromptSubmitted():
                self._prompt_tokens.inc(event.num_tokens)
            case RequestEnded():
                self._families.ended.labels(*self._labels, event.reason).inc()
                self._request_latency.observe(event.duration_s)
            case EngineReady():
                self._up.set(1)
                self._epoch.set(event.epoch)
            case EngineDown():
                self._latest = _NO_STATS
                for gauge in (self._up, self._running, self._waiting, self._cache_usage):
                    gauge.set(0)
            case EngineRestarting():
                self._restarts.inc()

    def _own(self, family: Metric) -> Metric:
        return family.labels(*self._labels)

    def _observe_tokens(self, event: TokensReceived) -> None:
        self._generation_tokens.inc(event.num_tokens)
        if event.are_first:
            self._time_to_first_token.observe(event.wait_s)
            return
        for _ in range(event.num_tokens):
            self._inter_token_latency.observe(event.wait_s / event.num_tokens)

    def _observe_stats(self, stats: EngineStats) -> None:
        previous, self._latest = self._latest, stats
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        used = stats.num_blocks - stats.num_free_blocks
        self._cache_usage.set(used / stats.num_blocks if stats.num_blocks else 0.0)
        self._tokens_per_step.set(stats.tokens_per_step or 0.0)
        self._latency_reduction.set(stats.latency_reduction or 0.0)
        for name, counter in self._of_stats.items():
            counter.inc(getattr(stats, name) - getattr(previous, name))
        for position, grown in _growth(stats.num_accepted_per_position, previous.num_accepted_per_position):
            self._families.accepted_per_position.labels(*self._labels, str(position)).inc(grown)
        for size, grown in _growth(stats.num_drafts_per_size, previous.num_drafts_per_size):
            self._families.sizes.labels(*self._labels, str(size)).inc(grown)
        for name, now in stats.by_drafter.items():
            self._observe_drafter(name, now, previous.by_drafter.get(name, _NO_DRAFTS))

    def _observe_drafter(self, name: str, now: DrafterStats, before: DrafterStats) -> None:
        for field, family in self._families.of_drafters.items():
            family.labels(*self._labels, name).inc(getattr(now, field) - getattr(before, field))
        for position, grown in _growth(now.num_accepted_per_position, before.num_accepted_per_position):
            self._families.drafter_positions.labels(*self._labels, name, str(position)).inc(grown)


def _growth(counts: tuple[int, ...], previous: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Yields the index and the increase of each count."""
    for index, count in enumerate(counts):
        yield index, count - (previous[index] if index < len(previous) else 0)
