"""`CompileCheck`: tries out constraints in another process, so that no client's schema can hold up or end an engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from paceline.constraints.grammars import GUIDANCE, guidance_grammar, refusal
from paceline.core import Constraint
from paceline.core.errors import PacelineError

_PROGRAM = Path(__file__).with_name("compile_worker.py")
_LONG_SOURCE_CHARACTERS = 2048
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")
_TIMEOUT_S = 20.0  # the process ends itself after 1 s of CPU time, which takes longer beside busy engines
_MAX_REMEMBERED = 4096
_MAX_REMEMBERED_CHARACTERS = 2**24
_END_TIMEOUT_S = 1.0  # between the end of its output and its end
_SIGNALS_OF_LIMITS = frozenset({signal.SIGPROF, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT})
_TOO_COMPLEX = "it takes too much time or memory to compile; make it smaller"


class CompileCheck:
    """Checks constraints, one after another, in a process that starts when it is first needed; `close` ends it.

    `check` must be used on one event loop. Replies are remembered, by a hash of the grammar. Of each tenant one
    constraint at a time is checked or waits for the process, so no tenant keeps others waiting for more than one.
    """

    def __init__(self) -> None:
        self._process: _CompileProcess | None = None
        self._thread = ThreadPoolExecutor(1, "check")
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._replies: OrderedDict[bytes, _Reply] = OrderedDict()
        self._num_characters = 0

    async def check(self, constraint: Constraint, tenant: str = "") -> Constraint:
        """Returns the same constraint as a grammar that is already written, so that an engine only compiles it.

        Raises InvalidRequestError, with the constraint's field, if the constraint cannot be compiled, and PacelineError
        if that could not be found out.
        """
        is_long = len(constraint.source) > _LONG_SOURCE_CHARACTERS
        grammar = await asyncio.to_thread(guidance_grammar, constraint) if is_long else guidance_grammar(constraint)
        key = hashlib.sha256(grammar.encode()).digest()
        if key not in self._replies:
            turn = self._turns.setdefault(tenant, asyncio.Lock())
            async with turn:
                if key not in self._replies:
                    loop = asyncio.get_running_loop()
                    self._remember(key, await loop.run_in_executor(self._thread, self._ask, grammar))
        reply = self._replies[key]
        self._replies.move_to_end(key)
        if reply.reason:
            raise refusal(constraint, reply.reason)
        return Constraint(kind=GUIDANCE, source=reply.grammar, field=constraint.field)

    def close(self) -> None:
        """Ends the process, whatever it is doing. There must be no check afterwards."""
        if (process := self._process) is not None:
            process.kill()
        self._thread.shutdown(cancel_futures=True)  # a check under way fails at once, because its process has ended
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ask(self, grammar: str) -> _Reply:
        """Returns the reply of the process, in the thread for that. A process that has failed is replaced."""
        try:
            if self._process is None:
                self._process = _CompileProcess()
            return self._process.ask(grammar)
        except (OSError, EOFError, TimeoutError) as error:
            return self._reply_to_failure(error)

    def _remember(self, key: bytes, reply: _Reply) -> None:
        """Remembers a reply, and forgets those that were used least lately if they are too many or too long."""
        self._replies[key] = reply
        self._num_characters += len(reply.grammar)
        while len(self._replies) > 1 and (
            len(self._replies) > _MAX_REMEMBERED or self._num_characters > _MAX_REMEMBERED_CHARACTERS
        ):
            _, forgotten = self._replies.popitem(last=False)
            self._num_characters -= len(forgotten.grammar)

    def _reply_to_failure(self, error: Exception) -> _Reply:
        """Ends the process. Returns that the grammar is too complex if the process went over a limit; otherwise raises
        PacelineError, and a later check may succeed."""
        process, self._process = self._process, None
        if process is not None and process.end() in _SIGNALS_OF_LIMITS:
            return _Reply("", _TOO_COMPLEX)
        raise PacelineError(f"the constraint could not be checked ({error!r}): send the request again") from error


@dataclass(frozen=True, slots=True)
class _Reply:
    """What `compile_worker` found out about one grammar."""

    grammar: str
    reason: str


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

    def ask(self, grammar: str) -> _Reply:
        """Returns what the process says about a grammar.

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
        return _Reply(**json.loads(line))

    def kill(self) -> None:
        """Ends the process, whatever it is doing."""
        self._process.kill()

    def end(self) -> int:
        """Ends the process unless it has ended, and returns the signal that ended it."""
        if not self._has_ended_by_itself():
            self._process.kill()
        self._process.communicate()
        return -self._process.returncode

    def _has_ended_by_itself(self) -> bool:
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        return True
