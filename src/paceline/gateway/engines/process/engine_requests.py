"""Turns a call and its tokenized prompts into engine requests, one for each choice."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from msgspec import structs

from paceline.core import Constraint, Request, SamplingParams
from paceline.gateway.generation_call import GenerationCall

_SEED_BITS = 64


def engine_requests(
    call: GenerationCall, prompts: Sequence[list[int]], sampling: SamplingParams, constraint: Constraint | None
) -> list[Request]:
    """Returns a request for each choice of each prompt, in the order of the choices' indices.

    If `sampling` has no seed, each prompt gets its own random seed, which its choices share.
    """
    requests: list[Request] = []
    for prompt in prompts:
        seeded = _with_seed(sampling)
        requests += [
            Request(
                request_id=f"{call.call_id}-{len(requests) + choice}",
                prompt_token_ids=prompt,
                sampling=seeded,
                choice_index=call.first_choice_index + choice,
                resumed_token_ids=list(call.resumed_token_ids),
                has_progress=call.has_progress,
                speculation=call.speculation,
                tenant=call.principal.tenant,
                constraint=constraint,
            )
            for choice in range(call.num_choices)
        ]
    return requests


def _with_seed(sampling: SamplingParams) -> SamplingParams:
    return sampling if sampling.seed is not None else structs.replace(sampling, seed=secrets.randbits(_SEED_BITS))
