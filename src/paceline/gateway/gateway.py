"""`Gateway`: what every handler of the HTTP app needs, made once by `serve`."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from paceline.config import GatewayConfig
from paceline.gateway.engine_client import EngineClient
from paceline.gateway.served_model import ServedModel
from paceline.observability import HttpMetrics


@dataclass(frozen=True, slots=True)
class Gateway:
    """One app's parts. `registry` holds every metric that /metrics shows; `created_s` is the start in Unix time."""

    config: GatewayConfig
    model: ServedModel
    client: EngineClient
    registry: CollectorRegistry
    http_metrics: HttpMetrics
    created_s: int

    @property
    def is_ready(self) -> bool:
        """Whether a request would be answered without waiting for a start."""
        return self.client.is_ready and self.model.is_ready
