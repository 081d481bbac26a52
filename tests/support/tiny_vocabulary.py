"""A byte-level BPE vocabulary of a few hundred tokens for tiny test models, made like a published one.

First come 256 byte tokens with ids in byte order, then merged tokens that are learned from a short text, and last the
control tokens <|endoftext|>, <|im_start|> and <|im_end|> (the end of a turn).
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import gguf
import numpy as np

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MINIMUM_VOCAB_SIZE = 256 + len(CONTROL_TOKENS)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_TRAINING_TEXT = """
the riders at the front of the line do the work and the others follow in the wake of the wheel before them
each of them takes a turn there and when it is done they drift back to rest while another one comes to the front
a model that reads the whole text before it writes the next word can check many words at once as fast as one
def main(value, other): return value + other for line in lines if not line else None print name import from class self
user assistant system hello world what is this and why does that work in this way with the same answer every time
"""


@dataclass(frozen=True)
class TinyVocabulary:
    """Tokens in GPT-2's byte alphabet, their GGUF types, and the merges in order of rank ("left right")."""

    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]

    @property
    def end_of_text_id(self) -> int:
        """The id of <|endoftext|>."""
        return self.tokens.index("<|endoftext|>")

    @property
    def end_of_turn_id(self) -> int:
        """The id of <|im_end|>, the model's end-of-sequence token."""
        return self.tokens.index("<|im_end|>")


@dataclass(frozen=True)
class VocabularyChange:
    """Makes a vocabulary into another one. `seed` permutes all ids. The last `num_foreign` merged tokens (at most 26)
    are replaced by tokens that no text has ("QA", "QB" and so on)."""

    seed: int
    num_foreign: int = 0

    def order(self, vocab_size: int) -> list[int]:
        """Returns the old id of each new id."""
        permuted: list[int] = np.random.default_rng(self.seed).permutation(vocab_size).tolist()
        return permuted

    def apply(self, vocabulary: TinyVocabulary) -> TinyVocabulary:
        """Returns the changed vocabulary, in the order of the new ids."""
        foreign = [f"Q{chr(ord('A') + i)}" for i in range(self.num_foreign)]
        kept = vocabulary.merges[: len(vocabulary.merges) - self.num_foreign]
        tokens = [*vocabulary.tokens[: 256 + len(kept)], *foreign, *CONTROL_TOKENS]
        order = self.order(len(tokens))
        return TinyVocabulary(
            tuple(tokens[old] for old in order),
            tuple(vocabulary.token_types[old] for old in order),
            (*kept, *(f"{text[0]} {text[1]}" for text in foreign)),
        )


def byte_alphabet() -> list[str]:
    """Returns GPT-2's printable character for each byte, in byte order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    stand_ins = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(stand_ins)) for byte in range(256)]


def learn_merges(text: str, num_merges: int) -> list[tuple[str, str]]:
    """Returns the byte-pair merges of the words in `text` (with their leading space), most frequent first.

    The spelling decides ties.
    """
    words = Counter(tuple("Ġ" + word) for word in text.split())
    merges: list[tuple[str, str]] = []
    while len(merges) < num_merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        merged: Counter[tuple[str, ...]] = Counter()
        for word, count in words.items():
            merged[_apply(word, best)] += count
        words = merged
    return merges


def _apply(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    result: list[str] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return tuple(result)


def build_vocabulary(vocab_size: int) -> TinyVocabulary:
    """Returns the vocabulary of exactly `vocab_size` tokens; raises ValueError below 259, or if the text has too few
    merges."""
    if vocab_size < MINIMUM_VOCAB_SIZE:
        raise ValueError(f"vocab_size {vocab_size} is below {MINIMUM_VOCAB_SIZE}")
    merges = learn_merges(_TRAINING_TEXT, vocab_size - MINIMUM_VOCAB_SIZE)
    learned = [left + right for left, right in merges]
    tokens = (*byte_alphabet(), *learned, *CONTROL_TOKENS)
    normal = [gguf.TokenType.NORMAL] * (vocab_size - len(CONTROL_TOKENS))
    control = [gguf.TokenType.CONTROL] * len(CONTROL_TOKENS)
    return TinyVocabulary(tokens, tuple(map(int, normal + control)), tuple(f"{a} {b}" for a, b in merges))


def add_vocabulary(
    writer: gguf.GGUFWriter,
    vocabulary: TinyVocabulary,
    pre_tokenizer: str,
    chat_template: str | None = CHAT_TEMPLATE,
) -> None:
    """Writes the tokenizer's metadata: it adds no beginning-of-sequence token, and <|im_end|> ends a sequence. The chat
    template is ChatML by default; None writes no template."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(list(vocabulary.token_types))
    writer.add_token_merges(list(vocabulary.merges))
    writer.add_bos_token_id(vocabulary.end_of_text_id)
    writer.add_eos_token_id(vocabulary.end_of_turn_id)
    writer.add_pad_token_id(vocabulary.end_of_text_id)
    writer.add_add_bos_token(False)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
