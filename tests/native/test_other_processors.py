"""Runs on other processors than this machine's, emulated by QEMU: no missing instruction is used, and the text is the
same.

QEMU 7.2 does not emulate AVX-512.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.tiny_gguf import write_tiny_gguf

ANSWER = """
import json, sys
from paceline import Engine, EngineConfig, SamplingParams
from paceline.backends.native.model import instruction_sets
engine = Engine(EngineConfig(model=sys.argv[1], num_threads=2, speculation="fixed"))
answers = engine.generate(["the riders at the front"], SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True))
print(json.dumps([list(instruction_sets()), answers[0].token_ids]))
"""


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory):
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf", "qwen2", "Q4_K")


def run_answer(path, *emulator):
    command = [*emulator, sys.executable, "-c", ANSWER, str(path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.emulated
@pytest.mark.parametrize(("processor", "expected_sets"), [("Nehalem", ["scalar"]), ("Haswell", ["scalar", "avx2"])])
def test_a_processor_without_newer_instructions_writes_the_same_text(tiny_path, processor, expected_sets):
    found_sets, token_ids = run_answer(tiny_path, "qemu-x86_64", "-cpu", processor)
    assert found_sets == expected_sets
    assert token_ids == run_answer(tiny_path)[1]
