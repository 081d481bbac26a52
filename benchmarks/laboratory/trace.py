"""Acceptance traces: what every drafter would propose at every position of a text from plain decoding.

`trace_recorder` makes them with real models, and `simulate` replays them. They are JSON, which may be gzipped.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import msgspec

from paceline.controller.cost_model import StepCosts
from paceline.core import Draft
from paceline.core.errors import UsageError
from paceline.drafters.chains.growing_draft import DraftToken

Kind = TypeVar("Kind")


class Proposal(msgspec.Struct, frozen=True, array_like=True):
    """One draft. `parents` is None for a chain. `seconds` has a model's second choice and its confidence for each node
    of the chain, None if there is none or it was not recorded."""

    token_ids: list[int] = []
    confidences: list[float] = []
    parents: list[int | None] | None = None
    seconds: list[tuple[int, float] | None] = []

    @classmethod
    def of(cls, draft: Draft) -> Proposal:
        """Returns a draft as a proposal, without its drafter's name. Confidences are rounded to three digits."""
        confidences = [round(confidence, 3) for confidence in draft.confidences]
        return cls(list(draft.token_ids), confidences, None if draft.is_chain else list(draft.parents))

    @classmethod
    def of_chain(cls, guesses: list[DraftToken]) -> Proposal:
        """Returns a chain with its second choices. Confidences are rounded to three digits."""
        seconds = [
            None if (second := guess.second) is None else (second.token_id, round(second.confidence, 3))
            for guess in guesses
        ]
        return cls(
            [guess.token_id for guess in guesses], [round(guess.confidence, 3) for guess in guesses], None, seconds
        )

    def guesses(self) -> Iterator[DraftToken]:
        """Yields the tokens that `of_chain` received."""
        for token_id, confidence, second in zip_longest(self.token_ids, self.confidences, self.seconds):
            yield DraftToken(token_id, confidence, None if second is None else DraftToken(*second))

    def draft(self, drafter: str) -> Draft:
        """Returns the draft, with the drafter's name."""
        if self.parents is None:
            return Draft.chain(self.token_ids, drafter, self.confidences)
        return Draft(tuple(self.token_ids), tuple(self.parents), tuple(self.confidences), drafter)


class PromptTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: `proposals[drafter][i]` is what the drafter proposes once `token_ids[: i + 1]` are committed."""

    prompt_id: str
    task: str
    num_prompt_tokens: int
    token_ids: list[int]
    proposals: dict[str, list[Proposal]]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Answers of one target. `made_drafters` are the drafters that run a model. `costs` were measured on the recording
    machine and have a price for each of them."""

    target: str
    draft: str | None
    made_drafters: list[str]
    costs: StepCosts
    prompts: list[PromptTrace]


def read_trace(path: Path) -> Trace:
    """Returns the trace in the file. Raises UsageError if it cannot be read."""
    return _read(path, Trace, "trace")


def read_costs(path: Path) -> StepCosts:
    """Returns the cost model in the file, for `simulate`. Raises UsageError if it cannot be read."""
    return _read(path, StepCosts, "cost model")


def _read(path: Path, kind: type[Kind], word: str) -> Kind:
    try:
        content = path.read_bytes()
        return msgspec.json.decode(gzip.decompress(content) if path.suffix == ".gz" else content, type=kind)
    except FileNotFoundError as error:
        raise UsageError(f"there is no {word} at {path}; name another file") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"the {word} {path} cannot be read: {error}") from error
