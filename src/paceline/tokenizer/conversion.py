"""Builds the encoder of the `tokenizers` library from a `Vocabulary`.

Byte-level tokenizers convert directly. SentencePiece tokenizers have only a score for each token, so their merges are
derived here. That takes seconds for a large vocabulary; `merge_cache` keeps the result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
from tokenizers import Regex
from tokenizers import Tokenizer as Encoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.pre_tokenizers import PreTokenizer as LibraryPreTokenizer

from paceline.core.errors import CheckpointError
from paceline.tokenizer.merge_cache import MergeCache
from paceline.tokenizer.pre_tokenizers import PreTokenizer
from paceline.tokenizer.vocabulary import Vocabulary

MergePairs = npt.NDArray[np.uint32]
Scores = npt.NDArray[np.float32]
_MAX_MERGED_CHARACTERS = 1024


def build_encoder(vocabulary: Vocabulary, cache: MergeCache) -> Encoder:
    """Returns an encoder of plain text; the caller must handle special tokens and SentencePiece's spaces.

    Raises CheckpointError for merges that do not fit the tokens.
    """
    if vocabulary.pre_tokenizer is not None:
        encoder = _byte_level_encoder(vocabulary, vocabulary.pre_tokenizer)
    else:
        encoder = _sentence_piece_encoder(vocabulary, cache)
    _release_freed_memory()
    return encoder


def _release_freed_memory() -> None:
    """Gives the memory that conversion freed back to the system: tens of megabytes in small pieces, which glibc would
    keep."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _byte_level_encoder(vocabulary: Vocabulary, pre_tokenizer: PreTokenizer) -> Encoder:
    splits: list[LibraryPreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in pre_tokenizer.patterns]
    lines = vocabulary.merges.split("\n") if vocabulary.merges else []
    merges = ((left, right) for left, _, right in (line.partition(" ") for line in lines))
    encoder = Encoder(_byte_pair_model(vocabulary.tokens.texts(), merges, ignore_merges=pre_tokenizer.ignores_merges))
    encoder.pre_tokenizer = Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
    return encoder


def _sentence_piece_encoder(vocabulary: Vocabulary, cache: MergeCache) -> Encoder:
    assert vocabulary.scores is not None
    tokens = vocabulary.tokens.texts()
    pairs = cache.load(len(tokens))
    if pairs is None:
        pairs = merges_by_score(tokens, vocabulary.scores)
        cache.save(pairs)
    left, right = ([tokens[token_id] for token_id in column.tolist()] for column in pairs.T)
    unknown = vocabulary.unknown_token_id
    unknown_token = None if unknown is None else tokens[unknown]
    merges = zip(left, right, strict=True)
    return Encoder(_byte_pair_model(tokens, merges, byte_fallback=True, unk_token=unknown_token))


def _byte_pair_model(tokens: list[str], merges: Iterable[tuple[str, str]], **options: object) -> BPE:
    ids_by_text = {text: token_id for token_id, text in enumerate(tokens)}
    try:
        return BPE(vocab=ids_by_text, merges=list(merges), **options)
    except Exception as error:
        raise CheckpointError(f"the model file's tokenizer is corrupt ({error}); pull it again") from error


def merges_by_score(tokens: list[str], scores: Scores) -> MergePairs:
    """Returns all ways to build a token from two others, as ids, uint32 [num_merges, 2], in the order in which they are
    tried.

    SentencePiece merges the neighbours whose union has the best score; of equal scores, the lower id comes first.
    Tokens of more than 1,024 characters are never built, because searching their halves would take too long.
    """
    ids_by_text = {text: token_id for token_id, text in enumerate(tokens)}
    order = np.argsort(-scores, kind="stable").tolist()
    pairs = [pair for token_id in order for pair in _halves(tokens[token_id], ids_by_text)]
    return np.array(pairs, np.uint32).reshape(-1, 2)


def _halves(text: str, ids_by_text: dict[str, int]) -> Iterator[tuple[int, int]]:
    if len(text) > _MAX_MERGED_CHARACTERS:
        return
    for middle in range(1, len(text)):
        left = ids_by_text.get(text[:middle])
        if left is not None and (right := ids_by_text.get(text[middle:])) is not None:
            yield left, right
