"""`CompileCheck`: tries out constraints in another process, so that no client's schema can hold up or end an engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections import OrderedDict
from pathlib import Path

from paceline.constraints.grammars import guidance_grammar, refusal
from paceline.core import Constraint

_PROGRAM = Path(__file__).with_name("compile_worker.py")
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")
_TIMEOUT_S = 20.0  # the process ends itself after 1 s of CPU time, which takes longer beside busy engines
_MAX_LINE_BYTES = 2**24
_MAX_REMEMBERED = 4096
_TOO_COMPLEX = "it takes too much time or memory to compile; make it smaller"


class CompileCheck:
    """Checks constraints, one after another, in a process that starts when it is first needed; `close` ends it.

    It must be used on one event loop. Results are remembered, by a hash of the grammar.
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._reasons: OrderedDict[bytes, str] = OrderedDict()

    async def check(self, constraint: Constraint) -> None:
        """Raises InvalidRequestError, with the constraint's field, if the constraint cannot be compiled."""
        grammar = guidance_grammar(constraint)
        key = hashlib.sha256(grammar.encode()).digest()
        if key not in self._reasons:
            async with self._turn:
                if key not in self._reasons:
                    self._remember(key, await self._ask(grammar))
        if reason := self._reasons[key]:
            raise refusal(constraint, reason)

    def close(self) -> None:
        """Ends the process; a later check starts a new one."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        self._process = None

    def _remember(self, key: bytes, reason: str) -> None:
        self._reasons[key] = reason
        if len(self._reasons) > _MAX_REMEMBERED:
            self._reasons.popitem(last=False)

    async def _ask(self, grammar: str) -> str:
        """Returns the reason why the grammar cannot be used. The process is not used again after a failure, nor after a
        call that was cancelled."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            process = await _start()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(grammar).encode() + b"\n")
            reason = await _read_line(process)
        except (OSError, EOFError, TimeoutError):
            return _TOO_COMPLEX
        else:
            self._process, process = process, None
            return reason
        finally:
            if process is not None and process.returncode is None:
                process.kill()


async def _read_line(process: asyncio.subprocess.Process) -> str:
    """Returns the text of the next line. Raises EOFError if the process has ended, and TimeoutError."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), _TIMEOUT_S)
    if not line.endswith(b"\n"):
        raise EOFError
    return str(json.loads(line)) if line.strip() else ""


async def _start() -> asyncio.subprocess.Process:
    """Starts the program with the parent's import path, and waits until it is ready."""
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-S",
        "-P",
        str(_PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
        limit=_MAX_LINE_BYTES,
    )
    await _read_line(process)
    return process
