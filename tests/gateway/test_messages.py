"""Messages between gateway and engine arrive unchanged, including the fields that a replay needs."""

import math

import msgspec
import pytest

from paceline.core import (
    EngineStats,
    FinishReason,
    Output,
    Request,
    SamplingParams,
    SpeculationMode,
    SpeculationParams,
    SpeculationStats,
    TokenLogprob,
)
from paceline.core.messages import (
    AbortRequest,
    AddRequest,
    EngineStart,
    Failed,
    Fatal,
    FromEngine,
    ModelInfo,
    Outputs,
    Ping,
    Pong,
    Ready,
    Shutdown,
    ToEngine,
    decode_from_engine,
    decode_to_engine,
    encode_message,
)

REQUEST = Request(
    request_id="chatcmpl-1-0",
    prompt_token_ids=[1, 2, 151_935],
    sampling=SamplingParams(
        max_tokens=7,
        temperature=0.8,
        top_k=40,
        logit_bias={5: -100.0, 6: 2.5},
        seed=2**64 - 1,
        stop=("\n\n", "ä"),
        stop_token_ids=(3,),
        num_logprobs=0,
    ),
    choice_index=3,
    resumed_token_ids=[9, 8, 7],
    speculation=SpeculationParams(mode=SpeculationMode.OFF, max_window=2),
    tenant="key-1",
)
OUTPUT = Output(
    request_id="chatcmpl-1-0",
    epoch=4,
    first_token_index=3,
    token_ids=[11, 12],
    text="né",
    logprobs=[TokenLogprob(11, -0.25, [(11, -0.25), (4, -2.0)]), TokenLogprob(12, -math.inf)],
    finish_reason=FinishReason.STOP,
    stop_reason="\n\n",
    num_cached_tokens=16,
    speculation=SpeculationStats(num_steps=2, num_draft_tokens=7, num_accepted_tokens=3, by_drafter={"ngram": (7, 3)}),
)


@pytest.mark.parametrize(
    "message", [AddRequest(REQUEST), AbortRequest("chatcmpl-1-0"), Ping(3), Shutdown()], ids=lambda m: type(m).__name__
)
def test_messages_to_the_engine_survive_the_wire(message: ToEngine) -> None:
    assert decode_to_engine(encode_message(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Ready(epoch=1, model=ModelInfo(name="m", context_window_size=64, vocab_size=300)),
        Outputs(outputs=[OUTPUT], stats=EngineStats(num_running=1, num_accepted_per_position=(4, 2))),
        Outputs(outputs=[]),
        Failed(request_id="r", epoch=0, error="too long", param="messages", code="context_length_exceeded"),
        Fatal(kind="CheckpointError", error="truncated"),
        Pong(3),
    ],
    ids=lambda m: type(m).__name__,
)
def test_messages_from_the_engine_survive_the_wire(message: FromEngine) -> None:
    assert decode_from_engine(encode_message(message)) == message


def test_a_resumed_request_arrives_with_its_tokens_and_choice() -> None:
    message = decode_to_engine(encode_message(AddRequest(REQUEST)))
    assert isinstance(message, AddRequest)
    assert message.request.resumed_token_ids == [9, 8, 7]
    assert message.request.choice_index == 3
    assert message.request.sampling.seed == 2**64 - 1


def test_an_output_arrives_with_its_epoch_and_index() -> None:
    message = decode_from_engine(encode_message(Outputs(outputs=[OUTPUT])))
    assert isinstance(message, Outputs)
    assert (message.outputs[0].epoch, message.outputs[0].first_token_index) == (4, 3)


@pytest.mark.parametrize("data", [b"", b"\x00", encode_message(Pong(1))[:-1], encode_message(AddRequest(REQUEST))])
def test_bytes_that_are_no_message_of_the_engine_are_refused(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_from_engine(data)


def test_the_start_line_is_json() -> None:
    start = EngineStart(address="ipc:///run/a", engine_config='{"model":"m"}', log_format="json")
    assert msgspec.json.decode(msgspec.json.encode(start), type=EngineStart) == start
    assert b"\n" not in msgspec.json.encode(start)
