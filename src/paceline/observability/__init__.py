"""What operators observe: the status board, the Prometheus metrics fed from it, and log lines with fields."""

from paceline.observability.logging import configure_logging, log_event
from paceline.observability.metrics import Metrics
from paceline.observability.status_board import StatusBoard

__all__ = ["Metrics", "StatusBoard", "configure_logging", "log_event"]
