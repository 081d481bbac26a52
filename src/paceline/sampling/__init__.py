"""Checks of sampling parameters and requests, and the interfaces of samplers and constraints.

The backends implement the rule that turns logits into tokens. Nothing here loads the native core, so that the gateway
can run the same checks as the engine.
"""

from paceline.sampling.parameters import RANGES, Range, check_sampling_params, normalize
from paceline.sampling.request_check import RequestLimits, check_request, check_room

__all__ = [
    "RANGES",
    "Range",
    "RequestLimits",
    "check_request",
    "check_room",
    "check_sampling_params",
    "normalize",
]
