"""The id of a request: the one that its client gave it, or a new one. HTTP and gRPC have the same rule."""

from __future__ import annotations

import uuid

REQUEST_ID = "x-request-id"
"""The name of the header, or of the metadata, that has the id."""
_MAX_LENGTH = 200  # a longer id would fill the log


def request_id_from(given: str | None) -> str:
    """Returns the id that the client gave, or a new one if it gave none or one that is too long."""
    return given if given is not None and 0 < len(given) <= _MAX_LENGTH else uuid.uuid4().hex
