"""Maps between two vocabularies: which tokens are the same, and which tokens a text has in the other vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.backends.native.sampler import NativeSampler
from paceline.core import Request, Sequence
from paceline.drafters.draft_model.text import MAX_RUN_TOKENS, MappedVocabulary
from paceline.drafters.draft_model.vocabulary_map import Overlap, VocabularyMap
from paceline.tokenizer import Tokenizer
from tests.drafters.vocabularies import TARGET, crossing, sentence_piece, tokenizer_of
from tests.support.tiny_vocabulary import VocabularyChange, build_vocabulary

VOCAB_SIZE = 384
NUM_MERGED = 125
TEXT = (
    "the riders at the front: é 🙂 日本語 and the others follow, QAQB <|im_start|>user\nhello<|im_end|>\n\tthat works"
)


@pytest.fixture(scope="module")
def target() -> Tokenizer:
    return tokenizer_of(TARGET)


@pytest.fixture(scope="module")
def permuted(target: Tokenizer) -> VocabularyMap:
    return VocabularyMap(target, tokenizer_of(VocabularyChange(seed=3).apply(TARGET)))


@pytest.fixture(scope="module", params=["foreign", "sentence piece"])
def other(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "foreign":
        return tokenizer_of(VocabularyChange(seed=4, num_foreign=20).apply(TARGET))
    return sentence_piece()


def target_of_tests() -> Tokenizer:
    return tokenizer_of(TARGET)


def sequence_of(token_ids: list[int]) -> Sequence:
    return Sequence(Request(request_id="s", prompt_token_ids=token_ids), seed=0, token_ids=list(token_ids))


def draft_text_of(vocabularies: VocabularyMap, token_ids: list[int]) -> list[int]:
    text = MappedVocabulary(vocabularies).text_of(sequence_of(token_ids))
    text.update()
    return text.token_ids


def test_a_permuted_vocabulary_has_every_token(permuted):
    order = VocabularyChange(seed=3).order(VOCAB_SIZE)
    assert permuted.draft_ids == {old: new for new, old in enumerate(order)}
    assert permuted.columns.tolist() == order
    assert permuted.width == VOCAB_SIZE
    assert permuted.target_overlap == permuted.draft_overlap == Overlap(NUM_MERGED, NUM_MERGED)
    assert permuted.is_useful
    assert permuted.exchanges_all


def test_equal_strings_are_the_same_and_nothing_else(target, other):
    vocabularies = VocabularyMap(target, other)
    by_text = {target.text_bytes(token_id): token_id for token_id in range(VOCAB_SIZE)}
    for draft_id in range(other.vocab_size):
        text, column = other.text_bytes(draft_id), vocabularies.columns[draft_id]
        if column < VOCAB_SIZE and text:
            assert by_text[text] == column
        elif text and column >= VOCAB_SIZE:
            is_spare_byte = len(text) == 1 and draft_id in other.byte_token_ids
            assert text not in by_text or is_spare_byte
    assert len(set(vocabularies.columns.tolist())) == other.vocab_size
    assert vocabularies.columns.max() + 1 == vocabularies.width


def test_control_tokens_go_by_their_spelling_and_the_end_by_its_meaning(target):
    foreign = tokenizer_of(VocabularyChange(seed=4, num_foreign=20).apply(TARGET))
    vocabularies = VocabularyMap(target, foreign)
    for token_id in target.special_token_ids:
        assert foreign.token_bytes(vocabularies.draft_ids[token_id]) == target.token_bytes(token_id)
    piece = VocabularyMap(target, sentence_piece())
    turn_end, text_end = TARGET.end_of_turn_id, TARGET.end_of_text_id
    assert piece.draft_ids[turn_end] == 2
    assert piece.columns[2] == turn_end
    assert piece.draft_id(text_end) == 2
    turn_start = TARGET.tokens.index("<|im_start|>")
    assert piece.draft_id(turn_start) is None
    assert draft_text_of(piece, [turn_start, *b"a"]) == draft_text_of(piece, [*b"a"])


def test_a_character_is_preferred_to_its_spare_byte(target):
    draft = sentence_piece()
    vocabularies = VocabularyMap(target, draft)
    assert draft.token_bytes(vocabularies.draft_ids[ord("a")]) == b"a"
    assert vocabularies.draft_ids[ord("a")] not in draft.byte_token_ids
    assert vocabularies.draft_ids[ord("A")] == 3 + ord("A")


def test_little_in_common_is_of_no_use(target):
    small = VocabularyMap(target, tokenizer_of(build_vocabulary(300)))
    assert (small.target_overlap, small.draft_overlap) == (Overlap(41, NUM_MERGED), Overlap(41, 41))
    assert not small.is_useful
    bytes_alone = VocabularyMap(target, tokenizer_of(build_vocabulary(259)))
    assert bytes_alone.draft_overlap == Overlap(0, 0)
    assert not bytes_alone.is_useful
    assert VocabularyMap(target, tokenizer_of(VocabularyChange(1, num_foreign=20).apply(TARGET))).is_useful


def test_a_text_is_the_same_in_the_drafts_tokens(target, other):
    token_ids = target.encode(TEXT, parse_special=True)
    vocabularies = VocabularyMap(target, other)
    draft_ids = draft_text_of(vocabularies, token_ids)
    assert b"".join(map(other.text_bytes, draft_ids)) == b"".join(map(target.text_bytes, token_ids))
    assert draft_ids[: len(other.leading_token_ids)] == list(other.leading_token_ids)
    assert len(draft_ids) != len(token_ids)


def test_what_the_draft_lacks_is_tokenized_anew(target):
    foreign = tokenizer_of(VocabularyChange(seed=4, num_foreign=20).apply(TARGET))
    vocabularies = VocabularyMap(target, foreign)
    missing = [token_id for token_id in range(VOCAB_SIZE) if vocabularies.draft_id(token_id) is None]
    assert len(missing) == 20
    assert not vocabularies.exchanges_all
    first, second = missing[:2]
    text = target.text_bytes(first) + target.text_bytes(second)
    before, after = vocabularies.draft_ids[65], vocabularies.draft_ids[66]
    expected = [before, *foreign.encode(text.decode(), parse_special=False), after]
    assert draft_text_of(vocabularies, [65, first, second, 66]) == expected


def test_half_a_character_is_its_bytes(target):
    draft = sentence_piece()
    vocabularies = VocabularyMap(target, draft)
    assert vocabularies.encode(b"a\xf0\x9f" + "é".encode() + b"\x80b") == [
        *draft.encode_within("a"),
        *(3 + byte for byte in (0xF0, 0x9F)),
        *draft.encode_within("é"),
        3 + 0x80,
        *draft.encode_within("b"),
    ]


def test_the_beginning_is_the_drafts_own(target):
    """The target's own beginning-of-sequence token is not part of the text."""
    piece = sentence_piece()
    assert VocabularyMap(target, piece).beginning == (1,)
    back = VocabularyMap(piece, target)
    assert draft_text_of(back, [1, piece.encode_within("a")[0]]) == [ord("a")]
    assert draft_text_of(back, [1]) == []


@pytest.mark.parametrize(
    ("make_target", "make_draft", "changes"),
    [
        (target_of_tests, sentence_piece, False),
        (sentence_piece, target_of_tests, False),
        (crossing, target_of_tests, True),
    ],
)
def test_reading_bit_by_bit_gives_the_same_text_and_tells_what_changed(make_target, make_draft, changes):
    generator = np.random.default_rng(2)
    target = make_target()
    vocabularies = VocabularyMap(target, make_draft())
    lacking = [token_id for token_id in range(target.vocab_size) if vocabularies.draft_id(token_id) is None]
    num_changes = 0
    for _ in range(20):
        sequence = sequence_of([int(token) for token in generator.integers(0, target.vocab_size, 3)])
        text = MappedVocabulary(vocabularies).text_of(sequence)
        for _ in range(40):
            before = list(text.token_ids)
            num_same = text.update()
            assert text.token_ids[:num_same] == before[:num_same]
            assert text.token_ids == draft_text_of(vocabularies, sequence.token_ids)
            assert text.update() == len(text.token_ids)
            num_changes += num_same < len(before)
            among = lacking if generator.random() < 0.7 else range(target.vocab_size)
            sequence.token_ids += [int(token) for token in generator.choice(among, generator.integers(0, 4))]
    assert (num_changes > 50) is changes


def test_a_long_run_is_cut(target):
    """A step never tokenizes more than a run of limited length, even if the draft model lacks every token for long."""
    foreign = tokenizer_of(VocabularyChange(seed=4, num_foreign=20).apply(TARGET))
    vocabularies = VocabularyMap(target, foreign)
    missing = next(token_id for token_id in range(VOCAB_SIZE) if vocabularies.draft_id(token_id) is None)
    sequence = sequence_of([missing] * MAX_RUN_TOKENS)
    text = MappedVocabulary(vocabularies).text_of(sequence)
    text.update()
    settled = list(text.token_ids)
    sequence.token_ids += [missing] * 3
    assert text.update() == len(settled)
    assert text.token_ids[: len(settled)] == settled


def test_rows_are_in_the_targets_order(target):
    foreign = tokenizer_of(VocabularyChange(seed=4, num_foreign=20).apply(TARGET))
    vocabularies = VocabularyMap(target, foreign)
    vocabulary = MappedVocabulary(vocabularies)
    for num_rows in (1, 4, 2):
        logits = np.random.default_rng(num_rows).standard_normal((num_rows, VOCAB_SIZE)).astype(np.float32)
        rows = vocabulary.target_rows(logits, NativeSampler())
        assert rows.shape == (num_rows, VOCAB_SIZE + 20)
        assert rows.flags.c_contiguous
        for target_id in range(VOCAB_SIZE):
            draft_id = vocabularies.draft_ids.get(target_id)
            expected = np.full(num_rows, -np.inf) if draft_id is None else logits[:, draft_id]
            np.testing.assert_array_equal(rows[:, target_id], expected)
            assert vocabulary.draft_id(target_id) == draft_id
        own = sorted(rows[0, VOCAB_SIZE:].tolist())
        lacking = [draft_id for draft_id in range(VOCAB_SIZE) if vocabularies.columns[draft_id] >= VOCAB_SIZE]
        assert own == sorted(logits[0, lacking].tolist())
        assert vocabulary.draft_id(VOCAB_SIZE + 3) is None
