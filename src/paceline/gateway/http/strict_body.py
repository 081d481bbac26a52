"""`StrictBody`: the base class of request bodies, which refuses unknown fields."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


def _additional_properties_are_refused(schema: dict[str, Any]) -> None:
    schema["additionalProperties"] = False


class StrictBody(BaseModel):
    """Refuses the first unknown field itself: pydantic would report all of them, which takes minutes for a hostile
    body."""

    model_config = ConfigDict(
        extra="allow",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        json_schema_extra=_additional_properties_are_refused,
    )

    @model_validator(mode="after")
    def _refuse_unknown_fields(self) -> Self:
        for name in self.model_extra or ():
            raise PydanticCustomError("unknown_parameter", "remove it or correct its name", {"field": name})
        return self


def field_error(param: str, reason: str) -> PydanticCustomError:
    """Returns an error about several fields together; pydantic itself would not give it a field's name."""
    return PydanticCustomError("invalid_value", reason, {"param": param})
