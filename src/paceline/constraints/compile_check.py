"""`CompileCheck`: tries out constraints in another process, so that no client's schema can hold up or end an engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import select
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path

from paceline.constraints.grammars import GUIDANCE, guidance_grammar, refusal
from paceline.core import Constraint

_PROGRAM = Path(__file__).with_name("compile_worker.py")
_LONG_SOURCE_CHARACTERS = 2048
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")
_TIMEOUT_S = 20.0  # the process ends itself after 1 s of CPU time, which takes longer beside busy engines
_MAX_REMEMBERED = 4096
_TOO_COMPLEX = "it takes too much time or memory to compile; make it smaller"


class CompileCheck:
    """Checks constraints, one after another, in a process that starts when it is first needed; `close` ends it.

    `check` must be used on one event loop. Results are remembered, by a hash of the grammar.
    """

    def __init__(self) -> None:
        self._process: _CompileProcess | None = None
        self._asking = threading.Lock()
        self._turn = asyncio.Lock()
        self._reasons: OrderedDict[bytes, str] = OrderedDict()

    async def check(self, constraint: Constraint) -> Constraint:
        """Returns the same constraint as a grammar that is already written, so that an engine only compiles it.

        Raises InvalidRequestError, with the constraint's field, if the constraint cannot be compiled.
        """
        is_long = len(constraint.source) > _LONG_SOURCE_CHARACTERS
        grammar = await asyncio.to_thread(guidance_grammar, constraint) if is_long else guidance_grammar(constraint)
        key = hashlib.sha256(grammar.encode()).digest()
        if key not in self._reasons:
            async with self._turn:
                if key not in self._reasons:
                    self._remember(key, await asyncio.to_thread(self._ask, grammar))
        if reason := self._reasons[key]:
            raise refusal(constraint, reason)
        return Constraint(kind=GUIDANCE, source=grammar, field=constraint.field)

    def close(self) -> None:
        """Ends the process; a later check starts a new one."""
        with self._asking:
            self._end()

    def _remember(self, key: bytes, reason: str) -> None:
        self._reasons[key] = reason
        if len(self._reasons) > _MAX_REMEMBERED:
            self._reasons.popitem(last=False)

    def _ask(self, grammar: str) -> str:
        """Returns the reason why the grammar cannot be used. A process that has failed is replaced."""
        with self._asking:
            try:
                if self._process is None:
                    self._process = _CompileProcess()
                return self._process.ask(grammar)
            except (OSError, EOFError, TimeoutError):
                self._end()
                return _TOO_COMPLEX

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _CompileProcess:
    """A running `compile_worker`."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )

    def ask(self, grammar: str) -> str:
        """Returns the reason why the grammar cannot be used; it is empty if the grammar can be used.

        Raises OSError or EOFError if the process has ended, and TimeoutError.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(grammar).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], _TIMEOUT_S)[0]:
            raise TimeoutError
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return str(json.loads(line))

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()
        self._process.communicate()
