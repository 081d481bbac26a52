"""`EngineParts`: the loaded parts that make up an engine. `assembly` creates them; tests create their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.backends.protocol import Model
from paceline.controller import Controller
from paceline.drafters.protocol import Drafter
from paceline.engine.verifier import Verifier
from paceline.sampling.constraints import ConstraintKind
from paceline.sampling.sampler import Sampler
from paceline.sampling.sequence_sampler import SequenceSampler
from paceline.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """The parts that `Engine.from_parts` connects.

    `num_blocks` is the number of blocks of the target's KV cache, which the engine allocates. The engine keeps the
    sampler of each of its requests in `samplers`, by request id; drafters that sample read the same dict. `constraints`
    are the kinds of constraints that requests may have, by name. `verifier` None means one without row hashes. Engines
    with the same `model_identity` give the same texts.
    """

    model_name: str
    target: Model
    tokenizer: Tokenizer
    num_blocks: int
    sampler: Sampler
    controller: Controller
    drafters: tuple[Drafter, ...] = ()
    samplers: dict[str, SequenceSampler] = field(default_factory=dict)
    constraints: Mapping[str, ConstraintKind] = field(default_factory=dict)
    verifier: Verifier | None = None
    model_identity: str = ""
