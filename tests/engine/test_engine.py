"""Tests `Engine` as its users see it: generate, stream, add, abort, resume after a restart, and refused requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from paceline.controller.cost_model import DrafterCosts, RowTable, StepCosts
from paceline.core import Draft, FinishReason, Output, Plan, Request, SamplingParams, Sequence, SpeculationParams
from paceline.core.errors import ContextOverflowError, InvalidRequestError
from paceline.drafters.ngram import NgramDrafter
from paceline.engine.text_stream import Progress, TextStream
from tests.engine.engine_factory import CONTEXT_SIZE, answer, request, run, token_ids
from tests.engine.scripted_drafters import FailingDrafter, FailingReader, PartlyRightDrafter, RightDrafter, WrongDrafter

CHEAP_MODEL = StepCosts(
    RowTable((1, 64), (1.0, 1.1)), {"draft-model": DrafterCosts(RowTable((1, 8), (0.02, 0.02)), 0.002)}
)
GREEDY = {"temperature": 0.0, "ignore_eos": True}
PROMPT = list(b"the riders at the front")


def plain_tokens(engines, max_tokens, prompt=PROMPT, **sampling):
    engine = engines.make(window=0)
    engine.add(request("plain", prompt, max_tokens=max_tokens, **(GREEDY | sampling)))
    return token_ids(run(engine)["plain"])


def test_generate_answers_prompts_in_their_order(engines):
    engine = engines.make([NgramDrafter()])
    completions = engine.generate(
        ["the riders", PROMPT, "def main("], SamplingParams(max_tokens=12, temperature=0.0, num_logprobs=1)
    )
    assert [len(completion.token_ids) for completion in completions] == [12, 12, 12]
    assert completions[1].token_ids == plain_tokens(engines, 12)
    assert completions[1].prompt_token_ids == PROMPT
    assert completions[1].text == engine.tokenizer.decode(completions[1].token_ids)
    assert completions[1].finish_reason is FinishReason.LENGTH
    assert [entry.token_id for entry in completions[1].logprobs] == completions[1].token_ids
    assert len(completions[1].logprobs[0].top) == 1
    assert not engine.has_unfinished


def test_generate_refuses_all_before_any_work(engines):
    engine = engines.make()
    with pytest.raises(InvalidRequestError, match="the prompt is empty"):
        engine.generate(["fine", []])
    assert not engine.has_unfinished
    assert engine.stats().num_steps == 0


def test_a_stream_brings_the_same_text_in_pieces(engines):
    sampling = SamplingParams(max_tokens=20, seed=3)
    whole = engines.make().generate([PROMPT], sampling)[0]
    outputs = list(engines.make([NgramDrafter()], window=3).stream(PROMPT, sampling))
    assert "".join(output.text for output in outputs) == whole.text
    assert token_ids(outputs) == whole.token_ids
    assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)


def test_streams_can_be_read_in_turns_beside_added_requests(engines):
    engine = engines.make()
    engine.add(request("added", PROMPT, max_tokens=9, **GREEDY))
    first = engine.stream(PROMPT, SamplingParams(max_tokens=5, **GREEDY))
    second = engine.stream(PROMPT, SamplingParams(max_tokens=7, **GREEDY))
    tokens = {"first": [], "second": []}
    for _ in range(4):
        tokens["first"] += next(first).token_ids
        tokens["second"] += next(second).token_ids
    tokens["first"] += [token for output in first for token in output.token_ids]
    tokens["second"] += [token for output in second for token in output.token_ids]
    expected = plain_tokens(engines, 9)
    assert tokens == {"first": expected[:5], "second": expected[:7]}
    assert token_ids(run(engine)["added"]) == expected


def test_closing_a_stream_aborts_it(engines):
    engine = engines.make()
    stream = engine.stream(PROMPT, SamplingParams(max_tokens=100, **GREEDY))
    next(stream)
    assert engine.has_unfinished
    stream.close()
    assert not engine.has_unfinished
    engine.check_integrity()
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


def test_an_aborted_request_says_so_and_frees_its_blocks(engines):
    engine = engines.make(max_batch_size=1)
    engine.add(request("running", PROMPT, max_tokens=50, **GREEDY))
    engine.add(request("waiting", PROMPT, max_tokens=50, **GREEDY))
    engine.step()
    for name in ("running", "waiting", "unknown"):
        engine.abort(name)
    outputs = run(engine)
    assert {name: items[-1].finish_reason for name, items in outputs.items()} == {
        "running": FinishReason.ABORT,
        "waiting": FinishReason.ABORT,
    }
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


def test_outputs_carry_the_epoch(engines):
    engine = engines.make(epoch=4)
    engine.add(request("r", PROMPT, max_tokens=2, **GREEDY))
    assert {output.epoch for output in run(engine)["r"]} == {4}


def test_an_answer_ends_with_the_context(engines):
    engine = engines.make(context_window_size=40)
    engine.add(request("r", PROMPT, max_tokens=500, **GREEDY))
    outputs = run(engine)["r"]
    assert len(token_ids(outputs)) == 40 - len(PROMPT)
    assert outputs[-1].finish_reason is FinishReason.LENGTH


def test_a_prompt_must_leave_room_for_one_token(engines):
    engine = engines.make(context_window_size=40)
    engine.add(request("fits", [65] * 39, **GREEDY))
    assert len(token_ids(run(engine)["fits"])) == 1
    with pytest.raises(ContextOverflowError, match="the prompt has 40 tokens") as raised:
        engine.add(request("long", [65] * 40))
    assert raised.value.param == "prompt"
    assert raised.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt_token_ids": []}, "prompt"),
        ({"prompt_token_ids": [65, 10**6]}, "prompt"),
        ({"prompt_token_ids": [-1]}, "prompt"),
        ({"resumed_token_ids": [10**6]}, "resumed_token_ids"),
        ({"sampling": SamplingParams(max_tokens=-1)}, "max_tokens"),
        ({"sampling": SamplingParams(max_tokens=0)}, "max_tokens"),
        ({"sampling": SamplingParams(min_tokens=-1)}, "min_tokens"),
        ({"sampling": SamplingParams(min_tokens=2**63)}, "min_tokens"),
        ({"sampling": SamplingParams(min_tokens=5, max_tokens=4)}, "min_tokens"),
        ({"sampling": SamplingParams(min_tokens=CONTEXT_SIZE - len(PROMPT) + 1)}, "min_tokens"),
        ({"sampling": SamplingParams(min_tokens=CONTEXT_SIZE, max_tokens=2 * CONTEXT_SIZE)}, "min_tokens"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, "temperature"),
        ({"sampling": SamplingParams(top_p=1.5)}, "top_p"),
        ({"sampling": SamplingParams(top_k=0)}, "top_k"),
        ({"sampling": SamplingParams(top_k=2**63)}, "top_k"),
        ({"sampling": SamplingParams(top_k=2**64)}, "top_k"),
        ({"sampling": SamplingParams(stop=("",))}, "stop"),
        ({"sampling": SamplingParams(stop_token_ids=(10**6,))}, "stop_token_ids"),
        ({"sampling": SamplingParams(logit_bias={10**6: 1.0})}, "logit_bias"),
        ({"sampling": SamplingParams(seed=-1)}, "seed"),
        ({"sampling": SamplingParams(num_logprobs=-1)}, "num_logprobs"),
        ({"speculation": SpeculationParams(max_window=-1)}, "max_window"),
        ({"speculation": SpeculationParams(drafters=("oracle",))}, "speculation.drafters"),
        ({"speculation": SpeculationParams(mode="sometimes")}, "mode"),
        ({"choice_index": 2**32}, "choice_index"),
        ({"choice_index": -1}, "choice_index"),
    ],
)
def test_a_poisonous_request_is_refused_and_others_go_on(engines, changes, param):
    engine = engines.make()
    engine.add(request("good", PROMPT, max_tokens=3, **GREEDY))
    with pytest.raises(InvalidRequestError) as raised:
        engine.add(Request(**({"request_id": "bad", "prompt_token_ids": PROMPT} | changes)))
    assert raised.value.param == param
    outputs = run(engine)
    assert set(outputs) == {"good"}
    assert len(token_ids(outputs["good"])) == 3


def test_the_largest_values_are_honoured(engines):
    engine = engines.make()
    room = CONTEXT_SIZE - len(PROMPT)
    engine.add(request("long", PROMPT, min_tokens=room, top_k=2**63 - 1, seed=2**64 - 1))
    engine.add(request("short", PROMPT, min_tokens=3, max_tokens=3, **GREEDY))
    outputs = run(engine)
    assert (len(token_ids(outputs["long"])), len(token_ids(outputs["short"]))) == (room, 3)


def test_a_request_id_is_used_once_at_a_time(engines):
    engine = engines.make()
    engine.add(request("same", PROMPT, max_tokens=2, **GREEDY))
    with pytest.raises(InvalidRequestError, match="request id same is in use"):
        engine.add(request("same", PROMPT))
    run(engine)
    engine.add(request("same", PROMPT, max_tokens=2, **GREEDY))
    assert len(token_ids(run(engine)["same"])) == 2


def test_requests_without_seed_differ_and_with_a_seed_repeat(engines):
    engine = engines.make()
    free = engine.generate([PROMPT] * 3, SamplingParams(max_tokens=30))
    assert len({tuple(completion.token_ids) for completion in free}) == 3
    seeded = engine.generate([PROMPT] * 3, SamplingParams(max_tokens=30, seed=9))
    assert len({tuple(completion.token_ids) for completion in seeded}) == 1


def test_choices_of_one_seed_differ(engines):
    engine = engines.make()
    for index in range(2):
        engine.add(
            Request(
                request_id=f"c{index}",
                prompt_token_ids=PROMPT,
                choice_index=index,
                sampling=SamplingParams(max_tokens=20, seed=1),
            )
        )
    outputs = run(engine)
    assert token_ids(outputs["c0"]) != token_ids(outputs["c1"])


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"seed": 11, "frequency_penalty": 0.8, "min_tokens": 15}])
@pytest.mark.parametrize("num_resumed", [1, 7, 16, 29])
def test_a_restart_in_the_middle_goes_on_with_the_same_text(engines, sampling, num_resumed):
    options = {"max_tokens": 30, "ignore_eos": True, "num_logprobs": 0, **sampling}
    engine = engines.make()
    engine.add(request("r", PROMPT, **options))
    whole = run(engine)["r"]
    tokens, text, *_ = answer(whole)
    resumed = Request(
        request_id="r",
        prompt_token_ids=PROMPT,
        resumed_token_ids=tokens[:num_resumed],
        sampling=SamplingParams(**options),
    )
    drafter = RightDrafter({tuple(PROMPT): tokens}, engines.vocab_size)
    engine = engines.make([drafter], window=4)
    engine.add(resumed)
    rest = run(engine)["r"]
    assert rest[0].first_token_index == num_resumed
    assert [token for output in rest for token in output.token_ids] == tokens[num_resumed:]
    shown = "".join(output.text for output in whole if output.first_token_index < num_resumed)
    assert shown + "".join(output.text for output in rest) == text
    bits = [entry.logprob for output in whole for entry in output.logprobs]
    assert [entry.logprob for output in rest for entry in output.logprobs] == bits[num_resumed:]
    assert rest[-1].finish_reason is FinishReason.LENGTH


def test_a_stop_string_across_the_restart_is_found(engines):
    engine = engines.make()
    tokens = plain_tokens(engines, 30)
    texts = [engine.tokenizer.decode([token]) for token in tokens]
    border = next(
        i for i in range(5, 28) if texts[i - 1].isascii() and texts[i].isascii() and texts[i - 1] and texts[i]
    )
    stop = texts[border - 1][-1] + texts[border][0]
    sampling = {"max_tokens": 30, "stop": (stop,), **GREEDY}
    engine.add(request("whole", PROMPT, **sampling))
    whole = run(engine)["whole"]
    num_resumed = len(token_ids(whole)) - 1
    engine.add(
        Request(
            request_id="resumed",
            prompt_token_ids=PROMPT,
            resumed_token_ids=tokens[:num_resumed],
            sampling=SamplingParams(**sampling),
        )
    )
    rest = run(engine)["resumed"]
    assert whole[-1].stop_reason == rest[-1].stop_reason == stop
    shown = "".join(output.text for output in whole if output.first_token_index < num_resumed)
    assert shown + "".join(output.text for output in rest) == "".join(output.text for output in whole)


def test_resumed_tokens_that_reach_the_end_end_it(engines):
    engine = engines.make()
    tokens = plain_tokens(engines, 5)
    engine.add(
        Request(
            request_id="r",
            prompt_token_ids=PROMPT,
            resumed_token_ids=tokens,
            sampling=SamplingParams(max_tokens=5, **GREEDY),
        )
    )
    assert engine.has_unfinished
    (output,) = engine.step()
    assert (output.first_token_index, output.token_ids, output.finish_reason) == (5, [], FinishReason.LENGTH)
    assert not engine.has_unfinished


def test_a_failing_drafter_costs_nobody_a_token(engines, caplog):
    drafter = FailingDrafter({}, engines.vocab_size)
    engine = engines.make([drafter])
    assert engine.drafter_names == ("failing",)
    engine.add(request("r", PROMPT, max_tokens=20, **GREEDY))
    assert token_ids(run(engine)["r"]) == plain_tokens(engines, 20)
    assert engine.drafter_names == ()
    assert "drafter failing failed and is switched off" in caplog.text


def test_a_drafter_that_fails_to_say_what_it_misses_costs_nobody_a_token(engines, caplog):
    engine = engines.make([FailingReader({}, engines.vocab_size)])
    engine.add(request("r", PROMPT, max_tokens=20, **GREEDY))
    assert token_ids(run(engine)["r"]) == plain_tokens(engines, 20)
    assert engine.drafter_names == ()
    assert "drafter failing-reader failed and is switched off" in caplog.text


@pytest.mark.parametrize("draft_length", [40, 100])
def test_a_draft_model_without_room_for_a_text_leaves_it_to_the_others(engines, draft_length):
    """Tests a prompt that is too long from the start, and an answer that becomes too long."""
    prompt = PROMPT * 3
    answers = {tuple(prompt): plain_tokens(engines, 160, prompt)}
    drafter = PartlyRightDrafter(answers, engines.vocab_size)
    engine = engines.make([drafter], has_draft_model=True, draft_length=draft_length, costs=CHEAP_MODEL)
    engine.add(request("r", prompt, max_tokens=160, **GREEDY))
    last = run(engine)["r"][-1]
    assert last.speculation.by_drafter["partly-right"][1] > 60


class CallingDrafter(WrongDrafter):
    """Calls a function in the middle of every step."""

    def __init__(self, vocab_size: int, call: Callable[[], None]) -> None:
        super().__init__({}, vocab_size)
        self._call = call

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> list[Draft]:
        self._call()
        return super().propose(sequences, plans)

    def future(self, sequence: Sequence) -> list[int]:
        return []


def test_a_second_thread_in_a_step_is_an_error_of_its_own(engines):
    errors: list[BaseException] = []

    def step_elsewhere() -> None:
        with ThreadPoolExecutor(1) as threads:
            errors.append(threads.submit(engine.step).exception())

    engine = engines.make([CallingDrafter(engines.vocab_size, step_elsewhere)])
    engine.add(request("r", PROMPT, max_tokens=10, **GREEDY))
    assert token_ids(run(engine)["r"]) == plain_tokens(engines, 10)
    assert {(type(error), str(error).split(";")[0]) for error in errors} == {
        (RuntimeError, "another thread is in a step of this engine")
    }


def test_a_stream_that_is_dropped_in_the_middle_of_a_step_ends_behind_it(engines):
    streams: list[Iterator[Output]] = []
    engine = engines.make([CallingDrafter(engines.vocab_size, streams.clear)])
    stream = engine.stream(PROMPT, SamplingParams(max_tokens=20, **GREEDY))
    next(stream)
    streams.append(stream)
    del stream
    (completion,) = engine.generate([PROMPT], SamplingParams(max_tokens=20, **GREEDY))
    assert completion.token_ids == plain_tokens(engines, 20)
    assert not streams
    assert not engine.has_unfinished
    assert engine.stats().num_free_blocks == engine.stats().num_blocks


class BrokenStream(TextStream):
    """Stands for a defect that affects only one request."""

    def push(self, token_id: int) -> Progress:
        raise RuntimeError("the scripted defect")


def test_a_defect_in_one_commit_ends_that_request_alone(engines, caplog):
    engine = engines.make()
    engine.add(request("good", PROMPT, max_tokens=5, **GREEDY))
    engine.add(request("bad", PROMPT, max_tokens=5, **GREEDY))
    bad = engine._states["bad"]
    bad.stream = BrokenStream(bad.sequence.request, engine.tokenizer, 5)
    outputs = run(engine)
    assert outputs["bad"][-1].finish_reason is FinishReason.ERROR
    assert outputs["bad"][-1].error == "internal error: the scripted defect"
    assert len(token_ids(outputs["good"])) == 5
    assert "request bad ends with an error" in caplog.text


def test_stats_add_up(engines):
    engine = engines.make([NgramDrafter()], has_draft_model=True)
    completions = engine.generate([PROMPT, PROMPT * 2], SamplingParams(max_tokens=30, **GREEDY))
    stats = engine.stats()
    parts = [completion.speculation for completion in completions]
    assert stats.num_draft_tokens == sum(part.num_draft_tokens for part in parts) > 0
    assert stats.num_accepted_tokens == sum(part.num_accepted_tokens for part in parts)
    assert stats.num_accepted_tokens == sum(stats.num_accepted_per_position)
    assert sum(part.num_steps + part.num_accepted_tokens for part in parts) == 60
    assert stats.num_free_blocks == stats.num_blocks
    assert (stats.num_running, stats.num_waiting) == (0, 0)
