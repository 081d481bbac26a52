"""`EngineParts`: the loaded things an engine is made of, whoever loaded them."""

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
    """What `Engine.from_parts` connects.

    `num_blocks` is the size of the KV cache of the target, which the engine allocates. `samplers` is filled by it with
    the sampler of every request it holds, by request id; drafters that draw read the same dict. `constraints` are the
    kinds that requests may carry, by name. `verifier` None is one without row hashes.
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
