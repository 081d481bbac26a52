"""gRPC with real clients: Paceline's own service, the Open Inference Protocol, health, errors and tenants."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from paceline.config import EngineConfig, ServerConfig
from paceline.gateway.grpc import generation_pb2 as own
from paceline.gateway.grpc.generation_pb2_grpc import GenerationStub
from paceline.gateway.kserve import open_inference_pb2 as oip
from paceline.gateway.kserve.open_inference_pb2_grpc import GRPCInferenceServiceStub
from tests.gateway.server_process import PATIENCE_S, ServerProcess, wait_until

PROMPT = "the riders at the front"
LIMIT_BYTES = 100_000


@pytest.fixture(scope="module")
def server(engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = ServerConfig(port=0, grpc_port=0, max_body_size_bytes=LIMIT_BYTES)
    config = engine_config.model_copy(update={"context_window_size": 2048})  # room for an answer that lasts
    with ServerProcess(tmp_path_factory.mktemp("grpc"), config, settings) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.events('grpc ready')[0]['port']}") as opened:
        yield opened


@pytest.fixture(scope="module")
def generation(channel: grpc.Channel) -> GenerationStub:
    return GenerationStub(channel)


@pytest.fixture(scope="module")
def inference(channel: grpc.Channel) -> GRPCInferenceServiceStub:
    return GRPCInferenceServiceStub(channel)


@pytest.fixture(scope="module")
def expected(server: ServerProcess) -> dict[str, Any]:
    """Returns what OpenAI's API answers to the prompt."""
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0, "logprobs": 2}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S)
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


def request(**fields: Any) -> Any:
    settings = {"prompt": own.Prompt(text=PROMPT), "sampling": own.Sampling(max_tokens=24, temperature=0), **fields}
    return own.GenerateRequest(**settings)


def outputs_of(generation: GenerationStub, asked: Any, **options: Any) -> list[Any]:
    return list(generation.Generate(asked, timeout=PATIENCE_S, **options))


def test_the_outputs_have_the_text_and_the_logprobs_of_openais_api(
    generation: GenerationStub, expected: dict[str, Any]
) -> None:
    sampling = own.Sampling(max_tokens=24, temperature=0, num_logprobs=2)
    outputs = outputs_of(generation, request(request_id="mine", sampling=sampling))
    assert "".join(output.text for output in outputs) == expected["text"]
    assert [output.finish_reason for output in outputs] == [""] * (len(outputs) - 1) + ["length"]
    assert {output.request_id for output in outputs} == {"mine"}
    first = 0
    for output in outputs:
        assert output.first_token_index == first
        first += len(output.token_ids)
    assert first == 24
    logprobs = [logprob.logprob for output in outputs for logprob in output.logprobs]
    assert logprobs == pytest.approx(expected["logprobs"]["token_logprobs"], abs=1e-5)
    last = outputs[-1]
    assert last.speculation.num_draft_tokens >= last.speculation.num_accepted_tokens > 0
    assert {output.model_identity for output in outputs} == {
        generation.DescribeModel(own.DescribeModelRequest()).identity
    }


def test_token_ids_are_a_prompt_too(generation: GenerationStub, server: ServerProcess) -> None:
    tokens = outputs_of(generation, request(prompt=own.Prompt(tokens=own.TokenIds(token_ids=[1, 2, 3]))))
    body = {"prompt": [1, 2, 3], "max_tokens": 24, "temperature": 0}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=PATIENCE_S).json()
    assert "".join(output.text for output in tokens) == answer["choices"][0]["text"]


def test_an_answer_goes_on_after_its_resumed_tokens(generation: GenerationStub) -> None:
    sampling = own.Sampling(max_tokens=24, temperature=1.5, seed=7)
    whole = [one for output in outputs_of(generation, request(sampling=sampling)) for one in output.token_ids]
    identity = generation.DescribeModel(own.DescribeModelRequest()).identity
    rest = outputs_of(generation, request(sampling=sampling, resumed_token_ids=whole[:10], model_identity=identity))
    assert rest[0].first_token_index == 10
    assert [one for output in rest for one in output.token_ids] == whole[10:]
    with pytest.raises(grpc.RpcError) as caught:
        outputs_of(generation, request(resumed_token_ids=whole[:10], model_identity="another"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_settings_of_a_request_arrive(generation: GenerationStub) -> None:
    off = outputs_of(generation, request(speculation=own.Speculation(is_off=True)))[-1]
    assert (off.speculation.num_draft_tokens, off.speculation.reason) == (0, "request")
    form = outputs_of(generation, request(constraint=own.Constraint(kind="regex", source="[ab]{3}")))
    assert "".join(output.text for output in form) in {a + b + c for a in "ab" for b in "ab" for c in "ab"}
    text = "".join(output.text for output in outputs_of(generation, request()))
    sampling = own.Sampling(max_tokens=24, temperature=0, stop=[text[4:6]])
    stopped = outputs_of(generation, request(sampling=sampling))
    assert stopped[-1].stop_string == text[4:6]
    indices = [
        outputs_of(generation, request(sampling=own.Sampling(max_tokens=8, seed=1), choice_index=index))
        for index in (0, 1)
    ]
    assert indices[0] != indices[1]


def test_tenants_share_no_prefix(generation: GenerationStub) -> None:
    def cached(key: str) -> int:
        asked = request(prompt=own.Prompt(text="one two three four five six " * 6), sampling=own.Sampling(max_tokens=1))
        last: Any = outputs_of(generation, asked, metadata=(("authorization", f"Bearer {key}"),))[-1]
        return int(last.num_cached_tokens)

    assert cached("first") == 0
    assert cached("first") > 0
    assert cached("second") == 0


@pytest.mark.parametrize(
    ("fields", "code", "word"),
    [
        ({"model": "gpt-9"}, grpc.StatusCode.NOT_FOUND, "gpt-9"),
        ({"prompt": own.Prompt()}, grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
        ({"prompt": own.Prompt(text="far " * 4000)}, grpc.StatusCode.INVALID_ARGUMENT, "tokens"),
        ({"prompt": own.Prompt(tokens=own.TokenIds(token_ids=[10**9]))}, grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
        ({"sampling": own.Sampling(temperature=1000)}, grpc.StatusCode.INVALID_ARGUMENT, "temperature"),
        ({"constraint": own.Constraint(kind="poem")}, grpc.StatusCode.INVALID_ARGUMENT, "poem"),
        ({"speculation": own.Speculation(drafters=["x"])}, grpc.StatusCode.INVALID_ARGUMENT, "x"),
        ({"prompt": own.Prompt(text="a" * LIMIT_BYTES)}, grpc.StatusCode.RESOURCE_EXHAUSTED, ""),
    ],
)
def test_errors_have_grpcs_codes_and_say_why(
    generation: GenerationStub, fields: dict[str, Any], code: grpc.StatusCode, word: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        outputs_of(generation, request(**fields))
    assert caught.value.code() is code
    assert word in (caught.value.details() or "")


def test_the_request_id_comes_back_and_is_logged(generation: GenerationStub, server: ServerProcess) -> None:
    call = generation.Generate(request(), metadata=(("x-request-id", "mine-17"),), timeout=PATIENCE_S)
    assert dict(call.initial_metadata())["x-request-id"] == "mine-17"
    assert list(call)[-1].finish_reason == "length"
    logged = [entry for entry in server.events("request") if entry["request_id"] == "mine-17"]
    assert [(entry["method"], entry["path"]) for entry in logged] == [("GRPC", "/paceline.v1.Generation/Generate")]


def test_a_cancelled_call_ends_the_work(generation: GenerationStub, server: ServerProcess) -> None:
    def num_aborted() -> float:
        text = httpx.get(f"{server.url}/metrics", timeout=PATIENCE_S).text
        found = re.findall(r'^paceline_request_success_total{.*finished_reason="abort".*} (.*)$', text, re.MULTILINE)
        return sum(map(float, found))

    lasting = request(sampling=own.Sampling(max_tokens=1900, ignore_eos=True), speculation=own.Speculation(is_off=True))
    before = num_aborted()

    def is_aborted() -> bool:
        """Cancels a call after its first output. On a busy machine, an answer may be complete before that."""
        call = generation.Generate(lasting, timeout=PATIENCE_S)
        next(call)
        call.cancel()
        return num_aborted() > before

    wait_until(is_aborted, "a request is aborted")


def test_health_says_that_all_services_serve(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for name in ("", "paceline.v1.Generation", "inference.GRPCInferenceService"):
        checked = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S)
        assert checked.status == health_pb2.HealthCheckResponse.SERVING


def test_health_can_be_watched(channel: grpc.Channel) -> None:
    watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=""), timeout=PATIENCE_S)
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    watching.cancel()


def test_two_calls_may_have_the_same_id(generation: GenerationStub, expected: dict[str, Any]) -> None:
    calls = [generation.Generate(request(request_id="same"), timeout=PATIENCE_S) for _ in range(2)]
    assert ["".join(output.text for output in call) for call in calls] == [expected["text"]] * 2


def test_reflection_is_off(channel: grpc.Channel) -> None:
    call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([b""]), timeout=PATIENCE_S))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def infer_request(**parameters: Any) -> Any:
    settings = {"max_tokens": 24, "temperature": 0.0, **parameters}
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    return oip.ModelInferRequest(
        model_name="default",
        id="mine",
        parameters={name: oip.InferParameter(**{fields[type(value)]: value}) for name, value in settings.items()},
        inputs=[
            oip.ModelInferRequest.InferInputTensor(
                name="text_input",
                datatype="BYTES",
                shape=[1],
                contents=oip.InferTensorContents(bytes_contents=[PROMPT.encode()]),
            )
        ],
    )


def text_of(response: Any) -> str:
    raw: bytes = response.raw_output_contents[0]
    assert int.from_bytes(raw[:4], "little") == len(raw) - 4
    return raw[4:].decode()


def test_the_open_inference_protocol_answers(inference: GRPCInferenceServiceStub, expected: dict[str, Any]) -> None:
    assert inference.ServerLive(oip.ServerLiveRequest()).live
    assert inference.ServerReady(oip.ServerReadyRequest()).ready
    assert inference.ModelReady(oip.ModelReadyRequest(name="default")).ready
    assert inference.ServerMetadata(oip.ServerMetadataRequest()).name == "paceline"
    metadata = inference.ModelMetadata(oip.ModelMetadataRequest(name="default"))
    assert "text_input" in {tensor.name for tensor in metadata.inputs}
    response = inference.ModelInfer(infer_request(), timeout=PATIENCE_S)
    assert text_of(response) == PROMPT + expected["text"]
    assert response.id == "mine"
    raw = infer_request(exclude_input_in_output=True)
    raw.inputs[0].ClearField("contents")
    raw.raw_input_contents.append(len(PROMPT).to_bytes(4, "little") + PROMPT.encode())
    assert text_of(inference.ModelInfer(raw, timeout=PATIENCE_S)) == expected["text"]


def test_streams_of_several_requests_are_answered_side_by_side(
    inference: GRPCInferenceServiceStub, expected: dict[str, Any]
) -> None:
    first, second, bad = (infer_request(stream=True) for _ in range(3))
    second.id, bad.id, bad.model_name = "second", "bad", "gpt-9"
    responses = list(inference.ModelStreamInfer(iter([first, second, bad]), timeout=PATIENCE_S))
    for name in ("mine", "second"):
        own_responses = [one.infer_response for one in responses if one.infer_response.id == name]
        assert "".join(map(text_of, own_responses)) == expected["text"]
        finals = [one.parameters["triton_final_response"].bool_param for one in own_responses]
        assert finals == [False] * (len(finals) - 1) + [True]
    [failed] = [one for one in responses if one.error_message]
    assert failed.infer_response.id == "bad"
    assert "gpt-9" in failed.error_message


def test_a_stream_is_refused_where_only_one_response_can_come(inference: GRPCInferenceServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        inference.ModelInfer(infer_request(stream=True), timeout=PATIENCE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ModelStreamInfer" in (caught.value.details() or "")
