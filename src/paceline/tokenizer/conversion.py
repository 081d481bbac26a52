"""Builds the encoder of the `tokenizers` library from a `Vocabulary`.

Byte-level tokenizers convert directly. For SentencePiece ones, which know only a score for each token, the merges are
derived here; that takes seconds for a large vocabulary, so they are kept by `merge_cache`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from tokenizers import Regex
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from paceline.core.errors import CheckpointError
from paceline.tokenizer.merge_cache import MergeCache
from paceline.tokenizer.pre_tokenizers import find_pre_tokenizer
from paceline.tokenizer.vocabulary import TokenizerKind, Vocabulary

MergePairs = npt.NDArray[np.uint32]


def build_encoder(vocabulary: Vocabulary, cache: MergeCache) -> Encoder:
    """An encoder of plain text: special tokens and spaces of SentencePiece are the caller's concern.

    Raises UnsupportedModelError for an unknown pre-tokenizer, CheckpointError for merges that do not fit the tokens.
    """
    if vocabulary.kind is TokenizerKind.BYTE_LEVEL:
        return _byte_level_encoder(vocabulary)
    return _sentence_piece_encoder(vocabulary, cache)


def _byte_level_encoder(vocabulary: Vocabulary) -> Encoder:
    pre_tokenizer = find_pre_tokenizer(vocabulary.pre_tokenizer)
    model = _byte_pair_model(vocabulary, _split_merges(vocabulary), ignore_merges=pre_tokenizer.ignores_merges)
    splits: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in pre_tokenizer.patterns]
    encoder = Encoder(model)
    encoder.pre_tokenizer = Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
    return encoder


def _sentence_piece_encoder(vocabulary: Vocabulary, cache: MergeCache) -> Encoder:
    tokens = vocabulary.tokens
    pairs = cache.load(len(tokens))
    if pairs is None:
        pairs = merges_by_score(vocabulary)
        cache.save(pairs)
    left, right = ([tokens[token_id] for token_id in column.tolist()] for column in pairs.T)
    merges = list(zip(left, right, strict=True))
    unknown = vocabulary.unknown_token_id
    unknown_token = None if unknown is None else tokens[unknown]
    return Encoder(_byte_pair_model(vocabulary, merges, byte_fallback=True, unk_token=unknown_token))


def _byte_pair_model(vocabulary: Vocabulary, merges: list[tuple[str, str]], **options: object) -> BPE:
    ids_by_text = {text: token_id for token_id, text in enumerate(vocabulary.tokens)}
    try:
        return BPE(vocab=ids_by_text, merges=merges, **options)
    except Exception as error:
        raise CheckpointError(f"the model file's tokenizer is corrupt ({error}); pull it again") from error


def _split_merges(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    merges = []
    for line in vocabulary.merges or ():
        left, separator, right = line[1:].partition(" ")
        if not separator or not right:
            raise CheckpointError(f"merge {line!r} is not two texts with a space between; the model file is corrupt")
        merges.append((line[0] + left, right))
    return merges


def merges_by_score(vocabulary: Vocabulary) -> MergePairs:
    """All ways to build a token of two others as ids, uint32 [num_merges, 2], in the order in which they are tried.

    SentencePiece merges the neighbours whose union has the best score; equal scores go by id.
    """
    assert vocabulary.scores is not None
    ids_by_text = {text: token_id for token_id, text in enumerate(vocabulary.tokens)}
    order = np.argsort(-vocabulary.scores, kind="stable").tolist()
    pairs = [pair for token_id in order for pair in _halves(vocabulary.tokens[token_id], ids_by_text)]
    return np.array(pairs, np.uint32).reshape(-1, 2)


def _halves(text: str, ids_by_text: dict[str, int]) -> Iterator[tuple[int, int]]:
    for middle in range(1, len(text)):
        left = ids_by_text.get(text[:middle])
        if left is not None and (right := ids_by_text.get(text[middle:])) is not None:
            yield left, right
