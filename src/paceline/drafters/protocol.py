"""What a drafter is: `Drafter` guesses tokens, `DrafterKind` says how one is chosen, checked and built.

A drafter reads sequences and never writes them; it does not know how its drafts are verified, and whatever it proposes
cannot change the text. One that owns a KV store owns that store's block manager too.
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
    """One draft for each sequence. `pass_rows` are the rows with logits of each pass that a drafter's model made, None
    from a drafter that does not count them."""

    drafts: list[Draft]
    pass_rows: list[int] | None = None


class Drafter(ABC):
    """Guesses the next tokens of running sequences; `name` and `propose` must be there, the rest has defaults.

    `name` is what plans and drafts call it, and its kind's name. `is_free` says that proposing costs so little that it
    is asked in every step before the controller plans; the others are asked only where a plan names them.
    """

    name: str
    is_free: bool = True

    def begin(self, sequence: Sequence) -> None:  # noqa: B027 - there may be nothing to do
        """Starts to follow a sequence that runs from now on, its prompt computed or not; it may have output already
        (resumed, or preempted before). Called once before anything else about it."""

    def num_missed(self, sequence: Sequence) -> int | None:
        """Returns the committed tokens that must be read before a draft can start, the last one not counted; None
        where there is no room for them now, so that it cannot draft."""
        return 0

    @abstractmethod
    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns one draft for each sequence, of at most `plans[i].window` nodes, perhaps empty; drafts are ragged,
        and one sequence never limits another. `sequences` are some of those begun, each with its prompt computed.

        A draft bears the drafter's `name`, and its tokens are in the target's vocabulary; the engine switches off a
        drafter that raises or breaks this contract."""

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:  # noqa: B027
        """Shows what became of this step's drafts, by whatever drafter they were; the verdicts' tokens are already in
        `sequences[i].token_ids`. Not called for sequences that ended."""

    def end(self, sequence: Sequence) -> None:  # noqa: B027
        """Forgets a sequence that finished, was aborted or lost its place; it can begin again."""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A loaded draft model. `vocabulary_map` relates its tokens to the target's (None: they are the same)."""

    model: Model
    vocabulary_map: VocabularyMap | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterParts:
    """What drafters are built from. `samplers` holds the target's sampler of every request by its id, and is filled by
    the engine. `num_blocks` is the size of the target's KV memory, and of that of each model with KV of its own.
    """

    config: EngineConfig
    target: Model
    drawer: Drawer
    samplers: Mapping[str, SequenceSampler]
    num_blocks: int
    draft: DraftModel | None = None


class DrafterKind(ABC):
    """One kind of drafter, as the registry knows it; `name` and `build` must be there, the rest has defaults.

    `settings` are the names of the settings that only this kind reads. A kind that is not `is_free` runs a model, whose
    passes have a price that the engine measures. `uses_draft_model` says that this is the draft model.
    """

    name: str
    is_free: bool = True
    uses_draft_model: bool = False
    settings: tuple[str, ...] = ()

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Whether it runs where the settings name no drafters."""
        return has_draft_model if self.uses_draft_model else False

    def enabled(self, config: EngineConfig, target: ModelConfig) -> EngineConfig:
        """Returns the settings with whatever this kind needs to run and they leave open, for `verify`."""
        return config

    def check_settings(self, config: EngineConfig) -> None:  # noqa: B027
        """Raises ConfigError, before anything is pulled or opened, for settings with which it cannot run."""

    def check(self, config: EngineConfig, target: ModelConfig) -> None:  # noqa: B027
        """Raises ConfigError, before weights are loaded, for settings that do not fit this target."""

    def remembers_outputs(self, config: EngineConfig) -> bool:
        """Whether it drafts from what earlier requests of the same tenant were told."""
        return False

    def priced_model(self, parts: DrafterParts) -> Model | None:
        """Returns the model whose passes it pays for; None for a free kind."""
        return None

    @abstractmethod
    def build(self, parts: DrafterParts) -> Drafter:
        """Returns a drafter for one engine, with the `name` and `is_free` of this kind."""
