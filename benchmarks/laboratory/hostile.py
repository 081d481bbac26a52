"""Texts that mislead the controller: no draft is ever right, but the drafters may state any confidence.

They show how much automatic mode can lose. A hostile text comes either first, or after texts on which the model was
right, so that the controller has learnt to trust it.
"""

from __future__ import annotations

from dataclasses import dataclass

from laboratory.simulate import Setting, Simulation
from laboratory.trace import PromptTrace, Proposal, Trace
from paceline.controller.cost_model import StepCosts
from paceline.drafters.draft_model.kind import DraftModelKind
from paceline.drafters.suffix.kind import SuffixKind
from paceline.operations.workload import AUTO, PLAIN

NUM_TOKENS = 256
NUM_FRIENDLY = 6
PROMPT_LENGTHS = (50, 200, 600)
_MODEL_LENGTH = 16
_FREE_LENGTH = 8
_SURE = 0.95
_UNSURE = 0.2
_WRONG = 0
"""A token that no text here has."""


@dataclass(frozen=True, slots=True)
class HostileText:
    """The draft model's confidence on a text, and whether the suffix drafter proposes wrong drafts too."""

    name: str
    confidence: float
    has_free_drafts: bool = False


HOSTILE_TEXTS = (
    HostileText("model unsure", _UNSURE),
    HostileText("model sure", _SURE),
    HostileText("both sure", _SURE, has_free_drafts=True),
)


def hostile_prompt(text: HostileText, num_prompt_tokens: int) -> PromptTrace:
    """Returns the text with drafts that are always wrong."""
    model = _chain([_WRONG] * _MODEL_LENGTH, text.confidence)
    free = _chain([_WRONG] * _FREE_LENGTH if text.has_free_drafts else [], _SURE)
    return _prompt(f"hostile, {text.name}", num_prompt_tokens, [model] * NUM_TOKENS, [free] * NUM_TOKENS)


def friendly_prompt(number: int, num_prompt_tokens: int) -> PromptTrace:
    """Returns a text on which the model is right and sure, and the suffix drafter has nothing."""
    tokens = _token_ids()
    model = [_chain(tokens[place + 1 : place + 1 + _MODEL_LENGTH], _SURE) for place in range(NUM_TOKENS)]
    return _prompt(f"friendly {number}", num_prompt_tokens, model, [_chain([], _SURE)] * NUM_TOKENS)


def hostile_speed(text: HostileText, num_prompt_tokens: int, costs: StepCosts, *, after_friendly: bool) -> float:
    """Returns the speed of automatic mode on the hostile text, as a share of plain decoding's."""
    before = [friendly_prompt(number, num_prompt_tokens) for number in range(NUM_FRIENDLY if after_friendly else 0)]
    hostile = hostile_prompt(text, num_prompt_tokens)
    trace = Trace(target="made", draft="made", made_drafters=[DraftModelKind.name], costs=costs, prompts=[])
    simulation = Simulation(trace, costs)
    auto = Setting(AUTO, is_auto=True)
    friendly_s = simulation.replay(auto, before).seconds if before else 0.0
    hostile_s = simulation.replay(auto, [*before, hostile]).seconds - friendly_s
    return simulation.replay(Setting(PLAIN), [hostile]).seconds / hostile_s


def _token_ids() -> list[int]:
    return list(range(1, NUM_TOKENS + 1))


def _chain(token_ids: list[int], confidence: float) -> Proposal:
    return Proposal(token_ids, [confidence] * len(token_ids))


def _prompt(name: str, num_prompt_tokens: int, model: list[Proposal], free: list[Proposal]) -> PromptTrace:
    return PromptTrace(
        prompt_id=name,
        task="made",
        num_prompt_tokens=num_prompt_tokens,
        token_ids=_token_ids(),
        proposals={SuffixKind.name: free, DraftModelKind.name: model},
    )
