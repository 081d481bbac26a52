"""`TemplateProcess`: the parent's side of one process that renders one chat template.

`template_worker` is its program. The process gets only those variables of the environment that Python and the local
time need. It ends with its parent: at once if it waits for a request, otherwise when its time limit is over.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from paceline.core.errors import CheckpointError, PacelineError

_PROGRAM = Path(__file__).with_name("template_worker.py")
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME", "TZ", "TZDIR")
_START_TIMEOUT_S = 60.0  # allows for importing jinja2 from a slow and busy disk; it usually takes 0.1 s
_MAX_IDLE_BYTES = 2**26  # a process that has rendered nothing large holds 20 MiB
_FRAME_LENGTH = struct.Struct("<Q")
_TEXT = b"+"
_PAGE_SIZE_BYTES = os.sysconf("SC_PAGE_SIZE")


class TemplateRefusedError(PacelineError):
    """The template raises an error on these variables; the message is the error's."""


class TemplateTimeoutError(PacelineError):
    """The template takes longer than the time limit, which the message states."""


class TemplateCrashError(PacelineError):
    """The process has ended during a rendering; the message says how."""


class TemplateProcess:
    """A process that has compiled the template `source`. One thread at a time may use it; `close` must follow.

    Raises CheckpointError where the template does not compile within `timeout_s` seconds, and PacelineError where no
    process starts.
    """

    def __init__(self, source: str, timeout_s: float) -> None:
        self._socket, process_socket = socket.socketpair()
        self._is_waiting = False
        try:
            with process_socket:
                self._process = _start(process_socket)
        except OSError as error:
            self._socket.close()
            raise PacelineError(f"the process that renders chat templates could not be started: {error}") from error
        try:
            self._compile(source, timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def is_reusable(self) -> bool:
        """Whether the process waits for a request and holds little memory."""
        return self._is_waiting and self.is_alive and self._resident_bytes() <= _MAX_IDLE_BYTES

    @property
    def is_alive(self) -> bool:
        """Whether the process runs; the system may have ended it even while it only waited."""
        return self._process.poll() is None

    def call(self, request: bytes, timeout_s: float) -> str:
        """Returns the text that the template gives for a JSON object of variables.

        Raises TemplateRefusedError, after which the process can be used again, and TemplateTimeoutError and
        TemplateCrashError, after which it cannot.
        """
        deadline_s = time.monotonic() + timeout_s
        try:
            self._socket.settimeout(_time_left(deadline_s))
            self._is_waiting = False
            self._socket.sendall(_FRAME_LENGTH.pack(len(request)) + request)
            kind, text = self._receive(deadline_s)
        except TimeoutError as error:
            raise TemplateTimeoutError(f"{timeout_s:g} s") from error
        except OSError as error:
            raise TemplateCrashError(self._end()) from error
        self._is_waiting = True
        if kind != _TEXT:
            raise TemplateRefusedError(text)
        return text

    def close(self) -> None:
        """Ends the process, whatever it is doing."""
        self._end()
        self._socket.close()

    def forget(self) -> None:
        """Drops the process without ending it, in a fork of the parent that it belongs to."""
        self._process.returncode = 0
        self._socket.close()

    def _compile(self, source: str, timeout_s: float) -> None:
        setup = json.dumps({"source": source, "timeout_s": timeout_s})
        try:
            self._receive(time.monotonic() + _START_TIMEOUT_S)
        except OSError as error:
            raise PacelineError(f"the process that renders chat templates did not start: {self._end()}") from error
        try:
            self.call(setup.encode(), timeout_s)
        except TemplateTimeoutError as error:
            reason = f"takes longer than {error} to compile"
            raise CheckpointError(f"the model's chat template {reason}; use another model file") from error
        except (TemplateRefusedError, TemplateCrashError) as error:
            reason = f"does not compile ({error})"
            raise CheckpointError(f"the model's chat template {reason}; use another model file") from error

    def _receive(self, deadline_s: float) -> tuple[bytes, str]:
        (length,) = _FRAME_LENGTH.unpack(self._receive_bytes(_FRAME_LENGTH.size, deadline_s))
        payload = self._receive_bytes(length, deadline_s)
        return payload[:1].tobytes(), str(payload[1:], "utf-8", "surrogatepass")

    def _receive_bytes(self, size: int, deadline_s: float) -> memoryview:
        data = memoryview(bytearray(size))
        num_received = 0
        while num_received < size:
            self._socket.settimeout(_time_left(deadline_s))
            num_new = self._socket.recv_into(data[num_received:])
            if num_new == 0:
                raise ConnectionResetError
            num_received += num_new
        return data

    def _end(self) -> str:
        """Ends the process, and returns how it ended."""
        self._process.kill()
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _resident_bytes(self) -> int:
        with open(f"/proc/{self._process.pid}/statm", "rb", buffering=0) as file:  # noqa: PTH123
            return int(file.read().split()[1]) * _PAGE_SIZE_BYTES


def _time_left(deadline_s: float) -> float:
    """Returns the seconds until the deadline; raises TimeoutError where none are left."""
    time_left_s = deadline_s - time.monotonic()
    if time_left_s <= 0:
        raise TimeoutError
    return time_left_s


def _start(process_socket: socket.socket) -> subprocess.Popen[bytes]:
    """Starts the program with the parent's import path, in a session of its own, which a Ctrl-C does not reach."""
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-S", "-P", str(_PROGRAM)],
        stdin=process_socket.fileno(),
        stdout=process_socket.fileno(),
        env=environment,
        start_new_session=True,
    )
