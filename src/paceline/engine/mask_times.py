"""`MaskTimes`: counts the masks of constraints and the time that they take."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.sampling.constraints import Masks


@dataclass(slots=True)
class MaskTimes:
    """The masks for rows of the target since the start, the time that they took, and the time of steps that had any."""

    num_masks: int = 0
    mask_s: float = 0.0
    step_s: float = 0.0

    def add(self, masks: Masks, mask_s: float, step_s: float) -> None:
        """Counts one step; nothing changes if it had no masks."""
        if masks.bits is not None:
            self.num_masks += len(masks.bits)
            self.mask_s += mask_s
            self.step_s += step_s
