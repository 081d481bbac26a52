"""`GrammarDrafter`: drafts the tokens that a request's constraint leaves no choice about."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.config import EngineConfig
from paceline.core import Draft, Plan, Sequence
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, Proposals
from paceline.sampling.sequence_sampler import SequenceSampler


class GrammarDrafter(Drafter):
    """Drafts the text that must follow, for sequences with a constraint; for others it drafts nothing.

    The text is certain. Its tokens are those in which the tokenizer writes it, so the model usually chooses them too.
    """

    name = "grammar"

    def __init__(self, samplers: Mapping[str, SequenceSampler]) -> None:
        self._samplers = samplers

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns chains; a chain is empty where the next token is a choice."""
        return Proposals([self._propose_one(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)])

    def _propose_one(self, sequence: Sequence, plan: Plan) -> Draft:
        forced = self._samplers[sequence.sequence_id].forced_token_ids((), plan.window)
        return Draft.chain(forced, self.name) if forced else Draft()


class GrammarKind(DrafterKind):
    """The kind of drafter that drafts what constraints force."""

    name = GrammarDrafter.name
    needs_constraint = True

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Returns true: without a constraint it costs nothing."""
        return True

    def build(self, parts: DrafterParts) -> GrammarDrafter:
        """Returns a drafter that reads the constraints from the sequences' samplers."""
        return GrammarDrafter(parts.samplers)
