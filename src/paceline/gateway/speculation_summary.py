"""Paceline's extension of all fronts' responses: what was drafted and accepted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from paceline.gateway.answer import Choice


def speculation_of(choices: list[Choice]) -> dict[str, Any]:
    """Returns how many tokens were drafted and accepted for these choices together."""
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for choice in choices:
        for name, (num_drafted, num_accepted) in choice.speculation.by_drafter.items():
            drafted[name] += num_drafted
            accepted[name] += num_accepted
    num_steps = sum(choice.speculation.num_steps for choice in choices)
    num_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "steps": num_steps,
        "drafted": sum(choice.speculation.num_draft_tokens for choice in choices),
        "accepted": sum(choice.speculation.num_accepted_tokens for choice in choices),
        "tokens_per_step": round(num_tokens / num_steps, 3) if num_steps else 0.0,
        "by_drafter": {name: {"drafted": drafted[name], "accepted": accepted[name]} for name in drafted},
        "reason": _reason(choices),
    }


def _reason(choices: list[Choice]) -> str | None:
    """Returns the first choice's reason why nothing was drafted; None if something was drafted for any choice."""
    reasons = [choice.speculation.reason for choice in choices]
    return None if None in reasons else next(iter(reasons), None)
