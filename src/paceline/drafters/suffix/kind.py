"""Chooses and builds the suffix drafter."""

from __future__ import annotations

from paceline.config import EngineConfig
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts


class SuffixKind(DrafterKind):
    """The kind of drafter that copies what followed the same tokens in this text or in the tenant's recent answers."""

    name = "suffix"
    settings = ("suffix_store_tokens",)

    def is_default(self, config: EngineConfig, *, has_draft_model: bool) -> bool:
        """Returns True, because it needs no model."""
        return True

    def remembers_outputs(self, config: EngineConfig) -> bool:
        """Returns whether the settings give it a store."""
        return config.suffix_store_tokens > 0

    def build(self, parts: DrafterParts) -> Drafter:
        """Returns a drafter with an empty store. Loads the native core, which has the suffix trees."""
        from paceline.drafters.suffix.drafter import SuffixDrafter

        return SuffixDrafter(store_size=parts.config.suffix_store_tokens)
