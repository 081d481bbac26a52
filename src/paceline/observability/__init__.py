"""What operators watch: metrics for Prometheus and log lines with fields. Nothing here knows requests or engines."""

from paceline.observability.logging import configure_logging, log_event
from paceline.observability.metrics import EngineMetrics, HttpMetrics, RequestTimes

__all__ = ["EngineMetrics", "HttpMetrics", "RequestTimes", "configure_logging", "log_event"]
