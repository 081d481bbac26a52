"""`JsonResponse`: a response with JSON, encoded by msgspec: numbers that JSON does not have become null."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


class JsonResponse(Response):
    """A response whose content is encoded as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - anything that JSON can hold
        """Returns the content as JSON."""
        return msgspec.json.encode(content)
