"""How the suffix drafter is chosen and built."""

from __future__ import annotations

from paceline.config import EngineConfig
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts


class SuffixKind(DrafterKind):
    """Goes on as the text so far, or what requests of the tenant were told lately, went on after the same words."""

    name = "suffix"
    settings = ("suffix_store_tokens",)

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Always: it needs no model."""
        return True

    def remembers_outputs(self, config: EngineConfig) -> bool:
        """Whether it has a store."""
        return config.suffix_store_tokens > 0

    def build(self, parts: DrafterParts) -> Drafter:
        """Returns a drafter with an empty store; loads the native core, which has its trees."""
        from paceline.drafters.suffix.drafter import SuffixDrafter

        return SuffixDrafter(store_size=parts.config.suffix_store_tokens)
