"""What a client asked, as plain immutable data that crosses process borders through msgspec.

A `Request` is one choice of one API call, tokenized and complete: the engine needs nothing else to answer it.
"""

from __future__ import annotations

import enum

import msgspec


class SpeculationMode(enum.StrEnum):
    """Whether drafts may be made for a request."""

    AUTO = "auto"
    OFF = "off"


class SpeculationParams(msgspec.Struct, frozen=True, kw_only=True):
    """Per-request control of speculation; it never changes the text. `drafters` None allows every drafter that runs."""

    mode: SpeculationMode = SpeculationMode.AUTO
    max_window: int | None = None
    drafters: tuple[str, ...] | None = None


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the target's distribution is processed and when a sequence ends.

    Order of processing: penalties, bias, temperature, top-k, top-p, min-p (docs/architecture.md, the acceptance rule).
    `temperature` 0 is greedy. `seed` None lets the receiver draw 64 bits. `top_k` None keeps all tokens. `num_logprobs`
    None returns no log-probabilities; n returns those of each sampled token and of the n most likely tokens beside it
    (raw model distribution, before processing). With `has_prompt_logprobs`, the same is returned for the prompt's
    tokens. `min_tokens` bans end-of-sequence and `stop_token_ids` until that many tokens were output.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_in_output: bool = False
    num_logprobs: int | None = None
    has_prompt_logprobs: bool = False


class Preface(msgspec.Struct, frozen=True, kw_only=True):
    """Free text, such as reasoning, that may come before the constrained text: from `begin` to `end`, both included.

    If `is_open`, the prompt ends within this text, so the output must contain `end` before its constrained text.
    """

    begin: str
    end: str
    is_open: bool = False


class Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """The form that an output must have: `source` is written in the language that `kind` names.

    `preface` is free text before it (None: the constraint holds from the first token on). `field` is the field of the
    client's request that asks for the form; errors name it.
    """

    kind: str
    source: str
    preface: Preface | None = None
    field: str = "constraint"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to generate.

    `resumed_token_ids` are tokens already output before a restart. They are prefilled like a prompt, but count as
    output for penalties, limits, stop strings, log-probabilities and usage. `choice_index` is part of the noise's key,
    so that the choices of one call differ. `tenant` names who sent the call; the gateway finds it out and never takes
    it from the client's word. Drafts and cached KV come only from requests of the same tenant. With `has_progress`,
    there are outputs without tokens while the prompt is read.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams = SamplingParams()
    choice_index: int = 0
    resumed_token_ids: list[int] = []
    has_progress: bool = False
    speculation: SpeculationParams = SpeculationParams()
    tenant: str = ""
    constraint: Constraint | None = None
