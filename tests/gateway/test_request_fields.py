"""Every field of a request is honoured, or cannot change the text, or is refused by its name."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from paceline.core import Request, SamplingParams, SpeculationMode
from paceline.core.errors import InvalidRequestError
from paceline.core.messages import AddRequest, ModelInfo, decode_to_engine, encode_message
from paceline.gateway.engines.process.engine_requests import engine_requests
from paceline.gateway.engines.prompt_encoder import check_prompt
from paceline.gateway.generation_call import GenerationCall
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.body_parsing import parse_body
from paceline.gateway.http.errors import api_error_from, openai_error_body
from paceline.gateway.openai.generation_call import chat_call, completion_call
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.gateway.principal import Principal
from paceline.sampling import RANGES, RequestLimits, check_request, check_sampling_params

MESSAGES = [{"role": "user", "content": "hi"}]
MODEL = ModelInfo(name="m", context_window_size=16, vocab_size=100)


def chat(**fields: Any) -> ChatCompletionRequest:
    return parse_body(ChatCompletionRequest, json.dumps({"messages": MESSAGES, **fields}).encode())


def completion(**fields: Any) -> CompletionRequest:
    return parse_body(CompletionRequest, json.dumps({"prompt": "hi", **fields}).encode())


def requests_of(
    body: ChatCompletionRequest | CompletionRequest, call_id: str, prompts: list[list[int]]
) -> list[Request]:
    call = replace(call_of(body), call_id=call_id)
    return engine_requests(call, prompts, SamplingParams(**call.sampling), None)


def call_of(body: ChatCompletionRequest | CompletionRequest, tenant: str = "tenant") -> GenerationCall:
    arrival = Arrival(0.0, Principal(tenant), 100)
    return chat_call(body, arrival) if isinstance(body, ChatCompletionRequest) else completion_call(body, arrival)


def refusal(schema: type[ChatCompletionRequest | CompletionRequest], data: bytes | str) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        parse_body(schema, data if isinstance(data, bytes) else data.encode())
    return caught.value


def test_defaults_are_those_of_openais_api() -> None:
    (request,) = requests_of(completion(), "cmpl-1", [[1, 2]])
    assert (request.sampling.max_tokens, request.sampling.temperature, request.sampling.top_p) == (16, 1.0, 1.0)
    assert (request.sampling.top_k, request.sampling.num_logprobs) == (None, None)
    (request,) = requests_of(chat(), "chatcmpl-1", [[1, 2]])
    assert request.sampling.max_tokens is None


def test_sampling_fields_reach_the_engine() -> None:
    body = chat(
        max_completion_tokens=9,
        min_tokens=2,
        temperature=0,
        top_k=5,
        top_p=0.5,
        min_p=0.1,
        presence_penalty=-2,
        frequency_penalty=1.5,
        repetition_penalty=1.2,
        logit_bias={"7": -100, "8": 2.5},
        seed=-1,
        stop=["a", "b", "c", "d", "e"],
        stop_token_ids=[3],
        ignore_eos=True,
        include_stop_str_in_output=True,
        logprobs=True,
        top_logprobs=4,
        speculation={"mode": "off", "max_window": 3, "drafters": ["ngram"]},
    )
    (request,) = requests_of(body, "c", [[1]])
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.temperature, sampling.top_k) == (9, 2, 0.0, 5)
    assert (sampling.top_p, sampling.min_p, sampling.presence_penalty) == (0.5, 0.1, -2.0)
    assert (sampling.frequency_penalty, sampling.repetition_penalty) == (1.5, 1.2)
    assert sampling.logit_bias == {7: -100.0, 8: 2.5}
    assert sampling.seed == 2**64 - 1
    assert sampling.stop == ("a", "b", "c", "d", "e")
    assert (sampling.stop_token_ids, sampling.ignore_eos, sampling.include_stop_in_output) == ((3,), True, True)
    assert sampling.num_logprobs == 4
    assert (request.speculation.mode, request.speculation.max_window) == (SpeculationMode.OFF, 3)
    assert request.speculation.drafters == ("ngram",)


@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"]
)
def test_a_parameter_has_the_same_range_over_http_and_in_process(name: str) -> None:
    allowed = RANGES[name]
    limits = RequestLimits(vocab_size=100, context_window_size=16)
    for value in (allowed.lowest, allowed.highest):
        (request,) = requests_of(chat(**{name: value}), "c", [[1]])
        assert getattr(check_request(request, limits).sampling, name) == value
    for value in (allowed.lowest - 0.001, allowed.highest + 0.001):
        assert refusal(ChatCompletionRequest, json.dumps({"messages": MESSAGES, name: value})).param == name
        request = Request(request_id="r", prompt_token_ids=[1], sampling=SamplingParams(**{name: value}))
        with pytest.raises(InvalidRequestError) as caught:
            check_request(request, limits)
        assert caught.value.param == name


def test_null_means_absent() -> None:
    names = set(ChatCompletionRequest.model_fields) - {"messages"}
    assert chat(**dict.fromkeys(names)) == chat()
    names = set(CompletionRequest.model_fields) - {"prompt"}
    assert completion(**dict.fromkeys(names)) == completion()


@pytest.mark.parametrize("top_k", [0, -1])
def test_top_k_of_all_tokens(top_k: int) -> None:
    assert call_of(chat(top_k=top_k)).sampling["top_k"] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "flex", "safety_identifier": "s"},
        {"prompt_cache_key": "k", "parallel_tool_calls": False, "prediction": {"type": "content", "content": "x"}},
        {"tools": [], "tool_choice": "none", "functions": [], "function_call": "auto", "modalities": ["text"]},
        {"response_format": {"type": "text"}, "stop": None, "logit_bias": {}, "verbosity": "medium"},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"use_beam_search": False, "length_penalty": 1.0, "skip_special_tokens": True, "add_generation_prompt": True},
    ],
)
def test_what_cannot_change_the_text_is_accepted(fields: dict[str, Any]) -> None:
    assert requests_of(chat(seed=1, **fields), "c", [[1]]) == requests_of(chat(seed=1), "c", [[1]])


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"colour": 1}, "colour", "unknown_parameter"),
        ({"speculation": {"window": 3}}, "speculation.window", "unknown_parameter"),
        ({"tenant": "another"}, "tenant", "unknown_parameter"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"functions": [{"name": "f f"}]}, "functions[0].name", "invalid_value"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_value"),
        ({"audio": {"voice": "a"}}, "audio", "unsupported_value"),
        ({"web_search_options": {}}, "web_search_options", "unsupported_value"),
        ({"length_penalty": 2.0}, "length_penalty", "unsupported_value"),
        ({"skip_special_tokens": False}, "skip_special_tokens", "unsupported_value"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_tokens": 1.5}, "max_tokens", "invalid_value"),
        ({"max_tokens": "5"}, "max_tokens", "invalid_value"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "invalid_value"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens", "invalid_value"),
        ({"min_tokens": 5, "max_completion_tokens": 4}, "min_tokens", "invalid_value"),
        ({"temperature": 100.1}, "temperature", "invalid_value"),
        ({"temperature": -0.1}, "temperature", "invalid_value"),
        ({"temperature": True}, "temperature", "invalid_value"),
        ({"temperature": float("nan")}, "temperature", "invalid_value"),
        ({"top_p": float("inf")}, "top_p", "invalid_value"),
        ({"top_p": 1.01}, "top_p", "invalid_value"),
        ({"top_k": -2}, "top_k", "invalid_value"),
        ({"min_p": 1.1}, "min_p", "invalid_value"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 129}, "n", "invalid_value"),
        ({"stop": ""}, "stop", "invalid_value"),
        ({"stop": [1]}, "stop", "invalid_value"),
        ({"stop": ["a"] * 65}, "stop", "invalid_value"),
        ({"stop": "a" * 1025}, "stop", "invalid_value"),
        ({"stop": ["a", "b" * 1025]}, "stop", "invalid_value"),
        ({"stop_token_ids": [1] * 1025}, "stop_token_ids", "invalid_value"),
        ({"seed": 2**64}, "seed", "invalid_value"),
        ({"seed": 1.5}, "seed", "invalid_value"),
        ({"presence_penalty": 3}, "presence_penalty", "invalid_value"),
        ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"1": 5, "01": -5}}, "logit_bias", "invalid_value"),
        ({"logit_bias": {"1": float("nan")}}, "logit_bias", "invalid_value"),
        ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"speculation": {"mode": "sometimes"}}, "speculation.mode", "invalid_value"),
        ({"speculation": {"max_window": -1}}, "speculation.max_window", "invalid_value"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "hi"}, "messages", "invalid_value"),
        ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [{"content": "a"}]}, "messages[0].role", "missing_required_parameter"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "invalid_value"),
        ({"messages": [*MESSAGES, {"role": "user", "content": 3}]}, "messages[1].content", "invalid_value"),
        ({"messages": [{"role": "user", "content": "a", "mood": 1}]}, "messages[0].mood", "unknown_parameter"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], param: str, code: str) -> None:
    error = refusal(ChatCompletionRequest, json.dumps({"messages": MESSAGES, **fields}))
    assert (error.param, error.code) == (param, code)
    assert param in str(error)
    assert openai_error_body(api_error_from(error))["error"] == {
        "message": str(error),
        "type": "invalid_request_error",
        "param": param,
        "code": code,
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "end", "prompt": ["a", "b"]}, "suffix"),
        ({"suffix": "end", "prompt": [1, 2]}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"best_of": 3, "n": 2}, "best_of"),
        ({"echo": True, "logprobs": 1, "suffix": "b"}, "echo"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1, True]]}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"max_completion_tokens": 3}, "max_completion_tokens"),
        ({"logprobs": 21}, "logprobs"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"messages": []}, "messages"),
    ],
)
def test_completion_fields_are_refused_by_their_name(fields: dict[str, Any], param: str) -> None:
    assert refusal(CompletionRequest, json.dumps({"prompt": "hi", **fields})).param == param


@pytest.mark.parametrize("value", [2**31, 2**63, 2**64, 10**30, -(2**31), -(2**63) - 1])
@pytest.mark.parametrize("schema", [ChatCompletionRequest, CompletionRequest])
def test_no_whole_number_of_any_size_makes_a_request_that_cannot_be_handed_over(
    schema: type[ChatCompletionRequest | CompletionRequest], value: int
) -> None:
    accepted: set[str] = set()
    for field, form in itertools.product(schema.model_fields, (value, [value])):
        body = {"messages": MESSAGES, "prompt": "hi", "seed": 1, field: form}
        del body["prompt" if schema is ChatCompletionRequest else "messages"]
        with contextlib.suppress(InvalidRequestError):
            (request,) = requests_of(parse_body(schema, json.dumps(body).encode()), "c", [[1]])
            accepted.add(field)
            assert decode_to_engine(encode_message(AddRequest(request))) == AddRequest(request)
    assert accepted <= {"seed", "prompt"}
    assert ("prompt" in accepted) == (schema is CompletionRequest and value > 0)


@pytest.mark.parametrize("value", [2**31, 2**64])
def test_a_window_beyond_all_bounds_is_refused(value: int) -> None:
    body = json.dumps({"prompt": "hi", "speculation": {"max_window": value}})
    assert refusal(CompletionRequest, body).param == "speculation.max_window"


@pytest.mark.parametrize(
    ("seed", "expected"), [(2**64 - 1, 2**64 - 1), (2**63, 2**63), (-(2**63), 2**63), (-1, 2**64 - 1)]
)
def test_seeds_have_64_bits(seed: int, expected: int) -> None:
    (request,) = requests_of(completion(seed=seed), "c", [[1]])
    assert request.sampling.seed == expected
    assert decode_to_engine(encode_message(AddRequest(request))) == AddRequest(request)


def test_the_largest_numbers_are_honoured() -> None:
    largest = 2**31 - 1
    body = chat(max_tokens=largest, min_tokens=largest, top_k=largest, speculation={"max_window": largest})
    (request,) = requests_of(body, "c", [[1]])
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.top_k) == (largest, largest, largest)
    assert request.speculation.max_window == largest


def test_stop_strings_up_to_the_limits_are_honoured() -> None:
    stop = [character * 1024 for character in map(chr, range(256, 320))]
    assert completion(stop=stop).stop == tuple(stop)
    assert "65 strings exceed the limit of 64" in str(
        refusal(CompletionRequest, json.dumps({"prompt": "a", "stop": ["a"] * 65}))
    )
    message = str(refusal(CompletionRequest, json.dumps({"prompt": "a", "stop": "a" * 2000})))
    assert "a string of 2000 characters exceeds the limit of 1024" in message


def test_min_tokens_up_to_the_limit_are_honoured() -> None:
    assert completion(min_tokens=16).min_tokens == 16
    assert completion(max_tokens=17, min_tokens=17).min_tokens == 17
    assert chat(min_tokens=1000).min_tokens == 1000
    assert chat(max_completion_tokens=5, min_tokens=5).min_tokens == 5
    message = str(refusal(CompletionRequest, b'{"prompt": "a", "min_tokens": 17}'))
    assert message == "min_tokens cannot be honoured: it exceeds the limit of 16 tokens, lower it or raise max_tokens"


def test_every_choice_is_the_tenants() -> None:
    requests = engine_requests(call_of(completion(n=2), "key"), [[1], [2]], SamplingParams(), None)
    assert [one.tenant for one in requests] == ["key"] * 4


def test_an_image_is_refused_with_its_message() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "http://x"}}]
    error = refusal(ChatCompletionRequest, json.dumps({"messages": [*MESSAGES, {"role": "user", "content": parts}]}))
    assert (error.param, error.code) == ("messages[1].content", "unsupported_content")
    assert "image_url" in str(error)


def test_text_parts_stay_apart_without_further_keys() -> None:
    parts = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    expected = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(messages=[{"role": "user", "content": parts}]).messages[0].content == expected


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_the_assistants(name: str) -> None:
    answer = {"role": "assistant", "content": "x", name: "because"}
    assert getattr(chat(messages=[*MESSAGES, answer]).messages[1], name) == "because"
    assert chat(messages=[{**MESSAGES[0], name: None}]) == chat()
    error = refusal(ChatCompletionRequest, json.dumps({"messages": [{**MESSAGES[0], name: "because"}]}))
    assert (error.param, error.code) == (f"messages[0].{name}", "unsupported_value")
    assert str(error).endswith("only the assistant's messages may have it, leave it out")
    error = refusal(ChatCompletionRequest, json.dumps({"messages": [{**answer, name: ["because"]}]}))
    assert (error.param, error.code) == (f"messages[0].{name}", "invalid_value")


def test_a_message_of_the_client_library_comes_back() -> None:
    answer = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "tool_calls": None,
        "reasoning_content": None,
        "reasoning": None,
        "thinking": None,
    }
    assert chat(messages=[*MESSAGES, answer, *MESSAGES]).messages[1].content == "x"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_each_form_of_a_prompt(prompt: object, expected: object) -> None:
    assert completion(prompt=prompt).prompt == expected


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b'{"messages": [}',
        b"\xff\xfe",
        b'{"messages": "\xff"}',
        b"[" * 10_000,
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b"[]",
        b"null",
        b"3",
    ],
)
def test_a_body_that_is_no_request_is_refused(data: bytes) -> None:
    assert str(refusal(ChatCompletionRequest, data)) != ""


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(str(refusal(ChatCompletionRequest, json.dumps({"messages": MESSAGES, "stop": [0] * 1000})))) < 200


def test_choices_share_the_seed_and_differ_by_index() -> None:
    requests = requests_of(completion(n=3), "cmpl-1", [[1], [2]])
    assert [request.request_id for request in requests] == [f"cmpl-1-{index}" for index in range(6)]
    assert [request.choice_index for request in requests] == [0, 1, 2, 0, 1, 2]
    assert [request.prompt_token_ids for request in requests] == [[1]] * 3 + [[2]] * 3
    seeds = [request.sampling.seed for request in requests]
    assert len(set(seeds[:3])) == len(set(seeds[3:])) == 1
    assert seeds[0] != seeds[3]


def test_a_given_seed_counts_for_every_prompt() -> None:
    assert [one.sampling.seed for one in requests_of(completion(seed=5), "c", [[1], [2]])] == [5, 5]


def test_seeds_are_drawn_anew_for_each_call() -> None:
    assert len({requests_of(chat(), "c", [[1]])[0].sampling.seed for _ in range(20)}) == 20


@pytest.mark.parametrize("fields", [{"logit_bias": {"100": 1}}, {"stop_token_ids": [5, 100]}])
def test_token_ids_outside_the_vocabulary_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="ends at 99") as caught:
        check_sampling_params(SamplingParams(**call_of(chat(**fields)).sampling), MODEL.vocab_size)
    assert caught.value.param == next(iter(fields))


def test_a_prompt_must_fit_the_context_and_the_vocabulary() -> None:
    check_prompt([99] * 15, MODEL, "messages")
    with pytest.raises(InvalidRequestError) as caught:
        check_prompt([1] * 16, MODEL, "messages")
    assert (caught.value.param, caught.value.code) == ("messages", "context_length_exceeded")
    with pytest.raises(InvalidRequestError, match="token id 100"):
        check_prompt([100], MODEL, "prompt")
    with pytest.raises(InvalidRequestError, match="no tokens"):
        check_prompt([], MODEL, "prompt")
