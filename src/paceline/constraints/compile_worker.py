"""The program that tries out constraints in a process of its own; `compile_check` starts it.

Schemas and grammars come from clients. Some take minutes to compile, need all memory, or overflow the stack, which ends
the process. The program therefore runs with low priority under limits of CPU time and memory, and with a smaller stack
than an engine's. The file is run by its path and imports only `llguidance`, numpy and the standard library.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

MAX_CPU_S = 1.0
UNREAD = "lark_or_gbnf"
"""The key of a grammar, in the list `grammars`, that is Lark or GBNF."""
_MAX_MEMORY_BYTES = 2**30
_STACK_BYTES = 2**20
_NUM_TRIED_STEPS = 64  # forms that exhaust the limits of `llguidance` did so within two steps in all cases tried
_NICENESS = 5  # beside busy cores it still gets a quarter of one
_NUM_BYTES = 256


class _Bytes:
    """A vocabulary of single bytes, which every model's tokens are made of."""

    tokens = (*(bytes([value]) for value in range(_NUM_BYTES)), b"<end>")
    eos_token_id = _NUM_BYTES
    bos_token_id = None
    special_token_ids = (_NUM_BYTES,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def byte_tokenizer() -> LLTokenizer:
    """Returns a vocabulary of single bytes, whose last token ends an output."""
    return LLTokenizer(TokenizerWrapper(_Bytes()))


def read_grammar(written: str) -> str:
    """Returns a grammar of `llguidance` in which GBNF is converted to Lark; raises ValueError if that fails."""
    if UNREAD not in written:
        return written
    grammars = json.loads(written)["grammars"]
    for grammar in grammars:
        if UNREAD in grammar:
            try:
                grammar["lark_grammar"] = any_to_lark(grammar.pop(UNREAD))
            except Exception as error:  # the converter raises errors of several kinds
                raise ValueError(f"the grammar is neither lark nor gbnf: {error}") from error
    return json.dumps({"grammars": grammars})


def main() -> None:
    """Answers each line of standard input, a grammar as a JSON text, with a line: a JSON object of the grammar as
    `read_grammar` returns it, and of the reason why it cannot be used, which is empty if it can be used.

    Ends when standard input ends.
    """
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    tokenizer = byte_tokenizer()
    threading.stack_size(_STACK_BYTES)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)  # its default action ends the process
        thread = threading.Thread(target=_answer, args=[tokenizer, line])
        thread.start()
        thread.join()
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(tokenizer: LLTokenizer, line: str) -> None:
    grammar, reason = "", ""
    try:
        grammar = read_grammar(json.loads(line))
        reason = _reason(tokenizer, grammar)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    sys.stdout.write(json.dumps({"grammar": grammar, "reason": reason}) + "\n")
    sys.stdout.flush()


def _reason(tokenizer: LLTokenizer, grammar: str) -> str:
    """Compiles the grammar and takes some steps in it. Returns why that fails; nothing if it succeeds."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0)
    mask = np.zeros(_NUM_BYTES // 32 + 1, np.uint32)
    for _ in range(_NUM_TRIED_STEPS):
        if matcher.is_stopped():
            break
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not len(allowed) or not matcher.try_consume_tokens([int(allowed[len(allowed) // 2])]):
            break
    # What follows the first line of an error describes the parser's state.
    return str(matcher.get_error()).partition("\n<state>")[0] if matcher.is_error() else ""


if __name__ == "__main__":
    main()
