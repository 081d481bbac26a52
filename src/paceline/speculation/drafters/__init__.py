"""The drafters: none, suffix, n-gram (prompt lookup), draft model."""

from paceline.speculation.drafters.draft_model import DraftModelDrafter
from paceline.speculation.drafters.draft_text import MappedVocabulary
from paceline.speculation.drafters.ngram import NgramDrafter
from paceline.speculation.drafters.none import NoDrafter
from paceline.speculation.drafters.suffix import SuffixDrafter

__all__ = ["DraftModelDrafter", "MappedVocabulary", "NgramDrafter", "NoDrafter", "SuffixDrafter"]
