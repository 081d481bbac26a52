"""Sampling: which parameters and requests are understood. The rule that turns logits into tokens is the backends'.

Nothing here loads the native core, so that the gateway can check requests as the engine does.
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
