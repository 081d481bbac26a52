"""The interfaces of drafters: a `Drafter` guesses tokens, and a `DrafterKind` chooses, checks and builds it.

A drafter reads sequences and never writes them. It does not know how its drafts are verified, and no proposal can
change the text. A drafter with its own KV store also has its own block manager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.backends.protocol import Model
from paceline.config import EngineConfig
from paceline.core import Draft, ModelConfig, Plan, Sequence, Verdict
from paceline.drafters.chains.drawing import Drawer
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.sampling.sequence_sampler import SequenceSampler


@dataclass(frozen=True, slots=True)
class Proposals:
    """One draft for each sequence. `pass_rows` has the number of rows with logits in each pass of the drafter's model.
    It is None if the drafter does not count them."""

    drafts: list[Draft]
    pass_rows: list[int] | None = None


class Drafter(ABC):
    """Guesses the next tokens of running sequences. A subclass must define `name` and `propose`; the rest has defaults.

    Plans, drafts and the drafter's kind use the same `name`. If `is_free` is true, a proposal costs so little that the
    drafter proposes in every step before the controller plans. Other drafters propose only if a plan names them.
    """

    name: str
    is_free: bool = True

    def begin(self, sequence: Sequence) -> None:  # noqa: B027 - there may be nothing to do
        """Starts to follow a sequence that runs from now on. The engine calls it before any other method for this
        sequence. The prompt may be computed or not. A resumed or preempted sequence already has output."""

    def num_missed(self, sequence: Sequence) -> int | None:
        """Returns the number of committed tokens that must be read before a draft can start, without the last one.
        Returns None if there is no room for them now, so the drafter cannot draft."""
        return 0

    @abstractmethod
    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns one draft for each sequence, with at most `plans[i].window` nodes. A draft may be empty. Drafts may
        differ in length, and one sequence never limits another. All `sequences` were begun and their prompts computed.

        A draft has the drafter's `name`, and its tokens are in the target's vocabulary. The engine switches off a
        drafter that raises an exception or breaks this contract."""

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:  # noqa: B027
        """Receives the verdicts on this step's drafts, whichever drafter made them. The tokens of the verdicts are
        already in `sequences[i].token_ids`. The engine does not pass sequences that have ended."""

    def end(self, sequence: Sequence) -> None:  # noqa: B027
        """Forgets a sequence that finished, was aborted or was preempted. The sequence can begin again later."""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A loaded draft model. `vocabulary_map` maps its tokens to the target's; None means that they are the same."""

    model: Model
    vocabulary_map: VocabularyMap | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterParts:
    """What drafters are built from. `samplers` holds the target's sampler of each sequence by sequence id; the
    engine fills it. `num_blocks` is the number of KV blocks of the target, and of each model with its own KV memory.
    """

    config: EngineConfig
    target: Model
    drawer: Drawer
    samplers: Mapping[str, SequenceSampler]
    num_blocks: int
    draft: DraftModel | None = None


class DrafterKind(ABC):
    """One kind of drafter in the registry. A subclass must define `name` and `build`; the rest has defaults.

    `settings` are the names of the settings that only this kind reads. If `is_free` is false, the kind runs a model,
    and the engine measures the time of its passes. `uses_draft_model` says that this model is the draft model.
    `needs_constraint` says that the kind drafts only for requests with a constraint.
    """

    name: str
    is_free: bool = True
    uses_draft_model: bool = False
    needs_constraint: bool = False
    settings: tuple[str, ...] = ()

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Returns whether this kind runs if the settings name no drafters."""
        return has_draft_model if self.uses_draft_model else False

    def enabled(self, config: EngineConfig, target: ModelConfig) -> EngineConfig:
        """Returns the settings, completed with those that this kind needs and that are not set. `verify` uses it."""
        return config

    def check_settings(self, config: EngineConfig) -> None:  # noqa: B027
        """Raises ConfigError for settings with which this kind cannot run. Called before a file is pulled or opened."""

    def check(self, config: EngineConfig, target: ModelConfig) -> None:  # noqa: B027
        """Raises ConfigError for settings that do not fit this target. Called before weights are loaded."""

    def remembers_outputs(self, config: EngineConfig) -> bool:
        """Returns whether this kind drafts from the answers to earlier requests of the same tenant."""
        return False

    def priced_model(self, parts: DrafterParts) -> Model | None:
        """Returns the model whose passes this kind runs, None for a free kind."""
        return None

    @abstractmethod
    def build(self, parts: DrafterParts) -> Drafter:
        """Returns a drafter for one engine, with the `name` and `is_free` of this kind."""
