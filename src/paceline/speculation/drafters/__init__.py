"""The drafters: none, suffix, n-gram (prompt lookup), draft model, the target's first layers."""

from paceline.speculation.drafters.draft_model import DraftModelDrafter
from paceline.speculation.drafters.draft_text import MappedVocabulary
from paceline.speculation.drafters.ngram import NgramDrafter
from paceline.speculation.drafters.none import NoDrafter
from paceline.speculation.drafters.shared_layers import SharedLayersDrafter
from paceline.speculation.drafters.suffix import SuffixDrafter

__all__ = [
    "DraftModelDrafter",
    "MappedVocabulary",
    "NgramDrafter",
    "NoDrafter",
    "SharedLayersDrafter",
    "SuffixDrafter",
]
