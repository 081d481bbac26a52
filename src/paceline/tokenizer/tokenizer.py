"""`Tokenizer`: text to token ids and back for one model, built from its GGUF metadata.

`special_tokens` cuts special tokens out of a text, and the `tokenizers` library encodes the rest. The token ids are
those of llama.cpp on the same file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from tokenizers import Tokenizer as Encoder

from paceline.checkpoint import GgufFile
from paceline.core.errors import CheckpointError, InvalidRequestError
from paceline.tokenizer.byte_alphabet import bytes_by_character
from paceline.tokenizer.chat_templates import ChatTemplates
from paceline.tokenizer.conversion import build_encoder
from paceline.tokenizer.merge_cache import MergeCache
from paceline.tokenizer.special_tokens import SpecialTokens
from paceline.tokenizer.vocabulary import TokenizerKind, TokenType, Vocabulary, read_vocabulary

_EMBEDDING_NAME = "token_embd.weight"
_SPACE = "▁"  # SentencePiece's stand-in for a space
_LONG_TEXT_CHARACTERS = 2048
_CHARACTERS_PER_TOKEN = 8
_NUM_UNSETTLED_TOKENS = 1024
_TYPES_WITH_TEXT = frozenset({TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.BYTE})


class Tokenizer:
    """Encodes, decodes and renders chats; safe to use from several threads.

    The encoder is built when first needed (`prepare`), so that a process that only decodes spends no memory on it.
    Chats are rendered in other processes, which start when first needed (`prepare_chats`) and end with this object.
    `eos_token_ids` are all tokens that end a generation; `eos_token_id` is the one that the file names.
    `leading_token_ids` begin every prompt. `infill` has the tokens for filling in text. Two models with an equal
    `vocabulary_hash` mean the same by every token id.

    A model may have rows for `num_padding` more ids than there are tokens; they count in `vocab_size` and have no text.
    """

    def __init__(self, vocabulary: Vocabulary, cache_dir: Path | None, num_padding: int = 0) -> None:
        self.vocab_size = len(vocabulary.tokens) + num_padding
        self.vocabulary_hash = f"{vocabulary.hash}-{self.vocab_size}"
        self.bos_token_id = vocabulary.bos_token_id
        self.eos_token_id = vocabulary.eos_token_id
        self.eos_token_ids = vocabulary.eos_token_ids
        self.has_space_prefix = vocabulary.has_space_prefix
        self.leading_token_ids = vocabulary.leading_token_ids
        self.infill = vocabulary.infill
        self._trailing_ids = vocabulary.trailing_token_ids
        self._is_byte_level = vocabulary.kind is TokenizerKind.BYTE_LEVEL
        self._token_types = vocabulary.token_types.tobytes() + bytes([TokenType.UNUSED]) * num_padding
        self._bytes_by_character = bytes_by_character()
        self._marker_ids = vocabulary.marker_ids
        self._user_defined = _tokens_of_types(vocabulary, TokenType.USER_DEFINED)
        self._all_special = _tokens_of_types(vocabulary, TokenType.USER_DEFINED, TokenType.CONTROL, TokenType.UNKNOWN)
        self._chat_templates = ChatTemplates(vocabulary)
        self._vocabulary = vocabulary
        self._cache = MergeCache(cache_dir, vocabulary)
        self._encoder: Encoder | None = None
        self._encoder_lock = threading.Lock()

    @classmethod
    def from_gguf(cls, gguf: GgufFile, cache_dir: Path | None) -> Self:
        """Returns the tokenizer of an open model file, and keeps nothing of the file.

        Raises what `from_metadata` raises, and CheckpointError for more tokens than the embedding has rows.
        """
        vocabulary = read_vocabulary(gguf.metadata)
        return cls(vocabulary, cache_dir, _num_padding(gguf, vocabulary))

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, object], cache_dir: Path | None) -> Self:
        """Returns the tokenizer that the metadata describes. Slow conversions are kept in `cache_dir` (None: nowhere).

        Raises CheckpointError (missing, malformed), UnsupportedModelError (algorithm or pre-tokenizer).
        """
        return cls(read_vocabulary(metadata), cache_dir)

    def prepare(self) -> None:
        """Builds the encoder now, so that the first text to encode does not wait half a second (for 150,000 tokens).

        Raises CheckpointError for merges that do not fit the tokens.
        """
        self._built_encoder()

    def prepare_chats(self) -> None:
        """Starts a process that renders chats, and compiles the chat template if the model has one, so that the first
        chat does not wait for it.

        Raises CheckpointError for a template that does not compile.
        """
        self._chat_templates.prepare()

    def close(self) -> None:
        """Ends the processes that render chats; a later chat starts a new one. They end with the tokenizer anyway."""
        self._chat_templates.close()

    @property
    def special_token_ids(self) -> list[int]:
        """Ids of the tokens that do not come from plain text: control, unknown and user-defined ones."""
        special = {TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED}
        return [token_id for token_id, kind in enumerate(self._token_types) if kind in special]

    @property
    def byte_token_ids(self) -> list[int]:
        """Ids of the tokens that stand for a single byte, spelled `<0x00>` to `<0xFF>`."""
        return [token_id for token_id, kind in enumerate(self._token_types) if kind == TokenType.BYTE]

    @property
    def has_chat_template(self) -> bool:
        """Whether the model is made for chats."""
        return self.chat_template_source is not None

    @property
    def chat_template_source(self) -> str | None:
        """The template for chats without tools, as the file has it."""
        return self._chat_templates.source

    @property
    def tool_template_source(self) -> str | None:
        """The template for chats with tools: the file's own one for them, or else the one for all chats."""
        return self._chat_templates.tool_source

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Returns the token ids of `text`, without tokens that begin or end a prompt. Control tokens that the text
        spells out count as such only with `parse_special`.

        Bytes without a token in the vocabulary are left out, as other engines do (some models lack control bytes).
        Raises InvalidRequestError where the text is not valid Unicode.
        """
        _check_unicode(text)
        return self._encode(text, self._all_special if parse_special else self._user_defined, is_beginning=True)

    def encode_within(self, text: str) -> list[int]:
        """Returns the token ids of plain `text` that follows other text: no space is put in front of it."""
        return self._encode(text, self._user_defined, is_beginning=False)

    def encode_prompt(self, text: str) -> list[int]:
        """Returns the token ids of a prompt, with the beginning and end tokens that the model wants. Special tokens are
        parsed; a prompt that spells out its beginning token gets no second one."""
        return [*self._with_beginning(self.encode(text, parse_special=True)), *self._trailing_ids]

    def least_num_tokens(self, text: str, enough: int) -> int:
        """Returns a lower bound for the number of tokens in a prompt of `text`; it is above `enough` if a beginning of
        the text shows that.

        However long the text is, no more of it is encoded than a few times what `enough` tokens can spell. The last
        1,024 tokens of a beginning do not count, because the text that follows may change them (six changed at most in
        tests). Bytes without a token in the vocabulary count as if they had one.
        """
        least = -(-len(text.encode(errors="replace")) // self._max_token_size_bytes)
        size = _CHARACTERS_PER_TOKEN * (enough + _NUM_UNSETTLED_TOKENS)
        while least <= enough and size < len(text):
            num_settled = len(self.encode(text[:size], parse_special=True)) - _NUM_UNSETTLED_TOKENS
            least = max(least, num_settled)
            size *= 4
        return least

    def decode(self, token_ids: Iterable[int]) -> str:
        """Returns the text of `token_ids`. Tokens without text are skipped; bytes that are not UTF-8 become U+FFFD."""
        text = b"".join(map(self.text_bytes, token_ids))
        return (text.removeprefix(b" ") if self.has_space_prefix else text).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes of the token itself: special tokens are spelled out, and padding is empty. The bytes may be
        a part of a character.

        Raises InvalidRequestError for an id outside the vocabulary.
        """
        if not 0 <= token_id < self.vocab_size:
            raise InvalidRequestError(f"token id {token_id} is not below the vocabulary's size, {self.vocab_size}")
        if token_id >= len(self._vocabulary.tokens):
            return b""
        token = self._vocabulary.tokens[token_id]
        token_type = self._token_types[token_id]
        if token_type == TokenType.BYTE:
            return bytes.fromhex(token.removeprefix("<0x").removesuffix(">"))
        if token_type != TokenType.NORMAL:
            return token.encode()
        return self._spelled_bytes(token) if self._is_byte_level else token.replace(_SPACE, " ").encode()

    def text_bytes(self, token_id: int) -> bytes:
        """Returns what the token adds to an output's text: nothing for control, unknown, unused and padding tokens,
        except for those that mark reasoning and tool calls."""
        token = self.token_bytes(token_id)
        has_text = self._token_types[token_id] in _TYPES_WITH_TEXT or token_id in self._marker_ids
        return token if has_text else b""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        **options: object,
    ) -> str:
        """Returns the prompt text of a chat, up to the assistant's turn. `options` are variables of the template.

        A message's content is a string or a list of text parts (`{"type": "text", "text": ...}`). The template is given
        the form that it shows. Keys of messages whose value is None count as absent. Reasoning in a message may be
        called `reasoning_content`, `thinking` or `reasoning`. Tools and tool calls have OpenAI's form; arguments are
        a mapping or JSON. An empty list of tools counts as None. Blocks while four other chats are being rendered.

        Raises InvalidRequestError where the model has no template, its template fails, or a tool call is malformed;
        CheckpointError for a template that does not compile.
        """
        return self._chat_templates.render(messages, tools, options)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None = None,
        **options: object,
    ) -> list[int]:
        """Returns the token ids of a chat, with one beginning token where the model wants it, whether or not the
        template writes it. Takes and raises what `render_chat` does."""
        return self.encode_rendered(self.render_chat(messages, tools, **options))

    def encode_rendered(self, text: str) -> list[int]:
        """Returns the token ids of a text that `render_chat` returned."""
        return self._with_beginning(self.encode(text, parse_special=True))

    def _with_beginning(self, token_ids: list[int]) -> list[int]:
        """Returns the tokens with the beginning token where the model wants it and they do not have it."""
        leading = list(self.leading_token_ids)
        return token_ids if token_ids[: len(leading)] == leading else leading + token_ids

    def _encode(self, text: str, special_tokens: SpecialTokens, *, is_beginning: bool) -> list[int]:
        token_ids: list[int] = []
        is_after_special = is_beginning
        for part in special_tokens.split(text):
            if isinstance(part, int):
                token_ids.append(part)
            else:
                token_ids += self._encode_plain(part, is_after_special)
            is_after_special = isinstance(part, int)
        return token_ids

    def _encode_plain(self, text: str, is_after_special: bool) -> list[int]:
        if not self._is_byte_level:
            prefix = _SPACE if self.has_space_prefix and is_after_special else ""
            text = prefix + text.replace(" ", _SPACE)
        encoder = self._built_encoder()
        if len(text) < _LONG_TEXT_CHARACTERS:
            token_ids: list[int] = encoder.encode(text, add_special_tokens=False).ids
        else:
            # Unlike `encode`, this lets other threads run meanwhile.
            token_ids = encoder.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return token_ids

    @cached_property
    def _max_token_size_bytes(self) -> int:
        return max(1, *(len(self.token_bytes(token_id)) for token_id in range(self.vocab_size)))

    def _built_encoder(self) -> Encoder:
        with self._encoder_lock:
            if self._encoder is None:
                self._encoder = build_encoder(self._vocabulary, self._cache)
            return self._encoder

    def _spelled_bytes(self, token: str) -> bytes:
        try:
            return bytes(map(self._bytes_by_character.__getitem__, token))
        except KeyError:
            return token.encode()


def _num_padding(gguf: GgufFile, vocabulary: Vocabulary) -> int:
    """Returns how many rows of the embedding belong to no token; 0 where the file has no embedding."""
    embedding = gguf.tensors.get(_EMBEDDING_NAME)
    num_tokens = len(vocabulary.tokens)
    num_rows = num_tokens if embedding is None else embedding.shape[0]
    if num_tokens > num_rows:
        raise CheckpointError(
            f"{gguf.paths[0]}: the vocabulary has {num_tokens} tokens, but the embedding only {num_rows} rows; "
            "the file is corrupt"
        )
    return num_rows - num_tokens


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"the text holds half of a surrogate pair at character {error.start}; send valid Unicode"
        ) from error


def _tokens_of_types(vocabulary: Vocabulary, *types: TokenType) -> SpecialTokens:
    token_ids: list[int] = np.flatnonzero(np.isin(vocabulary.token_types, types)).tolist()
    return SpecialTokens({vocabulary.tokens[token_id]: token_id for token_id in token_ids})
