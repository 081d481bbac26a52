"""`EngineParts`: the loaded things an engine is made of, whoever loaded them."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.backends.native.sampler import RowSampler
from paceline.backends.protocol import Model
from paceline.controller.protocol import Controller
from paceline.drafters.protocol import Drafter
from paceline.engine.verifier import Verifier
from paceline.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What `Engine.from_parts` connects.

    `num_blocks` is the size of the KV cache of the target, which the engine allocates. `samplers` is filled by it with
    the sampler of every request it holds, by request id; a draft model's drafter reads the same dict.
    """

    model_name: str
    target: Model
    tokenizer: Tokenizer
    num_blocks: int
    controller: Controller
    drafters: tuple[Drafter, ...] = ()
    samplers: dict[str, RowSampler] = field(default_factory=dict)
    verifier: Verifier = field(default_factory=Verifier)
    draft_model_name: str | None = None
