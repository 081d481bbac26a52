"""Answers in a form that `llguidance` compiles: they have it, every drafter gives the same ones, and forced text is
drafted without a model."""

from __future__ import annotations

import json
import re

import pytest
from msgspec import structs

from paceline.constraints.grammars import CONSTRAINT_KINDS
from paceline.constraints.guidance import GuidanceKind
from paceline.core import Constraint, Preface, Request, SamplingParams
from paceline.core.errors import InvalidRequestError
from paceline.drafters.suffix.drafter import SuffixDrafter
from tests.engine.engine_factory import answer, run, token_ids
from tests.engine.scripted_drafters import PartlyRightDrafter, TreeDrafter

PROMPT = [ord(letter) for letter in "the rider as json: "]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "position": {"enum": ["at the front of the line", "at the end of the line"]},
        "turns": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "position", "turns"],
    "additionalProperties": False,
}
FORMS = {
    "schema": Constraint(kind="json_schema", source=json.dumps(SCHEMA)),
    "regex": Constraint(kind="regex", source="the (rider|wheel) [a-z ]{1,20}[.]"),
    "choice": Constraint(kind="choice", source='["the front", "the wheel of the rider"]'),
    "preface": Constraint(kind="regex", source="[0-9]{4}", preface=Preface(begin="<", end="\n", is_open=True)),
}
SAMPLINGS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 1.0, "seed": 7}}
DRAFTERS = {
    "grammar": {"has_grammar": True},
    "suffix": {"drafters": [SuffixDrafter]},
    "draft-model": {"has_draft_model": True},
    "all": {"drafters": [SuffixDrafter], "has_grammar": True, "has_draft_model": True, "shared_layers": 2},
}


def guided(name: str, sampling: dict[str, object], constraint: Constraint | None, **fields: object) -> Request:
    params = SamplingParams(max_tokens=120, num_logprobs=1, **sampling)
    return Request(request_id=name, prompt_token_ids=list(PROMPT), sampling=params, constraint=constraint, **fields)


def make(engines, **settings):
    kinds = dict.fromkeys(CONSTRAINT_KINDS, GuidanceKind())
    drafters = [drafter() for drafter in settings.pop("drafters", ())]
    return engines.make(drafters, constraints=kinds, **settings)


def answers(engine, sampling) -> dict[str, tuple[object, ...]]:
    for name, form in FORMS.items():
        engine.add(guided(name, sampling, form))
    return {name: answer(outputs) for name, outputs in run(engine).items()}


def has_form(name: str, text: str) -> bool:
    match name:
        case "schema":
            value = json.loads(text)
            return (
                list(value) == ["name", "position", "turns"]
                and value["position"] in SCHEMA["properties"]["position"]["enum"]
            )
        case "regex":
            return re.fullmatch(FORMS["regex"].source, text) is not None
        case "choice":
            return text in json.loads(FORMS["choice"].source)
    return re.fullmatch(r"[^\n]*\n[ \n]{0,4}[0-9]{4}", text) is not None


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_plain_answers_have_their_form(engines, sampling):
    found = answers(make(engines), sampling)
    for name, (_, text, finish_reason, *_) in found.items():
        if name == "preface" and finish_reason == "length":
            continue  # nothing makes a tiny model end its preface
        assert finish_reason == "stop", (name, text)
        assert has_form(name, text), (name, text)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("setting", DRAFTERS.values(), ids=DRAFTERS)
def test_every_drafter_gives_the_answers_of_plain_decoding(engines, setting, sampling):
    assert answers(make(engines, **setting), sampling) == answers(make(engines), sampling)


@pytest.mark.parametrize("window", [1, 3, 16])
def test_every_window_gives_the_answers_of_plain_decoding(engines, window):
    sampling = SAMPLINGS["sampled"]
    found = answers(make(engines, **DRAFTERS["all"], window=window), sampling)
    assert found == answers(make(engines), sampling)


@pytest.mark.parametrize("drafter", [PartlyRightDrafter, TreeDrafter])
def test_drafts_that_leave_the_form_change_nothing(engines, drafter):
    sampling = SAMPLINGS["sampled"]
    plain = answers(make(engines), sampling)
    for name in FORMS:
        scripted = drafter({tuple(PROMPT): plain[name][0]}, engines.vocab_size, seed=3)
        engine = engines.make([scripted], constraints=dict.fromkeys(CONSTRAINT_KINDS, GuidanceKind()))
        engine.add(guided(name, sampling, FORMS[name]))
        assert answer(run(engine)[name]) == plain[name]


def test_forced_text_is_drafted_without_a_model(engines):
    engine = make(engines, has_grammar=True, max_batch_size=1, window=16)
    engine.add(guided("r", SAMPLINGS["greedy"], FORMS["schema"]))
    outputs = run(engine)["r"]
    two_steps = outputs[0].text + outputs[1].text  # the first step reads the prompt and drafts nothing
    assert two_steps.startswith('{"name": "')
    drafted, accepted = outputs[-1].speculation.by_drafter["grammar"]
    assert accepted > 40
    assert drafted - accepted <= 2  # the last token of forced text may go on in another way


def test_the_grammar_drafter_drafts_nothing_without_a_constraint(engines):
    engine = make(engines, has_grammar=True)
    engine.add(guided("r", SAMPLINGS["greedy"], None))
    assert run(engine)["r"][-1].speculation.num_draft_tokens == 0


def test_ignored_ends_of_the_text_are_all_that_follows_the_form(engines):
    engine = make(engines, has_grammar=True)
    form = FORMS["choice"]
    wanted = guided("r", {**SAMPLINGS["greedy"], "ignore_eos": True}, form)
    engine.add(structs.replace(wanted, sampling=structs.replace(wanted.sampling, max_tokens=40)))
    outputs = run(engine)["r"]
    assert len(token_ids(outputs)) == 40
    assert "".join(output.text for output in outputs) in json.loads(form.source)
    assert set(token_ids(outputs)[-10:]) <= engine.tokenizer.eos_token_ids


@pytest.mark.parametrize("num_resumed", [1, 9, 30])
def test_a_resumed_answer_goes_on_in_its_form(engines, num_resumed):
    sampling = SAMPLINGS["sampled"]
    whole = answers(make(engines), sampling)["schema"][0]
    engine = make(engines, **DRAFTERS["all"])
    engine.add(guided("r", sampling, FORMS["schema"], resumed_token_ids=whole[:num_resumed]))
    assert [token for output in run(engine)["r"] for token in output.token_ids] == whole[num_resumed:]


def test_resumed_tokens_that_left_the_form_end_the_answer_with_an_error(engines):
    engine = make(engines, has_grammar=True)
    engine.add(guided("r", SAMPLINGS["greedy"], FORMS["schema"], resumed_token_ids=[ord("x")]))
    engine.add(guided("other", SAMPLINGS["greedy"], FORMS["choice"]))
    found = run(engine)
    assert found["r"][-1].finish_reason == "error"
    assert "".join(output.text for output in found["other"]) in json.loads(FORMS["choice"].source)


def test_a_form_that_exhausts_the_library_ends_its_own_answer_with_an_error(engines):
    """The same form fails again for the next request, and an answer in another form goes on."""
    engine = make(engines, has_grammar=True)
    exhausting = Constraint(kind="regex", source="(((a{100}){100}){100})")
    for name in ("first", "second"):
        engine.add(guided(name, SAMPLINGS["greedy"], exhausting))
        engine.add(guided("other", SAMPLINGS["greedy"], FORMS["choice"]))
        found = run(engine)
        assert found[name][-1].finish_reason == "error"
        assert "".join(output.text for output in found["other"]) in json.loads(FORMS["choice"].source)


def test_a_constraint_that_does_not_compile_is_refused_and_named(engines):
    engine = make(engines)
    constraint = Constraint(kind="json_schema", source='{"not": {}}', field="response_format")
    with pytest.raises(InvalidRequestError, match='"not"') as caught:
        engine.add(guided("r", {}, constraint))
    assert caught.value.param == "response_format"
    with pytest.raises(InvalidRequestError, match='"not"'):
        engine.prepare(constraint)


def test_logprobs_are_those_before_the_mask(engines):
    """The forced tokens of a choice are unlikely for the model, and their log-probabilities say so."""
    engine = make(engines)
    engine.add(guided("r", SAMPLINGS["greedy"], Constraint(kind="choice", source='["qqqq"]')))
    entries = [entry for output in run(engine)["r"] for entry in output.logprobs]
    assert min(entry.logprob for entry in entries[:4]) < -3.0


def test_bias_and_penalties_act_beside_the_mask(engines):
    form = Constraint(kind="regex", source="[ab]{30}")
    texts = {}
    for name, sampling in {
        "plain": {},
        "bias": {"logit_bias": {ord("a"): -100.0}},
        "penalty": {"frequency_penalty": 2.0},
    }.items():
        engine = make(engines)
        engine.add(guided(name, {"temperature": 0.0, **sampling}, form))
        texts[name] = "".join(output.text for output in run(engine)[name])
    assert set(texts["bias"]) == {"b"}
    assert re.fullmatch("[ab]{30}", texts["penalty"])
    assert {"a", "b"} <= set(texts["penalty"])


def test_masks_are_counted(engines):
    engine = make(engines)
    engine.add(guided("r", SAMPLINGS["greedy"], FORMS["choice"]))
    engine.add(guided("free", SAMPLINGS["greedy"], None))
    num_tokens = len(token_ids(run(engine)["r"]))
    stats = engine.stats()
    assert stats.num_masks == num_tokens
    assert 0.0 < stats.mask_s < stats.masked_step_s


def test_generate_and_stream_take_a_constraint(engines):
    engine = make(engines, has_grammar=True)
    sampling = SamplingParams(temperature=0.0, max_tokens=60)
    form = FORMS["choice"]
    [completion] = engine.generate([list(PROMPT)], sampling, constraint=form)
    assert completion.text in json.loads(form.source)
    assert "".join(one.text for one in engine.stream(list(PROMPT), sampling, constraint=form)) == completion.text
