"""The handlers of /v1/responses: they create, return, and forget responses."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from paceline.gateway.answer import Answer
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.http.streamed_response import Chunks, StreamedResponse
from paceline.gateway.openai.responses.conversion import response_call
from paceline.gateway.openai.responses.events import RESPONSE_EVENTS, response_events
from paceline.gateway.openai.responses.items import AnyItem
from paceline.gateway.openai.responses.output import (
    items_for_history,
    output_items,
    response_object,
    status_of,
)
from paceline.gateway.openai.responses.schema import ResponsesRequest
from paceline.gateway.openai.responses.store import ResponseStore, StoredResponse


class ResponseHandlers:
    """The handlers of one app, and its store."""

    def __init__(self) -> None:
        self._store = ResponseStore()

    async def create_response(self, gateway: Gateway, body: ResponsesRequest, arrival: Arrival) -> Response:
        """Answers a checked request; raises UnknownResponseError and what `GenerationService.begin` raises."""
        items = tuple(body.input)
        if body.previous_response_id is not None:
            items = (*self._store.get(arrival.principal.tenant, body.previous_response_id).items, *items)
        answer = await gateway.service.begin(response_call(body, items, arrival))
        if body.stream:
            chunks = self._stored_events(answer, body, items, arrival.principal.tenant)
            return await StreamedResponse.begin(chunks, RESPONSE_EVENTS, gateway.config.keep_alive_s)
        await answer.complete()
        (choice,) = answer.choices
        status = status_of(choice)
        response = response_object(answer, body, status, output_items(choice.message, status))
        self._keep(answer, body, items, response, arrival.principal.tenant)
        return JsonResponse(response)

    def response(self, tenant: str, response_id: str) -> dict[str, Any]:
        """Returns a stored response; raises UnknownResponseError."""
        return self._store.get(tenant, response_id).response

    def input_items(self, tenant: str, response_id: str) -> dict[str, Any]:
        """Returns the items that a stored response answers; raises UnknownResponseError."""
        items = self._store.get(tenant, response_id).input_items
        data = [
            {"id": f"item_{index}_{response_id}", "status": "completed", **item.model_dump(exclude_none=True)}
            for index, item in enumerate(items)
        ]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return {"object": "list", "data": data, **ends, "has_more": False}

    def delete_response(self, tenant: str, response_id: str) -> dict[str, Any]:
        """Forgets a stored response; raises UnknownResponseError."""
        self._store.remove(tenant, response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def _stored_events(
        self, answer: Answer, body: ResponsesRequest, items: tuple[AnyItem, ...], tenant: str
    ) -> Chunks:
        """Yields the events of a stream, and keeps the response before the last one is sent."""
        async with aclosing(response_events(answer, body)) as events:
            async for event in events:
                if "response" in event and event["response"]["status"] in ("completed", "incomplete"):
                    self._keep(answer, body, items, event["response"], tenant)
                yield event

    def _keep(
        self,
        answer: Answer,
        body: ResponsesRequest,
        items: tuple[AnyItem, ...],
        response: dict[str, Any],
        tenant: str,
    ) -> None:
        if body.is_stored:
            output = items_for_history(answer.choices[0].message)
            self._store.put(tenant, StoredResponse(response, (*items, *output), len(output)))
