"""Compares token ids with llama.cpp on the same file: for real models, and for other algorithms on made-up files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from paceline.checkpoint import GgufFile
from paceline.tokenizer import Tokenizer
from tests.tokenizer.llama_cpp_tokenizer import LlamaCppTokenizer
from tests.tokenizer.text_corpus import corpus_lines
from tests.tokenizer.vocabulary_files import sentence_piece_metadata, tokenizer_metadata, write_vocabulary_gguf

MetadataChange = Callable[[Mapping[str, object]], dict[str, object]]

_CONTROL, _USER_DEFINED = 3, 4
_MAX_CONTROL_TOKENS = 300


def _without(metadata: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in metadata.items() if key != f"tokenizer.ggml.{name}"}


def _control_tokens(gguf: GgufFile) -> list[str]:
    """Returns the spellings of control and user-defined tokens; if there are thousands, evenly spaced ones of them."""
    token_types = np.asarray(gguf.metadata["tokenizer.ggml.token_type"])
    tokens = gguf.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    ids = np.flatnonzero(np.isin(token_types, (_CONTROL, _USER_DEFINED))).tolist()
    return [tokens[token_id] for token_id in ids[:: max(1, len(ids) // _MAX_CONTROL_TOKENS)]] + ["</s>"]


def _differing_lines(path: Path, num_lines: int) -> list[str]:
    """Returns the lines whose token ids differ from llama.cpp's in any of the three ways to encode."""
    with GgufFile.open(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf, None)
        lines = corpus_lines(num_lines, _control_tokens(gguf))
    with LlamaCppTokenizer(path) as reference:
        return [
            line
            for number, line in enumerate(lines)
            if tokenizer.encode(line, parse_special=True) != reference.encode(line, parse_special=True)
            or tokenizer.encode(line, parse_special=False) != reference.encode(line, parse_special=False)
            or (number % 10 == 0 and tokenizer.encode_prompt(line) != reference.encode_prompt(line))
        ]


def test_smollm2_tokenizes_as_llama_cpp(smollm2_path: Path) -> None:
    assert _differing_lines(smollm2_path, 2000) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda real: tokenizer_metadata(real, pre="gpt-2"), id="gpt-2"),
        pytest.param(lambda real: tokenizer_metadata(real, pre="qwen2", add_eos_token=True), id="qwen2-adds-eos"),
        pytest.param(lambda real: tokenizer_metadata(real, pre="deepseek-r1-qwen"), id="deepseek-r1-qwen"),
        pytest.param(lambda real: _without(tokenizer_metadata(real, pre="tekken"), "add_bos_token"), id="tekken"),
        pytest.param(lambda real: _without(tokenizer_metadata(real, pre="llama-bpe"), "add_bos_token"), id="llama-bpe"),
        pytest.param(lambda real: _without(tokenizer_metadata(real), "pre"), id="no-pre-tokenizer"),
        pytest.param(sentence_piece_metadata, id="sentence-piece"),
        pytest.param(
            lambda real: sentence_piece_metadata(real, add_space_prefix=False, add_bos_token=False),
            id="sentence-piece-without-space-or-bos",
        ),
    ],
)
def test_made_up_tokenizers_tokenize_as_llama_cpp(
    change: MetadataChange, smollm2_metadata: Mapping[str, object], tmp_path: Path
) -> None:
    path = write_vocabulary_gguf(tmp_path / "model.gguf", change(smollm2_metadata))
    assert _differing_lines(path, 200) == []


@pytest.mark.large
@pytest.mark.parametrize("model", ["smollm2_path", "coder_draft_path", "coder_target_path", "gemma3_path"])
def test_ten_thousand_lines_tokenize_as_llama_cpp(model: str, request: pytest.FixtureRequest) -> None:
    assert _differing_lines(request.getfixturevalue(model), 10_000) == []


def test_end_of_generation_tokens_of_smollm2(smollm2: Tokenizer) -> None:
    texts = {smollm2.token_bytes(token_id) for token_id in smollm2.eos_token_ids}
    assert texts == {b"<|im_end|>", b"<|endoftext|>", b"<reponame>"}


@pytest.mark.large
def test_end_of_generation_tokens_of_large_models(coder_target_path: Path, gemma3_path: Path) -> None:
    with GgufFile.open(coder_target_path) as coder, GgufFile.open(gemma3_path) as gemma:
        assert Tokenizer.from_gguf(coder, None).eos_token_ids == {128247, 151643, 151645, 151662, 151663, 151664}
        assert Tokenizer.from_gguf(gemma, None).eos_token_ids == {1, 106, 212}


@pytest.mark.large
def test_the_coder_pair_shares_a_vocabulary(coder_target_path: Path, coder_draft_path: Path) -> None:
    with GgufFile.open(coder_target_path) as target, GgufFile.open(coder_draft_path) as draft:
        target_hash = Tokenizer.from_gguf(target, None).vocabulary_hash
        assert Tokenizer.from_gguf(draft, None).vocabulary_hash == target_hash
