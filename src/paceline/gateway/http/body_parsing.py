"""Parses request bodies with their schemas. Errors name the field in the way the client wrote it."""

from __future__ import annotations

import reprlib
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from paceline.core.errors import InvalidRequestError

Body = TypeVar("Body", bound=BaseModel)
_MAX_SHOWN = 60


def parse_body(schema: type[Body], data: bytes) -> Body:
    """Returns the body as a `schema`; raises InvalidRequestError for the first error in it."""
    try:
        return schema.model_validate_json(data)
    except ValidationError as error:
        raise as_request_error(error) from error


def as_request_error(error: ValidationError) -> InvalidRequestError:
    """Returns the first error in a body as the error of the request."""
    return _from_fault(error.errors(include_url=False)[0])


def _from_fault(fault: ErrorDetails) -> InvalidRequestError:
    context = fault.get("ctx", {})
    location = (*fault["loc"], context["field"]) if "field" in context else fault["loc"]
    param = context.get("param") or _path(location)
    reason = fault["msg"][:1].lower() + fault["msg"][1:]
    match fault["type"]:
        case "json_invalid":
            return InvalidRequestError(f"the request body is not valid json: {context.get('error', reason)}")
        case "unknown_parameter":
            message = f"{param} is not a field of this request: remove it or correct its name"
            return InvalidRequestError(message, param, "unknown_parameter")
        case "missing":
            return InvalidRequestError(f"{param} is missing", param, "missing_required_parameter")
        case "unsupported_value" | "unsupported_content" | "empty_prompt" as code:
            return InvalidRequestError(f"{param} cannot be {_shown(fault['input'])}: {reason}", param, code)
        case "invalid_value" if "param" in context:
            return InvalidRequestError(f"{param} cannot be honoured: {reason}", param, "invalid_value")
        case _ if param is None:
            return InvalidRequestError("the request body must be a json object")
        case _:
            message = f"{param} cannot be {_shown(fault['input'])}: {reason}"
            return InvalidRequestError(message, param, "invalid_value")


def _path(location: tuple[int | str, ...]) -> str | None:
    """Returns the path of a field, such as `messages[0].content` for `("messages", 0, "content")`; None for the whole
    body."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or None


def _shown(value: object) -> str:
    text = reprlib.repr(value) if isinstance(value, list | dict) else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
