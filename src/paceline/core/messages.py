"""What gateway and engine process say to each other: tagged structs, msgpack-encoded, over one socket.

A socket serves one engine process, so messages carry no engine id. The epoch shows which messages are from a process
that ran before a restart.
"""

from __future__ import annotations

import msgspec

from paceline.core.engine_stats import EngineStats
from paceline.core.output import Output
from paceline.core.request import Request


class AddRequest(msgspec.Struct, frozen=True, tag="add"):
    """Gateway to engine: generate an answer to this request."""

    request: Request


class AbortRequest(msgspec.Struct, frozen=True, tag="abort"):
    """Gateway to engine: nobody waits for this request any more; an unknown id is no error."""

    request_id: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Gateway to engine: answer with a `Pong` of the same number between two steps."""

    number: int


class Shutdown(msgspec.Struct, frozen=True, tag="shutdown"):
    """Gateway to engine: end now; unfinished requests are lost."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway needs to know about a loaded engine. Engines with the same `identity` give the same texts."""

    name: str
    context_window_size: int
    vocab_size: int
    max_batch_size: int = 1
    identity: str = ""


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag="ready"):
    """Engine to gateway, once: the models are loaded."""

    epoch: int
    model: ModelInfo


class Outputs(msgspec.Struct, frozen=True, kw_only=True, tag="outputs"):
    """Engine to gateway: the outputs of one step, with a snapshot of the engine's counters where one is due."""

    outputs: list[Output]
    stats: EngineStats | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Engine to gateway: this request cannot be honoured; the last three fields are those of `InvalidRequestError`."""

    request_id: str
    epoch: int
    error: str
    param: str | None = None
    code: str | None = None


class Fatal(msgspec.Struct, frozen=True, kw_only=True, tag="fatal"):
    """Engine to gateway, as its last message: the engine could not start.

    `kind` is the error's class name in `core.errors`.
    """

    kind: str
    error: str


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """Engine to gateway: the answer to a `Ping`."""

    number: int


ToEngine = AddRequest | AbortRequest | Ping | Shutdown
FromEngine = Ready | Outputs | Failed | Fatal | Pong


class EngineStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a new engine process reads from its standard input, as one line of JSON.

    `engine_config` is an `EngineConfig` as JSON text; `epoch` counts the engine's restarts. The pipe stays open after
    the line; when it closes, the parent has died.
    """

    address: str
    engine_config: str
    epoch: int = 0
    log_format: str = "plain"


def encode_message(message: ToEngine | FromEngine) -> bytes:
    """Returns the message as msgpack."""
    return msgspec.msgpack.encode(message)


def decode_to_engine(data: bytes) -> ToEngine:
    """Returns the gateway's message; raises msgspec.DecodeError where `data` is not one."""
    return msgspec.msgpack.decode(data, type=ToEngine)


def decode_from_engine(data: bytes) -> FromEngine:
    """Returns the engine's message; raises msgspec.DecodeError where `data` is not one."""
    return msgspec.msgpack.decode(data, type=FromEngine)
