"""Speculation: drafters guess, the controller decides who guesses how much, the verifier checks.

Nothing here can change the text: the target's own rule (models/sampling.py) picks every token.
"""

from paceline.speculation.accounting import SpeculationTimes
from paceline.speculation.adaptive import AdaptiveController
from paceline.speculation.controller import Controller, FixedController, Offer, StepOutcome, StepRoom
from paceline.speculation.cost_model import CostModel, DrafterCosts, RowTable, StepCosts
from paceline.speculation.drafter import Drafter
from paceline.speculation.drafters import (
    DraftModelDrafter,
    MappedVocabulary,
    NgramDrafter,
    NoDrafter,
    SharedLayersDrafter,
    SuffixDrafter,
)
from paceline.speculation.options import Limits
from paceline.speculation.stats import AcceptanceStats
from paceline.speculation.verifier import Verifier
from paceline.speculation.vocabulary_map import VocabularyMap

__all__ = [
    "AcceptanceStats",
    "AdaptiveController",
    "Controller",
    "CostModel",
    "DraftModelDrafter",
    "Drafter",
    "DrafterCosts",
    "FixedController",
    "Limits",
    "MappedVocabulary",
    "NgramDrafter",
    "NoDrafter",
    "Offer",
    "RowTable",
    "SharedLayersDrafter",
    "SpeculationTimes",
    "StepCosts",
    "StepOutcome",
    "StepRoom",
    "SuffixDrafter",
    "Verifier",
    "VocabularyMap",
]
