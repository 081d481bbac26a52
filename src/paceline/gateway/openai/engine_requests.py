"""From a checked body and its tokenized prompts to engine requests, one for each choice."""

from __future__ import annotations

import secrets

from paceline.core import Request, SamplingParams, SpeculationParams
from paceline.core.messages import ModelInfo
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.sampling import request_check

GenerationBody = ChatCompletionRequest | CompletionRequest
_SEED_BITS = 64


def engine_requests(body: GenerationBody, call_id: str, prompts: list[list[int]], tenant: str) -> list[Request]:
    """The choices of all prompts in the order of their indices; a prompt without a seed gets one of its own."""
    speculation = _speculation(body)
    requests: list[Request] = []
    for prompt in prompts:
        sampling = _sampling(body)
        requests += [
            Request(
                request_id=f"{call_id}-{len(requests) + choice}",
                prompt_token_ids=prompt,
                sampling=sampling,
                choice_index=choice,
                speculation=speculation,
                tenant=tenant,
            )
            for choice in range(body.num_choices)
        ]
    return requests


def check_token_ids(body: GenerationBody, model: ModelInfo) -> None:
    """Raises InvalidRequestError for a bias or stop token outside the vocabulary."""
    request_check.check_token_ids(body.logit_bias, "logit_bias", model.vocab_size)
    request_check.check_token_ids(body.stop_token_ids or (), "stop_token_ids", model.vocab_size)


def _sampling(body: GenerationBody) -> SamplingParams:
    return SamplingParams(
        max_tokens=body.token_limit,
        min_tokens=body.min_tokens or 0,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k,
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        logit_bias=body.logit_bias,
        seed=secrets.randbits(_SEED_BITS) if body.seed is None else body.seed,
        stop=body.stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        include_stop_in_output=bool(body.include_stop_str_in_output),
        num_logprobs=body.num_logprobs,
    )


def _speculation(body: GenerationBody) -> SpeculationParams:
    options = body.speculation
    if options is None:
        return SpeculationParams()
    return SpeculationParams(
        mode=options.speculation_mode,
        max_window=options.max_window,
        drafters=None if options.drafters is None else tuple(options.drafters),
    )
