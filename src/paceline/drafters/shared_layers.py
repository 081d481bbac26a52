"""`SharedLayersDrafter`: the target's first layers guess (self-speculation), for targets without a draft model.

It has no weights and no KV of its own. It reads the target's K and V of the committed text. It writes the K and V of
its drafted tokens to the slots that the scheduler reserved for the draft, where the target later writes the same bits.
It therefore never has a text to read first, or KV to move or to free.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.backends.first_layers import check_num_first_layers
from paceline.backends.protocol import Model
from paceline.config import EngineConfig
from paceline.core import ModelConfig, Plan, Sequence
from paceline.core.errors import ConfigError
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch
from paceline.drafters.chains.drawing import Drawer, SequenceDraft
from paceline.drafters.chains.growing_draft import GrowingDraft
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, Proposals
from paceline.sampling.sequence_sampler import SequenceSampler


class SharedLayersDrafter(Drafter):
    """Drafts chains with `first_layers`, which use the target's KV. Each depth takes one pass.

    `samplers` are the target's, by sequence id.
    """

    name = "shared-layers"
    is_free = False

    def __init__(self, first_layers: Model, samplers: Mapping[str, SequenceSampler], drawer: Drawer) -> None:
        self._model = first_layers
        self._samplers = samplers
        self._drawer = drawer

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns drafts of up to `window` nodes, as far as the block table has slots for them. Blocks for one pass of
        the first layers for each depth."""
        drafts = [self._open(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)]
        active = [draft for draft in drafts if draft.growing.window > 0]
        while active:
            batch = build_chain_batch([_last_token(draft) for draft in active], self._model.kv.block_size)
            active = self._drawer.draw(active, self._model.forward(batch))
        return Proposals([draft.growing.finish(self.name) for draft in drafts])

    def _open(self, sequence: Sequence, plan: Plan) -> SequenceDraft:
        """Returns a new draft. Its last token is not fed back, so it needs no slot."""
        num_slots = len(sequence.block_table) * self._model.kv.block_size
        window = max(0, min(plan.window, num_slots - len(sequence.token_ids) + 1))
        sampler = self._samplers[sequence.sequence_id]
        return SequenceDraft(sequence=sequence, sampler=sampler, growing=GrowingDraft(plan, window))


class SharedLayersKind(DrafterKind):
    """The kind of drafter in which the target's first layers guess."""

    name = SharedLayersDrafter.name
    is_free = False
    settings = ("shared_layers",)

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Returns whether the settings give a number of layers."""
        return bool(config.shared_layers)

    def enabled(self, config: EngineConfig, target: ModelConfig) -> EngineConfig:
        """Returns the settings, with half of the target's layers if they give no number."""
        if config.shared_layers is not None:
            return config
        return config.model_copy(update={"shared_layers": target.num_layers // 2})

    def check_settings(self, config: EngineConfig) -> None:
        """Raises ConfigError if the settings give no number of layers."""
        if not config.shared_layers:
            raise ConfigError("the drafter shared-layers needs to know how many layers: say so with --shared-layers")

    def check(self, config: EngineConfig, target: ModelConfig) -> None:
        """Raises ConfigError unless the number of layers is below the target's."""
        check_num_first_layers(target, config.shared_layers or 0)

    def priced_model(self, parts: DrafterParts) -> Model:
        """Returns the first layers, which share weights and KV with the target."""
        return parts.target.first_layers(parts.config.shared_layers or 0)

    def build(self, parts: DrafterParts) -> SharedLayersDrafter:
        """Returns a drafter on the target's first layers."""
        return SharedLayersDrafter(self.priced_model(parts), parts.samplers, parts.drawer)


def _last_token(draft: SequenceDraft) -> TokenRun:
    """Returns the run that gives the logits after the draft, or after the text if the draft is empty."""
    token_ids, drawn = draft.sequence.token_ids, draft.growing.token_ids
    position = len(token_ids) - 1 + len(drawn)
    return TokenRun(draft.sequence.block_table, position, [(drawn or token_ids)[-1]], needs_logits=True)
