"""The questions that every client asks, and the forms and tools for their answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

TIMEOUT_S = 120.0
SETTINGS: dict[str, Any] = {"model": "default", "temperature": 0, "seed": 1, "max_tokens": 300}
TRIP_QUESTION = "Ada travels from London to Paris (344 km) and on to Rome (1106 km). Describe her trip."
WEATHER_QUESTION = "What is the weather in Paris right now, in celsius?"
WEATHER_RESULT = "21 degrees, clear sky"


class Leg(BaseModel):
    """A part of a trip."""

    city: str
    distance: int


class Trip(BaseModel):
    """A trip, with a choice of words, a list of objects, and a value that may be null."""

    traveller: str
    unit: Literal["km", "miles"]
    legs: list[Leg]
    note: str | None = None


class Place(BaseModel):
    """The arguments of the tool `get_weather`."""

    model_config = ConfigDict(extra="forbid")

    city: str
    unit: Literal["celsius", "fahrenheit"] = "celsius"


class Report(BaseModel):
    """An answer that takes the result of the tool `get_weather` into account."""

    city: str
    temperature: int


WEATHER_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def user(text: str) -> list[Any]:
    """Returns a chat with this question."""
    return [{"role": "user", "content": text}]


def check_trip(trip: Trip) -> None:
    """Checks that the trip is the one of the question, as far as a small model tells it reliably."""
    assert trip.traveller == "Ada"
    assert trip.unit == "km"
    assert 344 in {leg.distance for leg in trip.legs}
