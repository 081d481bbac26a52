"""Finds the tokens that end a text: those that the file names, and those with a known spelling.

A file names at most one end-of-sequence token, but chat models end a turn with another token, and code models end a
file with a third. The spellings are those that llama.cpp treats as the end of generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_END_TEXTS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
_FILL_IN_ENDS = (
    ("fim_pad_token_id", ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")),
    ("fim_rep_token_id", ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")),
    ("fim_sep_token_id", ("<|file_sep|>",)),
)
_FILL_IN_PARTS = (
    *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", "▁<PRE>"),
    *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", "▁<SUF>"),
    *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", "▁<MID>"),
)

CONTROL_TEXTS = (*_END_TEXTS, *(text for _, texts in _FILL_IN_ENDS for text in texts), *_FILL_IN_PARTS)
"""Spellings of tokens that control generation even where a file types them as ordinary ones."""


def end_of_generation_ids(
    ids_by_text: Mapping[str, int], eos_token_id: int | None, read_token_id: Callable[[str], int | None]
) -> frozenset[int]:
    """Returns the ids of all tokens that end generation; `read_token_id` reads a `tokenizer.ggml` entry of the file."""
    found = {ids_by_text[text] for text in _END_TEXTS if text in ids_by_text}
    for key, texts in _FILL_IN_ENDS:
        named = read_token_id(key)
        spelled = (ids_by_text[text] for text in texts if text in ids_by_text)
        found.update(spelled if named is None else (named,))
    named_ends = (eos_token_id, read_token_id("eot_token_id"), read_token_id("eom_token_id"))
    found.update(token_id for token_id in named_ends if token_id is not None)
    if {"<|return|>", "<|call|>", "<|end|>"} <= ids_by_text.keys():
        # In this chat format <|end|> closes a message, and the answer may go on with another one.
        found.discard(ids_by_text["<|end|>"])
    return frozenset(found)
