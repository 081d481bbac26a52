"""Writes log lines with fields to standard error, for people (`plain`) or for machines (`json`).

Modules use `logging.getLogger(__name__)` and `log_event`. Only the entry point of a process calls `configure_logging`.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import msgspec

LogFormat = Literal["plain", "json"]
FieldValue = str | int | float | bool | None
_FIELDS = "paceline_fields"


def log_event(logger: logging.Logger, event: str, *, level: int = logging.INFO, **fields: FieldValue) -> None:
    """Logs an event. `event` is a few fixed words; everything that varies goes into the fields."""
    logger.log(level, event, extra={_FIELDS: fields})


class PlainFormatter(logging.Formatter):
    """Formats a record for people: a line of time, level, event and `name=value` pairs, then the traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as text."""
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        pairs = [f"{name}={_plain(value)}" for name, value in _fields_of(record).items()]
        line = " ".join([time, record.levelname.lower(), record.getMessage(), *pairs])
        return _visible(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: an object with `time`, `level`, `logger`, `event` and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as a line."""
        entry: dict[str, FieldValue] = {
            **_fields_of(record),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


def configure_logging(log_format: LogFormat) -> None:
    """Sends the log records of this process to standard error in the given format.

    Of libraries such as the HTTP server only warnings and errors are logged.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name in ("uvicorn", "asyncio", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _fields_of(record: logging.LogRecord) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = getattr(record, _FIELDS, {})
    return fields


def _plain(value: FieldValue) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if text.isprintable() and text and " " not in text else repr(text)


def _visible(text: str) -> str:
    """Returns the text with control characters escaped, which a terminal could obey, except line breaks and tabs."""
    return "".join(one if one.isprintable() or one in "\n\t" else repr(one)[1:-1] for one in text)
