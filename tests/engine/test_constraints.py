"""A constraint holds with every drafter: constrained texts equal those of plain decoding, and drafts obey it too."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from paceline.core import Constraint, Request, SamplingParams
from paceline.core.errors import InvalidRequestError
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.suffix.drafter import SuffixDrafter
from tests.engine.engine_factory import answer, run, token_ids
from tests.engine.scripted_drafters import PartlyRightDrafter, TreeDrafter
from tests.support.digit_groups import COMMA, DIGITS, DigitGroups, DigitGroupsState

NUM_TOKENS = 40
PROMPT = [ord(letter) for letter in "the numbers 123,456,"]
SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "seed": 7},
    "penalized": {"temperature": 0.7, "frequency_penalty": 0.4, "seed": 3},
}
DRAFTERS = {
    "suffix": {"drafters": [SuffixDrafter]},
    "ngram": {"drafters": [NgramDrafter]},
    "draft-model": {"has_draft_model": True},
    "shared-layers": {"shared_layers": 2},
    "all": {"drafters": [SuffixDrafter, NgramDrafter], "has_draft_model": True, "shared_layers": 2},
}


def constrained(name: str, sampling: dict[str, object], size: int = 3, **fields: object) -> Request:
    params = SamplingParams(max_tokens=NUM_TOKENS, ignore_eos=True, num_logprobs=2, **sampling)
    constraint = Constraint(kind="digit-groups", source=str(size))
    return Request(request_id=name, prompt_token_ids=list(PROMPT), sampling=params, constraint=constraint, **fields)


def requests(sampling: dict[str, object]) -> list[Request]:
    """Returns three constrained requests, with groups of different sizes, and one request without a constraint."""
    free = structs.replace(constrained("free", sampling), constraint=None)
    return [free, *(constrained(str(size), sampling, size) for size in (1, 3, 8))]


def answers(engine, all_requests) -> dict[str, tuple[object, ...]]:
    for one in all_requests:
        engine.add(one)
    return {name: answer(outputs) for name, outputs in run(engine).items()}


def plain_answers(engines, sampling: dict[str, object]) -> dict[str, tuple[object, ...]]:
    return answers(engines.make(constraints={"digit-groups": DigitGroups()}), requests(sampling))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_plain_texts_have_the_form(engines, sampling):
    found = plain_answers(engines, sampling)
    for size in (1, 3, 8):
        _, text, *_ = found[str(size)]
        assert len(text) == NUM_TOKENS
        assert re.fullmatch(rf"(\d{{{size}}},)*\d{{0,{size}}}", text), text
    assert not re.fullmatch(r"[\d,]*", found["free"][1])


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("setting", DRAFTERS.values(), ids=DRAFTERS)
def test_every_drafter_gives_the_constrained_text_of_plain_decoding(engines, setting, sampling):
    drafters = [make() for make in setting.get("drafters", ())]
    kind = DigitGroups()
    engine = engines.make(**{**setting, "drafters": drafters}, constraints={"digit-groups": kind})
    assert answers(engine, requests(sampling)) == plain_answers(engines, sampling)
    stats = engine.stats()
    assert stats.num_accepted_tokens > 10
    assert max(kind.num_rows) > 3  # one call fills the rows of all nodes of all drafts


@pytest.mark.parametrize("drafter", [PartlyRightDrafter, TreeDrafter])
def test_drafts_that_break_the_constraint_change_nothing(engines, drafter):
    sampling = SAMPLINGS["sampled"]
    plain = plain_answers(engines, sampling)
    for size in (1, 3, 8):
        scripted = drafter({tuple(PROMPT): plain[str(size)][0]}, engines.vocab_size, seed=size)
        engine = engines.make([scripted], constraints={"digit-groups": DigitGroups()})
        drafted = answers(engine, [constrained(str(size), sampling, size)])
        assert drafted[str(size)] == plain[str(size)]
        assert 0 < engine.stats().num_accepted_tokens < engine.stats().num_draft_tokens


def test_a_draft_model_drafts_nothing_that_the_constraint_forbids(engines):
    """The draft model drafts only digits, and commas in their places, so only wrong digits are rejected."""
    engine = engines.make(has_draft_model=True, constraints={"digit-groups": DigitGroups()}, max_batch_size=1)
    engine.add(constrained("r", SAMPLINGS["greedy"], size=1))
    stats = engine.stats()
    run(engine)
    after = engine.stats()
    num_drafted = after.num_draft_tokens - stats.num_draft_tokens
    num_accepted = after.num_accepted_tokens - stats.num_accepted_tokens
    assert num_accepted >= 0.4 * num_drafted  # every second token is a comma, which has no alternative


@pytest.mark.parametrize("num_resumed", [1, 4, 6, 17])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_resumed_tokens_count_as_output_of_the_constraint(engines, sampling, num_resumed):
    engine = engines.make(constraints={"digit-groups": DigitGroups()})
    engine.add(constrained("r", sampling))
    whole = token_ids(run(engine)["r"])
    engine = engines.make([SuffixDrafter()], has_draft_model=True, constraints={"digit-groups": DigitGroups()})
    engine.add(constrained("r", sampling, resumed_token_ids=whole[:num_resumed]))
    rest = [token for output in run(engine)["r"] for token in output.token_ids]
    assert rest == whole[num_resumed:]


def test_a_preempted_sequence_goes_on_in_its_form(engines):
    sampling = SAMPLINGS["sampled"]
    plain = plain_answers(engines, sampling)
    engine = engines.make(
        [SuffixDrafter()],
        has_draft_model=True,
        num_blocks=9,
        context_window_size=96,
        constraints={"digit-groups": DigitGroups()},
    )
    assert answers(engine, requests(sampling)) == plain
    assert engine.stats().num_preemptions > 0


def test_forced_tokens_can_be_asked_for():
    state = DigitGroupsState(2)
    assert state.forced_token_ids((), 9) == []
    assert state.forced_token_ids(DIGITS[:2], 9) == [COMMA]
    state.advance(DIGITS[:2])
    assert state.forced_token_ids((), 9) == [COMMA]
    assert state.forced_token_ids([COMMA], 9) == []


@pytest.mark.parametrize(("kind", "source"), [("unknown", "3"), ("digit-groups", "three")])
def test_a_constraint_that_nobody_understands_is_refused(engines, kind, source):
    engine = engines.make(constraints={"digit-groups": DigitGroups()})
    wanted = structs.replace(constrained("r", {}), constraint=Constraint(kind=kind, source=source))
    with pytest.raises(InvalidRequestError, match="constraint") as caught:
        engine.add(wanted)
    assert caught.value.param == "constraint"
    assert not engine.has_unfinished


class FailingGroups(DigitGroups):
    """Raises when it is asked for masks while `is_broken`."""

    is_broken = False

    def fill(self, masks, queries):
        super().fill(masks, queries)
        if self.is_broken:
            raise ValueError("no masks today")


def test_a_constraint_that_fails_ends_only_the_sequences_that_carry_it(engines, caplog):
    kind = FailingGroups()
    engine = engines.make(constraints={"digit-groups": kind, "others": DigitGroups()})
    sampling = SAMPLINGS["greedy"]
    expected = plain_answers(engines, sampling)["3"]
    other = structs.replace(constrained("other", sampling), constraint=Constraint(kind="others", source="3"))
    engine.add(constrained("failing", sampling))
    engine.add(other)
    engine.step()
    kind.is_broken = True
    found = run(engine)
    assert found["failing"][-1].finish_reason == "error"
    assert token_ids(found["other"])[-5:] == list(expected[0])[-5:]
    assert "no masks today" in caplog.text
