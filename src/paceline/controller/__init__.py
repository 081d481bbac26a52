"""The controller: decides in each step which drafter drafts how many tokens for which sequence.

It knows drafters only by name, and it cannot change the text. Start reading at `adaptive`.
"""

from paceline.controller.adaptive import AdaptiveController
from paceline.controller.cost_model import CostModel, DrafterCosts, RowTable, StepCosts
from paceline.controller.fixed import FixedController
from paceline.controller.options import Limits
from paceline.controller.protocol import Controller, Offer

__all__ = [
    "AdaptiveController",
    "Controller",
    "CostModel",
    "DrafterCosts",
    "FixedController",
    "Limits",
    "Offer",
    "RowTable",
    "StepCosts",
]
