"""Speculation: drafters guess, the controller decides who guesses how much, the verifier checks.

Nothing here can change the text: the target's own rule (models/sampling.py) picks every token.
"""

from paceline.speculation.controller import Controller, FixedController
from paceline.speculation.drafter import Drafter
from paceline.speculation.drafters import DraftModelDrafter, NgramDrafter, NoDrafter, SuffixDrafter
from paceline.speculation.stats import AcceptanceStats
from paceline.speculation.verifier import Verifier

__all__ = [
    "AcceptanceStats",
    "Controller",
    "DraftModelDrafter",
    "Drafter",
    "FixedController",
    "NgramDrafter",
    "NoDrafter",
    "SuffixDrafter",
    "Verifier",
]
