"""The form of an answer in request bodies."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paceline.core import Constraint
from paceline.gateway.http.strict_body import StrictBody, field_error


class JsonSchemaFormat(StrictBody):
    """A JSON schema. With `strict`, a keyword that cannot be enforced is refused; without, it is ignored."""

    name: str = Field(min_length=1, max_length=64)
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictBody):
    """The form of the answer: free text, any JSON object, or JSON that a schema describes."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise field_error("response_format.json_schema", "it goes with the type json_schema, and only with that")
        return self

    @property
    def constraint(self) -> Constraint | None:
        """The constraint on the answer; None means free text."""
        if self.type == "text":
            return None
        if self.json_schema is None:
            return Constraint(kind="json_object", source="", field="response_format")
        kind = "json_schema" if self.json_schema.strict else "lenient_json_schema"
        source = json.dumps(self.json_schema.schema_ or {})
        return Constraint(kind=kind, source=source, field="response_format.json_schema.schema")


Choices = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, fail_fast=True)]
