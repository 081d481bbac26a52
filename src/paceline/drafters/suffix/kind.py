"""How the suffix drafter is chosen and built."""

from __future__ import annotations

from paceline.config import EngineConfig
from paceline.drafters.protocol import DrafterKind, DrafterParts
from paceline.drafters.suffix.drafter import SuffixDrafter


class SuffixKind(DrafterKind):
    """Goes on as the text so far, or what requests of the tenant were told lately, went on after the same words."""

    name = SuffixDrafter.name
    summary = "goes on as this text, or recent answers to the same API key, went on after the same words"
    settings = ("suffix_store_tokens",)

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Always: it needs no model."""
        return True

    def remembers_outputs(self, config: EngineConfig) -> bool:
        """Whether it has a store."""
        return config.suffix_store_tokens > 0

    def build(self, parts: DrafterParts) -> SuffixDrafter:
        """Returns a drafter with an empty store."""
        return SuffixDrafter(store_size=parts.config.suffix_store_tokens)
