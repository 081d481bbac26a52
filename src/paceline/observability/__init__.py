"""What operators watch: the status board, metrics for Prometheus that follow it, and log lines with fields."""

from paceline.observability.logging import configure_logging, log_event
from paceline.observability.metrics import Metrics
from paceline.observability.status_board import StatusBoard

__all__ = ["Metrics", "StatusBoard", "configure_logging", "log_event"]
