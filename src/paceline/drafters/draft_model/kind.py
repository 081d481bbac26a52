"""Chooses and builds the draft-model drafter, and says how its model is loaded."""

from __future__ import annotations

from paceline.backends.protocol import LoadOptions, Model
from paceline.backends.slimming import Slimming
from paceline.config import EngineConfig
from paceline.core import ActivationRounding, ModelConfig
from paceline.core.errors import ConfigError
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, DraftModel
from paceline.tokenizer import Tokenizer

_LENGTH_RATIO = 2
"""The draft model has room for this many tokens for each token of the target. It cannot draft for longer texts."""


class DraftModelKind(DrafterKind):
    """The kind of drafter in which a smaller model guesses."""

    name = "draft-model"
    is_free = False
    uses_draft_model = True
    settings = ("draft_vocab_size", "draft_weight_bits")

    def priced_model(self, parts: DrafterParts) -> Model:
        """Returns the draft model."""
        return _draft_of(parts).model

    def build(self, parts: DrafterParts) -> Drafter:
        """Returns a drafter whose model has as many KV blocks as the target. Loads the native core, because the drafter
        reads ahead the guesses of its suffix trees."""
        from paceline.drafters.draft_model.drafter import DraftModelDrafter
        from paceline.drafters.draft_model.text import MappedVocabulary

        draft = _draft_of(parts)
        return DraftModelDrafter(
            draft.model,
            parts.samplers,
            parts.drawer,
            num_blocks=parts.num_blocks,
            prefill_chunk_size=parts.config.prefill_chunk_size,
            max_length=draft.model.max_positions,
            vocabulary=None if draft.vocabulary_map is None else MappedVocabulary(draft.vocabulary_map),
            has_prefix_cache=parts.config.has_prefix_cache,
        )


def draft_load_options(
    config: EngineConfig, context_size: int, model: ModelConfig, tokenizer: Tokenizer
) -> LoadOptions:
    """Returns the options for loading a draft model. The model is slimmed as the settings say, and it has room for the
    texts of a target whose sequences have `context_size` tokens.

    A slimmed vocabulary keeps the special tokens. If the settings give `draft_weight_bits`, activations are rounded to
    8 bits.
    """
    is_slimmed = config.draft_weight_bits is not None
    rounding = ActivationRounding.EIGHT_BITS if is_slimmed else config.activation_rounding
    return LoadOptions(
        max_positions=min(_LENGTH_RATIO * context_size, model.max_context),
        kv_cache_type=config.kv_cache_type,
        activation_rounding=rounding,
        slimming=Slimming.of_vocabulary(
            config.draft_vocab_size, tokenizer.vocab_size, tokenizer.special_token_ids, has_four_bits=is_slimmed
        ),
    )


def _draft_of(parts: DrafterParts) -> DraftModel:
    if parts.draft is None:
        raise ConfigError("the drafter draft-model needs a draft model; name one with --draft-model")
    return parts.draft
