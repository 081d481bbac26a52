"""`MaskTimes`: counts the masks of constraints and the time that they take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class MaskTimes:
    """The masks for rows of the target since the start, the time that they took, and the time of steps that had any."""

    num_masks: int = 0
    mask_s: float = 0.0
    step_s: float = 0.0

    def add(self, num_masks: int, mask_s: float, step_s: float) -> None:
        """Counts one step with masks."""
        self.num_masks += num_masks
        self.mask_s += mask_s
        self.step_s += step_s
