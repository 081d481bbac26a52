"""The draft-model drafter on a tiny model: its KV stays right whatever happens to a sequence, and if it lacks blocks or
context it only drafts less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from paceline.backends.native.sampler import NativeSampler
from paceline.backends.reference.model import ReferenceModel
from paceline.checkpoint import GgufFile
from paceline.core import Draft, Plan, Request, SamplingParams, Sequence
from paceline.core.draft_tree import chain_length
from paceline.drafters.chains.drawing import Drawer
from paceline.drafters.draft_model.drafter import DraftModelDrafter
from paceline.drafters.draft_model.lookahead import Lookahead, num_worth_reading
from paceline.drafters.draft_model.text import NUM_FIRST_TOKENS, NUM_LAST_TOKENS, MappedVocabulary, SameVocabulary
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.sampling.sequence_sampler import SequenceSampler
from tests.drafters.vocabularies import TARGET, crossing, sentence_piece, tokenizer_of
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_vocabulary import VocabularyChange

VOCAB_SIZE = 384
GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, presence_penalty=0.5)
NUM_BLOCKS = 64


@pytest.fixture(scope="module")
def gguf_path(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("draft")
    return write_tiny_gguf(
        directory / "draft.gguf", "llama", "F32", num_layers=2, hidden_size=64, head_dim=16, ffn_size=96
    )


class Bench:
    """A drafter with the samplers of its sequences."""

    def __init__(self, path: Path, *, num_blocks: int = NUM_BLOCKS, **options: object) -> None:
        with GgufFile.open(path) as gguf:
            self.model = ReferenceModel(gguf)
        self.samplers: dict[str, SequenceSampler] = {}
        drawer = Drawer(NativeSampler(), VOCAB_SIZE)
        self.drafter = DraftModelDrafter(self.model, self.samplers, drawer, num_blocks=num_blocks, **options)
        self.passes: list[int] | None = None

    def begin(self, name: str, token_ids: list[int], params: SamplingParams = GREEDY, tenant: str = "") -> Sequence:
        request = Request(request_id=name, prompt_token_ids=list(token_ids), sampling=params, tenant=tenant)
        sequence = Sequence(request=request, seed=len(token_ids), token_ids=list(token_ids))
        self.samplers[name] = SequenceSampler.begin(NativeSampler(), sequence, vocab_size=VOCAB_SIZE)
        self.drafter.begin(sequence)
        return sequence

    def propose(self, *windows: tuple[Sequence, int], **plan: object) -> list[tuple[int, ...]]:
        """Proposes drafts for sequences with their windows; returns the chains at the beginning of the drafts."""
        plans = [Plan("draft-model", window, **plan) for _, window in windows]
        proposals = self.drafter.propose([sequence for sequence, _ in windows], plans)
        self.passes = proposals.pass_rows
        return [draft.token_ids[: chain_length(draft)] for draft in proposals.drafts]

    def commit(self, sequence: Sequence, token_ids: list[int]) -> None:
        sequence.token_ids += token_ids
        self.samplers[sequence.sequence_id].append(token_ids)

    def observe(self, *sequences: Sequence) -> None:
        self.drafter.observe(list(sequences), [])


def _prompt(size: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 250, size)]


def _fresh_draft(path: Path, sequence: Sequence, window: int, **options: object) -> tuple[int, ...]:
    """Returns the draft of a new drafter that has never seen the sequence before."""
    bench = Bench(path, prefill_chunk_size=1000, **options)
    request = sequence.request
    copy = replace(sequence, token_ids=list(sequence.token_ids))
    bench.samplers[request.request_id] = SequenceSampler.begin(NativeSampler(), copy, vocab_size=VOCAB_SIZE)
    bench.drafter.begin(copy)
    return bench.propose((copy, window))[0]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_draft_is_the_models_own_text(gguf_path, params):
    bench = Bench(gguf_path)
    sequence = bench.begin("s", _prompt(20), params)
    [long] = bench.propose((sequence, 9))
    assert len(long) == 9
    step_by_step: list[int] = []
    for _ in range(9):
        [one] = bench.propose((sequence, 1))
        bench.commit(sequence, list(one))
        bench.observe(sequence)
        step_by_step += one
    assert tuple(step_by_step) == long
    assert len(set(long)) > 3


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_branch_is_what_the_model_would_draw_next_if_its_first_choice_were_banned(gguf_path, params):
    bench = Bench(gguf_path)
    sequence = bench.begin("s", _prompt(20), params)
    [draft] = bench.drafter.propose([sequence], [Plan("draft-model", 16, branch_above=(0.0,) * 16)]).drafts
    assert draft.is_chain  # the chain took the whole window
    [draft] = bench.drafter.propose(
        [sequence], [Plan("draft-model", 16, deepen_above=(0.0, 0.0, 0.0, 1.1), branch_above=(0.0,) * 16)]
    ).drafts
    length = chain_length(draft)
    assert 0 < length < len(draft)
    for node in range(length, len(draft)):
        parent = draft.parents[node]
        first = draft.token_ids[0 if parent is None else parent + 1]
        banned = msgspec.structs.replace(params, logit_bias={first: -100.0})
        before = [] if parent is None else list(draft.token_ids[: parent + 1])
        other = Bench(gguf_path)
        alone = other.begin("s", _prompt(20), banned)
        other.commit(alone, before)
        [second] = other.propose((alone, 1))
        assert second == (draft.token_ids[node],)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("share_right", [0.0, 0.7, 1.0])
def test_tokens_read_ahead_change_no_draft_and_save_passes_where_they_are_right(
    gguf_path, monkeypatch, params, share_right
):
    bench = Bench(gguf_path)
    sequence = bench.begin("s", _prompt(20), params)
    [usual] = bench.propose((sequence, 12))
    assert bench.passes == [1] * 12
    generator = np.random.default_rng(1)

    def ahead_of(guide: Lookahead, text: list[int], drafted: list[int], plan: Plan, limit: int) -> list[int]:
        assert list(text) == sequence.token_ids
        assert tuple(drafted) == usual[: len(drafted)]
        following = usual[len(drafted) :][: min(limit, 4)]
        return [token if generator.random() < share_right else token ^ 1 for token in following]

    monkeypatch.setattr(Lookahead, "ahead_of", ahead_of)
    assert bench.propose((sequence, 12)) == [usual]
    passes = bench.passes
    assert (len(passes) == 12) == (share_right == 0.0)
    if share_right == 1.0:
        assert passes == [5, 5, 2]
    bench.commit(sequence, list(usual[:9]))
    bench.observe(sequence)
    monkeypatch.undo()
    assert bench.propose((sequence, 5)) == [_fresh_draft(gguf_path, sequence, 5)]


def test_a_guide_says_what_followed_before_as_far_as_that_is_worth_a_row():
    guide, text = Lookahead(), [1, 2, 3, 4, 5, 6, 7, 8] * 2
    plan = Plan("draft-model", 8, read_above=(0.1,) * 3)
    assert guide.ahead_of(text, [], plan, 8) == [1, 2, 3]
    assert guide.ahead_of(text, [1, 2], plan, 8) == [3, 4, 5]
    assert guide.ahead_of([*text, 1], [2], plan, 2) == [3, 4]
    assert guide.ahead_of([*text, 1], [2], plan, 0) == []
    assert guide.ahead_of([*text, 1], [9], plan, 8) == []
    assert guide.ahead_of([*text, 1], [], Plan("draft-model", 8), 8) == []
    assert num_worth_reading([0.5, 0.5, 0.9], Plan("draft-model", 8, read_above=(0.3, 0.3, 0.1))) == 1
    assert num_worth_reading([0.5, 0.9, 0.9], Plan("draft-model", 8, read_above=(0.3, 0.3))) == 2


def _mapped() -> MappedVocabulary:
    """Returns the vocabulary of a target with many tokens that the draft model lacks.

    The draft model's tokens of a text may change when the text goes on.
    """
    return MappedVocabulary(VocabularyMap(crossing(), tokenizer_of(TARGET)))


@pytest.mark.parametrize(
    ("make_vocabulary", "tokens", "chunk", "least_drafts", "options"),
    [
        pytest.param(SameVocabulary, (0, 250), 40, 50, {}, id="same"),
        pytest.param(SameVocabulary, (0, 250), 40, 50, {"has_prefix_cache": True}, id="same, prefix cache"),
        pytest.param(
            SameVocabulary, (0, 250), 40, 50, {"has_prefix_cache": True, "num_blocks": 30}, id="full prefix cache"
        ),
        pytest.param(_mapped, (256, 341), 40, 15, {"has_prefix_cache": True}, id="mapped"),
        pytest.param(_mapped, (256, 341), 1000, 15, {}, id="mapped, at once"),
    ],
)
@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_drafts_do_not_depend_on_what_happened_before(
    gguf_path, params, make_vocabulary, tokens, chunk, least_drafts, options
):
    """Compares drafts after random verdicts, windows, tokens of other drafters, preemptions and tokens read ahead with
    those of a new drafter that reads nothing ahead."""
    generator = np.random.default_rng(5)
    vocabulary = make_vocabulary()
    bench = Bench(gguf_path, prefill_chunk_size=chunk, vocabulary=vocabulary, **options)
    sequences = [bench.begin(f"s{i}", _prompt(5 + 6 * i, seed=i), params) for i in range(3)]
    num_drafts = 0
    for step in range(25):
        chosen = [sequence for sequence in sequences if generator.random() < 0.8]
        windows = [int(generator.integers(1, 7)) for _ in chosen]
        drafts = bench.propose(*zip(chosen, windows, strict=True), branch_above=(0.1,) * 7, read_above=(0.0,) * 4)
        for sequence, window, draft in zip(chosen, windows, drafts, strict=True):
            fresh = _fresh_draft(gguf_path, sequence, window, vocabulary=vocabulary)
            may_lag = draft == () and chunk < 1000  # while it reads a preempted sequence again, in chunks
            assert draft == fresh or may_lag
            num_drafts += draft != ()
        by_sequence = dict(zip(chosen, drafts, strict=True))
        for sequence in sequences:
            draft = by_sequence.get(sequence, ())
            num_accepted = int(generator.integers(0, len(draft) + 1))
            bench.commit(sequence, [*draft[:num_accepted], int(generator.integers(*tokens))])
        bench.observe(*sequences)
        if step % 8 == 7:
            lost = sequences[step % 3]
            bench.drafter.end(lost)
            bench.drafter.begin(lost)
    assert num_drafts > least_drafts
    for sequence in sequences:
        bench.drafter.end(sequence)
    assert bench.drafter.num_free_blocks == options.get("num_blocks", NUM_BLOCKS)


def test_a_text_that_begins_like_another_is_read_from_where_they_part(gguf_path):
    bench = Bench(gguf_path, has_prefix_cache=True)
    first = bench.begin("first", _prompt(50))
    assert bench.drafter.num_missed(first) == 49
    [draft] = bench.propose((first, 6))
    bench.commit(first, list(draft))
    bench.observe(first)
    beside = bench.begin("beside", [*_prompt(50)[:40], 1, 2, 3])
    assert bench.drafter.num_missed(beside) == 42 - 32  # whole blocks of 16 that both have
    assert bench.propose((beside, 5)) == [_fresh_draft(gguf_path, beside, 5)]
    bench.drafter.end(first)
    turn = bench.begin("turn", [*first.token_ids, *_prompt(10, seed=3)])
    assert bench.drafter.num_missed(turn) == 50 + len(draft) + 9 - 48
    assert bench.propose((turn, 5), (beside, 5)) == [_fresh_draft(gguf_path, one, 5) for one in (turn, beside)]
    bench.drafter.end(turn)
    bench.drafter.end(beside)
    assert bench.drafter.num_free_blocks == NUM_BLOCKS
    assert bench.drafter.num_missed(bench.begin("stranger", _prompt(50), tenant="key")) == 49
    without = Bench(gguf_path)
    without.propose((without.begin("first", _prompt(50)), 1))
    assert without.drafter.num_missed(without.begin("again", _prompt(50))) == 49


@pytest.mark.parametrize(("num_foreign", "num_kept"), [(0, 48), (20, 0)])
def test_texts_are_kept_where_no_token_of_another_vocabulary_is_cut_anew(gguf_path, num_foreign, num_kept):
    """If the draft model lacks tokens, its tokens of a text may change with what follows, so it keeps no texts."""
    draft = tokenizer_of(VocabularyChange(seed=3, num_foreign=num_foreign).apply(TARGET))
    vocabulary = MappedVocabulary(VocabularyMap(tokenizer_of(TARGET), draft))
    bench = Bench(gguf_path, vocabulary=vocabulary, has_prefix_cache=True)
    first = bench.begin("first", _prompt(50))
    assert bench.propose((first, 5)) == [_fresh_draft(gguf_path, first, 5, vocabulary=vocabulary)]
    bench.observe(first)
    again = bench.begin("again", _prompt(50))
    assert bench.drafter.num_missed(again) == 49 - num_kept
    assert bench.propose((again, 5)) == [_fresh_draft(gguf_path, again, 5, vocabulary=vocabulary)]


def test_a_text_that_is_empty_for_the_model_has_no_draft_until_it_goes_on(gguf_path):
    """The text is only the target's beginning-of-sequence token; the draft model's texts have no such token."""
    vocabulary = MappedVocabulary(VocabularyMap(sentence_piece(), tokenizer_of(TARGET)))
    bench = Bench(gguf_path, vocabulary=vocabulary)
    sequence = bench.begin("s", [1])
    assert bench.propose((sequence, 4)) == [()]
    assert bench.drafter.num_missed(sequence) is None
    bench.commit(sequence, sentence_piece().encode_within("the"))
    bench.observe(sequence)
    assert bench.propose((sequence, 4)) == [_fresh_draft(gguf_path, sequence, 4, vocabulary=vocabulary)]
    assert bench.drafter.num_free_blocks == NUM_BLOCKS - 1


def test_a_verdict_shorter_than_the_draft_may_agree_with_it_further(gguf_path):
    """The engine may shorten a draft, and the target may then choose the next drafted token itself."""
    bench = Bench(gguf_path)
    sequence = bench.begin("s", _prompt(10))
    [draft] = bench.propose((sequence, 5))
    bench.commit(sequence, list(draft[:2]))
    bench.observe(sequence)
    assert bench.propose((sequence, 3))[0] == draft[2:5]


def test_a_text_that_fills_the_context_has_one_more_token_guessed_and_is_then_left_out(gguf_path):
    bench = Bench(gguf_path, max_length=20)
    sequence = bench.begin("s", _prompt(18))
    assert [len(draft) for draft in bench.propose((sequence, 8))] == [3]
    bench.commit(sequence, _prompt(2, seed=1))
    bench.observe(sequence)
    assert [len(draft) for draft in bench.propose((sequence, 8))] == [1]
    bench.commit(sequence, [7])
    bench.observe(sequence)
    assert bench.drafter.num_missed(sequence) is None
    assert bench.propose((sequence, 8)) == [()]


def test_windows_are_ragged_and_may_be_empty(gguf_path):
    bench = Bench(gguf_path)
    sequences = [bench.begin(f"s{i}", _prompt(8 + i)) for i in range(4)]
    drafts = bench.propose(*zip(sequences, [0, 5, 1, 3], strict=True))
    assert [len(draft) for draft in drafts] == [0, 5, 1, 3]
    assert drafts[1:] == [
        _fresh_draft(gguf_path, sequence, n) for sequence, n in zip(sequences[1:], [5, 1, 3], strict=True)
    ]
    assert bench.drafter.propose([], []).drafts == []


def test_unseen_text_is_read_in_chunks_and_the_nearest_first(gguf_path):
    bench = Bench(gguf_path, prefill_chunk_size=16)
    long, short = bench.begin("long", _prompt(50)), bench.begin("short", _prompt(4))
    lengths = []
    for _ in range(5):
        lengths.append([len(draft) for draft in bench.propose((long, 2), (short, 2))])
        for sequence in (long, short):
            bench.commit(sequence, [7])
        bench.observe(long, short)
    assert lengths[0] == [0, 2]
    assert [short_length for _, short_length in lengths] == [2] * 5
    assert lengths[-1] == [2, 2]
    assert [long_length for long_length, _ in lengths].index(2) == 3
    assert bench.propose((long, 4))[0] == _fresh_draft(gguf_path, long, 4)


def test_without_free_blocks_a_draft_is_empty_and_others_go_on(gguf_path):
    bench = Bench(gguf_path, num_blocks=3)
    first, second = bench.begin("first", _prompt(20)), bench.begin("second", _prompt(20, seed=1))
    assert [len(draft) for draft in bench.propose((first, 4), (second, 4))] == [4, 0]
    assert bench.drafter.num_free_blocks == 1
    bench.drafter.end(first)
    assert [len(draft) for draft in bench.propose((second, 4))] == [4]
    assert bench.drafter.num_missed(second) == 0
    bench.commit(second, _prompt(28, seed=2))
    bench.observe(second)
    assert bench.drafter.num_missed(second) == 28
    assert [len(draft) for draft in bench.propose((second, 4))] == [1]  # its token needs no slot
    bench.commit(second, _prompt(1, seed=3))
    bench.observe(second)
    assert bench.drafter.num_missed(second) is None
    assert bench.propose((second, 1)) == [()]
    bench.drafter.end(second)
    assert bench.drafter.num_free_blocks == 3


def test_rejected_tokens_give_their_blocks_back(gguf_path):
    bench = Bench(gguf_path)
    sequence = bench.begin("s", _prompt(15))
    bench.propose((sequence, 16))
    assert bench.drafter.num_free_blocks == NUM_BLOCKS - 2
    bench.commit(sequence, [3])
    bench.observe(sequence)
    assert bench.drafter.num_free_blocks == NUM_BLOCKS - 1


def test_the_draft_models_context_is_a_bound(tmp_path):
    path = write_tiny_gguf(
        tmp_path / "short.gguf",
        "llama",
        "F32",
        num_layers=1,
        hidden_size=64,
        head_dim=16,
        ffn_size=96,
        context_length=32,
    )
    bench = Bench(path)
    assert bench.model.config.max_context == 32
    inside, at_end, beyond = (bench.begin(name, _prompt(size)) for name, size in [("a", 30), ("b", 32), ("c", 40)])
    assert [len(draft) for draft in bench.propose((inside, 8), (at_end, 8), (beyond, 8))] == [3, 1, 0]


def test_confidence_is_the_draft_models_probability_and_can_end_a_draft(gguf_path):
    bench = Bench(gguf_path)
    sequence = bench.begin("s", _prompt(12))
    [full] = bench.drafter.propose([sequence], [Plan("draft-model", 8)]).drafts
    assert full.drafter == "draft-model"
    assert full.is_chain
    assert all(0.0 < confidence <= 1.0 for confidence in full.confidences)
    survivals = np.cumprod(full.confidences)
    likely_enough = Plan("draft-model", 8, stop_below=float(survivals[2]) * 0.999)
    [short] = bench.drafter.propose([sequence], [likely_enough]).drafts
    assert short.token_ids == full.token_ids[:3]
    assert bench.drafter.propose([sequence], [Plan("draft-model", 8, stop_below=1.1)]).drafts == [
        Draft(drafter="draft-model")  # a token was drawn, but it was not likely enough
    ]


LONG = NUM_FIRST_TOKENS + NUM_LAST_TOKENS


def _read(token_ids: list[int]) -> list[int]:
    return token_ids[:NUM_FIRST_TOKENS] + token_ids[-NUM_LAST_TOKENS:]


def test_of_a_long_text_the_draft_model_reads_the_beginning_and_the_end(gguf_path):
    bench = Bench(gguf_path, prefill_chunk_size=1000)
    sequence = bench.begin("s", _prompt(900))
    assert bench.drafter.num_missed(sequence) == LONG - 1
    [draft] = bench.propose((sequence, 6))
    short = Bench(gguf_path, prefill_chunk_size=1000)
    assert short.propose((short.begin("s", _read(_prompt(900))), 6)) == [draft]
    bench.commit(sequence, list(draft[:4]))
    bench.observe(sequence)
    assert bench.drafter.num_missed(sequence) == 0
    assert bench.propose((sequence, 2)) == [draft[4:]]


def test_a_text_of_which_enough_is_cached_is_read_whole(gguf_path):
    bench = Bench(gguf_path, prefill_chunk_size=1000, has_prefix_cache=True)
    first = bench.begin("first", _prompt(LONG))
    bench.propose((first, 1))
    bench.drafter.end(first)
    text = _prompt(LONG) + _prompt(200, seed=1)
    sequence = bench.begin("second", text)
    assert bench.drafter.num_missed(sequence) < 200 + 16
    [draft] = bench.propose((sequence, 6))
    whole = Bench(gguf_path, prefill_chunk_size=1000)
    begun = whole.begin("s", text[:LONG])
    whole.propose((begun, 1))
    whole.commit(begun, text[LONG:])
    assert whole.propose((begun, 6)) == [draft]


def test_a_drafter_that_falls_far_behind_leaves_out_the_middle(gguf_path):
    bench = Bench(gguf_path, prefill_chunk_size=1000, has_prefix_cache=True)
    sequence = bench.begin("s", _prompt(200))
    bench.propose((sequence, 3))
    bench.commit(sequence, _prompt(LONG - 2, seed=1))
    bench.observe(sequence)
    assert bench.drafter.num_missed(sequence) == LONG - 3
    bench.commit(sequence, _prompt(40, seed=2))
    bench.observe(sequence)
    assert bench.drafter.num_missed(sequence) == NUM_LAST_TOKENS - 1
    [draft] = bench.propose((sequence, 6))
    short = Bench(gguf_path, prefill_chunk_size=1000)
    assert short.propose((short.begin("s", _read(sequence.token_ids)), 6)) == [draft]
    bench.drafter.end(sequence)
    assert bench.drafter.num_free_blocks == NUM_BLOCKS
