"""`ResponseStore`: responses that clients can fetch and continue, apart by tenant and bounded in size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from paceline.gateway.errors import UnknownResponseError
from paceline.gateway.openai.responses.items import AnyItem

MAX_SIZE_BYTES = 64 * 2**20  # some thousand conversations, and little beside a model


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response object, and all items of its conversation, of which the last `num_output` are its output."""

    response: dict[str, Any]
    items: tuple[AnyItem, ...]
    num_output: int

    @property
    def input_items(self) -> Sequence[AnyItem]:
        """The items that were answered."""
        return self.items[: len(self.items) - self.num_output]


class ResponseStore:
    """Keeps the responses that were used last, up to `max_size_bytes` as JSON. They end with the process."""

    def __init__(self, max_size_bytes: int = MAX_SIZE_BYTES) -> None:
        self._max_size_bytes = max_size_bytes
        self._size_bytes = 0
        self._stored: OrderedDict[tuple[str, str], tuple[StoredResponse, int]] = OrderedDict()

    def put(self, tenant: str, stored: StoredResponse) -> None:
        """Keeps a response, and forgets those that were not used for the longest time if there is no room. A response
        that is larger than all the room is not kept."""
        size_bytes = len(msgspec.json.encode(stored.response))
        size_bytes += sum(len(item.model_dump_json()) for item in stored.items)
        if size_bytes > self._max_size_bytes:
            return
        self._stored[tenant, stored.response["id"]] = stored, size_bytes
        self._size_bytes += size_bytes
        while self._size_bytes > self._max_size_bytes:
            _, (_, freed_bytes) = self._stored.popitem(last=False)
            self._size_bytes -= freed_bytes

    def get(self, tenant: str, response_id: str) -> StoredResponse:
        """Returns a response of this tenant; raises UnknownResponseError."""
        key = tenant, response_id
        if key not in self._stored:
            raise UnknownResponseError(response_id)
        self._stored.move_to_end(key)
        return self._stored[key][0]

    def remove(self, tenant: str, response_id: str) -> None:
        """Forgets a response of this tenant; raises UnknownResponseError."""
        if (tenant, response_id) not in self._stored:
            raise UnknownResponseError(response_id)
        self._size_bytes -= self._stored.pop((tenant, response_id))[1]
