"""Instructor: objects through a tool's call and through a JSON schema, whole and while they arrive."""

from __future__ import annotations

from typing import Any

import instructor
import pytest
from openai import OpenAI

from tests.clients.questions import SETTINGS, TIMEOUT_S, TRIP_QUESTION, Leg, Trip, check_trip, user

MODES = [instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA]


def client_of(server_url: str, mode: instructor.Mode) -> Any:
    openai = OpenAI(base_url=server_url, api_key="unused", max_retries=0, timeout=TIMEOUT_S)
    return instructor.from_openai(openai, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_first_answer_is_an_object_of_the_model(server_url: str, mode: instructor.Mode) -> None:
    client = client_of(server_url, mode)
    trip = client.create(messages=user(TRIP_QUESTION), response_model=Trip, max_retries=0, **SETTINGS)
    assert isinstance(trip, Trip)
    check_trip(trip)


@pytest.mark.parametrize("mode", MODES)
def test_an_object_grows_while_it_is_streamed(server_url: str, mode: instructor.Mode) -> None:
    client = client_of(server_url, mode)
    fields: dict[str, Any] = {"response_model": Trip, "max_retries": 0, **SETTINGS}
    partial = list(client.create_partial(messages=user(TRIP_QUESTION), **fields))
    assert len(partial) > 3
    assert partial[0].legs is None
    numbers = [len(one.legs or ()) for one in partial]
    assert numbers == sorted(numbers)
    check_trip(Trip.model_validate(partial[-1].model_dump(), strict=True))


def test_a_list_of_objects_arrives_one_by_one(server_url: str) -> None:
    client = client_of(server_url, instructor.Mode.TOOLS)
    legs = list(client.create_iterable(messages=user(TRIP_QUESTION), response_model=Leg, max_retries=0, **SETTINGS))
    assert all(isinstance(leg, Leg) for leg in legs)
    assert 344 in {leg.distance for leg in legs}
