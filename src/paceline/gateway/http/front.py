"""`Front`: one API that the gateway speaks. Each front is a folder beside this one, and `gateway/fronts.py` lists
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from paceline.gateway.http.context import Gateway
from paceline.gateway.http.errors import ApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """One API. `paths` are the beginnings of its routes' paths; `schemas` are the request bodies that it documents.

    `error_body` returns the body of an error response, as an object for JSON. `add_grpc_service` adds the front's
    service to a gRPC server and returns the service's name (None: the front has none).
    """

    name: str
    paths: tuple[str, ...]
    create_routes: Callable[[], APIRouter]
    schemas: tuple[type[BaseModel], ...] = ()
    error_body: Callable[[ApiError], dict[str, Any]]
    add_grpc_service: Callable[[Gateway, Any], str] | None = None

    def owns(self, path: str) -> bool:
        """Returns whether a request to this path gets errors in this front's form."""
        return any(path == one or path.startswith(f"{one}/") for one in self.paths)
