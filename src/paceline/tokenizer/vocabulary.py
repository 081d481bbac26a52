"""`Vocabulary`: what a GGUF file says about its tokenizer, checked, typed and compact.

The GGUF specification defines the keys (section "Tokenizer"). Absent keys have the defaults of llama.cpp, whose token
ids are the reference.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.core.errors import CheckpointError, UnsupportedModelError
from paceline.tokenizer.end_of_generation import CONTROL_TEXTS, end_of_generation_ids
from paceline.tokenizer.infill import InfillTokens, find_infill_tokens
from paceline.tokenizer.pre_tokenizers import PreTokenizer, find_pre_tokenizer
from paceline.tokenizer.token_table import TokenTable

_PREFIX = "tokenizer.ggml."
_BYTE_SPELLING = re.compile("<0x[0-9A-Fa-f]{2}>")


class TokenizerKind(enum.StrEnum):
    """The algorithm, with the name that `tokenizer.ggml.model` gives it."""

    BYTE_LEVEL = "gpt2"
    SENTENCE_PIECE = "llama"


_MARKER_TEXTS = (
    *("<think>", "</think>", "[THINK]", "[/THINK]"),
    *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
)
"""Spellings that mark reasoning and tool calls. Some vocabularies have them as control tokens."""


class TokenType(enum.IntEnum):
    """The types of tokens, with GGUF's numbers."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Vocabulary:
    """Tokens by id with their types (uint8 [vocab_size]), and the options of the tokenizer.

    `pre_tokenizer` and `merges` (lines "left right", best first) belong to byte-level tokenizers, `scores` (float32
    [vocab_size], higher merges first) to SentencePiece ones; what belongs to the other kind is None. `marker_ids` are
    the tokens that mark reasoning and tool calls; they have text, which a parser reads, even if they are control
    tokens. `tool_template` is the chat template for chats with tools where the file has another one for them. `infill`
    is None for a model that cannot fill in text.
    """

    kind: TokenizerKind
    pre_tokenizer: PreTokenizer | None
    tokens: TokenTable
    token_types: npt.NDArray[np.uint8]
    merges: str | None
    scores: npt.NDArray[np.float32] | None
    bos_token_id: int | None
    eos_token_id: int | None
    unknown_token_id: int | None
    eos_token_ids: frozenset[int]
    marker_ids: frozenset[int]
    leading_token_ids: tuple[int, ...]
    trailing_token_ids: tuple[int, ...]
    has_space_prefix: bool
    chat_template: str | None
    tool_template: str | None
    infill: InfillTokens | None

    @property
    def hash(self) -> str:
        """The algorithm and a digest of the tokens in order; where it is equal, token ids mean the same."""
        return f"{self.kind}-{self.tokens.hash()}"


def read_vocabulary(metadata: Mapping[str, object]) -> Vocabulary:
    """Returns the vocabulary in a GGUF file's metadata.

    Raises CheckpointError for missing, malformed or contradictory entries, UnsupportedModelError for another algorithm.
    """
    return _Reader(metadata).read()


class _Reader:
    """Typed access to the metadata of one tokenizer."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        self._kind = self._read_kind()
        self._is_byte_level = self._kind is TokenizerKind.BYTE_LEVEL
        self._pre_tokenizer = find_pre_tokenizer(self._string("pre") or "default") if self._is_byte_level else None

    def read(self) -> Vocabulary:
        tokens = self._read_tokens()
        self._vocab_size = len(tokens)
        ids_by_text = {text: token_id for token_id, text in enumerate(tokens)}
        self._refuse_duplicates(tokens, ids_by_text)
        eos_token_id = self._token_id("eos_token_id", default=None if self._is_byte_level else 2)
        eos_token_ids = end_of_generation_ids(ids_by_text, eos_token_id, self._token_id)
        bos_token_id = self._token_id("bos_token_id", default=None if self._is_byte_level else 1)
        adds_bos = self._pre_tokenizer is None or self._pre_tokenizer.adds_bos
        token_types = self._read_token_types(ids_by_text)
        _refuse_misspelt_bytes(tokens, token_types)
        return Vocabulary(
            kind=self._kind,
            pre_tokenizer=self._pre_tokenizer,
            tokens=TokenTable(tokens),
            token_types=token_types,
            merges="\n".join(self._strings("merges")) if self._is_byte_level else None,
            scores=None if self._is_byte_level else self._read_scores(),
            bos_token_id=bos_token_id,
            eos_token_id=eos_token_id,
            unknown_token_id=self._token_id("unknown_token_id", default=None if self._is_byte_level else 0),
            eos_token_ids=eos_token_ids,
            marker_ids=frozenset(ids_by_text[text] for text in _MARKER_TEXTS if text in ids_by_text),
            leading_token_ids=self._added("bos", bos_token_id, default=adds_bos),
            trailing_token_ids=self._added("eos", eos_token_id, default=False),
            has_space_prefix=not self._is_byte_level and self._flag("add_space_prefix", default=True),
            chat_template=self._chat_template(),
            tool_template=self._chat_template(".tool_use"),
            infill=find_infill_tokens(ids_by_text, self._token_id),
        )

    def _read_kind(self) -> TokenizerKind:
        name = self._string("model")
        if name is None:
            raise CheckpointError("the model file has no tokenizer (tokenizer.ggml.model); use a complete model file")
        try:
            return TokenizerKind(name)
        except ValueError as error:
            raise UnsupportedModelError(
                f"tokenizer model {name!r} is not supported; use a model with one of {', '.join(TokenizerKind)}"
            ) from error

    def _read_tokens(self) -> list[str]:
        return [text or f"[EMPTY_{token_id}]" for token_id, text in enumerate(self._strings("tokens"))]

    def _refuse_duplicates(self, tokens: list[str], ids_by_text: Mapping[str, int]) -> None:
        if not tokens:
            raise CheckpointError("the model file's vocabulary is empty; it is corrupt, pull it again")
        if len(ids_by_text) < len(tokens):
            twice = next(text for token_id, text in enumerate(tokens) if ids_by_text[text] != token_id)
            raise CheckpointError(f"token {twice!r} is in the vocabulary twice; the model file is corrupt")

    def _read_token_types(self, ids_by_text: Mapping[str, int]) -> npt.NDArray[np.uint8]:
        """Returns the types in the file. Tokens that control generation become CONTROL whatever the file says."""
        if _PREFIX + "token_type" in self._metadata:
            token_types = self._numbers("token_type").astype(np.uint8)
        else:
            token_types = np.full(self._vocab_size, TokenType.NORMAL, np.uint8)
        for text in CONTROL_TEXTS:
            if text in ids_by_text:
                token_types[ids_by_text[text]] = TokenType.CONTROL
        return token_types

    def _read_scores(self) -> npt.NDArray[np.float32]:
        return self._numbers("scores").astype(np.float32)

    def _added(self, name: str, token_id: int | None, *, default: bool) -> tuple[int, ...]:
        """Returns the token of that name if the tokenizer adds it to every prompt, and otherwise nothing."""
        if not self._flag(f"add_{name}_token", default=default):
            return ()
        if token_id is None:
            raise CheckpointError(
                f"{_PREFIX}add_{name}_token is set but there is no {name}_token_id; the model file is corrupt"
            )
        return (token_id,)

    def _token_id(self, name: str, default: int | None = None) -> int | None:
        value = self._metadata.get(_PREFIX + name)
        if value is not None and (not isinstance(value, int | np.integer) or isinstance(value, bool)):
            raise CheckpointError(f"{_PREFIX}{name} is {value!r}, not a token id; the model file is corrupt")
        candidates = (int(value) if value is not None else None, default)
        return next((found for found in candidates if found is not None and 0 <= found < self._vocab_size), None)

    def _flag(self, name: str, *, default: bool) -> bool:
        value = self._metadata.get(_PREFIX + name, default)
        if not isinstance(value, bool | np.bool_):
            raise CheckpointError(f"{_PREFIX}{name} is {value!r}, not true or false; the model file is corrupt")
        return bool(value)

    def _string(self, name: str) -> str | None:
        value = self._metadata.get(_PREFIX + name)
        if value is not None and not isinstance(value, str):
            raise CheckpointError(f"{_PREFIX}{name} is {value!r}, not a text; the model file is corrupt")
        return value

    def _chat_template(self, suffix: str = "") -> str | None:
        key = f"tokenizer.chat_template{suffix}"
        value = self._metadata.get(key)
        if value is not None and not isinstance(value, str):
            raise CheckpointError(f"{key} is not a text; the model file is corrupt")
        return value

    def _strings(self, name: str) -> list[str]:
        value = self._metadata.get(_PREFIX + name)
        if not isinstance(value, list) or not set(map(type, value)) <= {str}:
            raise CheckpointError(f"{_PREFIX}{name} is not a list of texts; use a complete model file")
        return value

    def _numbers(self, name: str) -> npt.NDArray[np.generic]:
        """Returns numbers [vocab_size]; drops entries beyond the vocabulary."""
        try:
            values = np.asarray(self._metadata.get(_PREFIX + name))
        except ValueError as error:
            raise CheckpointError(f"{_PREFIX}{name} is not a list of numbers; the model file is corrupt") from error
        if values.ndim != 1 or values.dtype.kind not in "iuf" or len(values) < self._vocab_size:
            raise CheckpointError(
                f"{_PREFIX}{name} does not hold a number for each of {self._vocab_size} tokens; "
                "the model file is corrupt"
            )
        return values[: self._vocab_size]


def _refuse_misspelt_bytes(tokens: list[str], token_types: npt.NDArray[np.uint8]) -> None:
    for token_id in np.flatnonzero(token_types == TokenType.BYTE).tolist():
        if not _BYTE_SPELLING.fullmatch(tokens[token_id]):
            raise CheckpointError(
                f"token {tokens[token_id]!r} stands for a byte by its type, but is not spelt <0x00> to <0xFF>; "
                "the model file is corrupt"
            )
