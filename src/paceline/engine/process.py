"""Runs an engine in its own process: `python -m paceline.engine.process`, which the gateway's supervisor starts.

It reads an `EngineStart` from standard input, loads the models, sends `Ready`, and then steps while there is work. When
its parent ends, standard input ends, and then it ends too. It ignores Ctrl-C, which its parent handles.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import cast

import msgspec
import zmq

from paceline.config import EngineConfig
from paceline.core import Constraint, FinishReason, Output, Request, SamplingParams
from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.core.messages import (
    AbortRequest,
    AddRequest,
    EngineStart,
    Failed,
    Fatal,
    FromEngine,
    ModelInfo,
    Outputs,
    Ping,
    Pong,
    Ready,
    Shutdown,
    ToEngine,
    decode_to_engine,
    encode_message,
)
from paceline.engine.engine import Engine
from paceline.observability import configure_logging
from paceline.observability.logging import LogFormat
from paceline.sampling.constraints import OutputConstraint

_LOGGER = logging.getLogger(__name__)
_STATS_INTERVAL_S = 0.25
_LINGER_MS = 2000
_PREPARATION_POLL_MS = 2
_WARM_UP_PROMPT = "Count from one to ten: one, two, three,"
_NUM_WARM_UP_TOKENS = 16


class EngineLoop:
    """Serves one engine to one socket until it is told to shut down.

    A request with a constraint first waits until a thread has compiled the constraint, so that steps for others go on.
    The thread has the priority of all others. With a lower one, it could hold the interpreter and wait for a core.
    """

    def __init__(self, engine: Engine, socket: zmq.Socket[bytes], epoch: int) -> None:
        self._engine = engine
        self._socket = socket
        self._epoch = epoch
        self._is_running = True
        self._next_stats_s = 0.0
        self._preparing = ThreadPoolExecutor(1, "prepare")
        self._in_preparation: dict[str, Request] = {}
        self._prepared: queue.SimpleQueue[tuple[Request, OutputConstraint | InvalidRequestError | None]] = (
            queue.SimpleQueue()
        )

    def run(self) -> None:
        """Steps while there is work and handles messages between the steps; while idle it waits for a message.

        Returns after `Shutdown`.
        """
        while self._is_running:
            self._receive()
            self._add_prepared()
            if self._is_running and self._engine.has_unfinished:
                self._publish(self._engine.step())

    def _receive(self) -> None:
        idle_ms = _PREPARATION_POLL_MS if self._in_preparation else None
        self._socket.poll(0 if self._engine.has_unfinished else idle_ms)
        while self._is_running:
            try:
                data = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._handle(decode_to_engine(data))

    def _handle(self, message: ToEngine) -> None:
        match message:
            case AddRequest(request) if request.constraint is not None:
                self._in_preparation[request.request_id] = request
                self._preparing.submit(self._prepare, request)
            case AddRequest(request):
                self._add(request)
            case AbortRequest(request_id):
                self._in_preparation.pop(request_id, None)
                self._engine.abort(request_id)
                self._publish([])
            case Ping(number):
                self._send(Pong(number))
            case Shutdown():
                self._is_running = False

    def _prepare(self, request: Request) -> None:
        """Compiles the request's constraint, in the thread for that, unless the request was aborted."""
        found: OutputConstraint | InvalidRequestError | None = None
        try:
            if request.request_id in self._in_preparation:
                found = self._engine.prepare(request.constraint)
        except InvalidRequestError as error:
            found = error
        finally:
            self._prepared.put((request, found))

    def _add_prepared(self) -> None:
        """Adds the requests whose constraints were compiled meanwhile, except those that were aborted."""
        while not self._prepared.empty():
            request, found = self._prepared.get()
            if self._in_preparation.pop(request.request_id, None) is None:
                continue
            if isinstance(found, InvalidRequestError):
                self._send(self._refusal(request, found))
            else:
                self._add(request, found)

    def _add(self, request: Request, prepared: OutputConstraint | None = None) -> None:
        """Gives a request to the engine. If the engine cannot take it, sends an error; all other requests go on."""
        try:
            self._engine.add(request, prepared)
        except InvalidRequestError as error:
            self._send(self._refusal(request, error))
        except Exception:
            _LOGGER.exception("request %s ends with an error", request.request_id)
            self._send(Outputs(outputs=[self._failure(request)]))

    def _refusal(self, request: Request, error: InvalidRequestError) -> Failed:
        return Failed(
            request_id=request.request_id, epoch=self._epoch, error=str(error), param=error.param, code=error.code
        )

    def _failure(self, request: Request) -> Output:
        return Output(
            request_id=request.request_id,
            epoch=self._epoch,
            first_token_index=len(request.resumed_token_ids),
            token_ids=[],
            finish_reason=FinishReason.ERROR,
            error="the engine failed on this request: see its log",
        )

    def _publish(self, outputs: list[Output]) -> None:
        """Sends outputs, and statistics if they are due: at an interval, and always when no work is left."""
        now_s = time.monotonic()
        is_due = now_s >= self._next_stats_s or not self._engine.has_unfinished
        if is_due:
            self._next_stats_s = now_s + _STATS_INTERVAL_S
        if outputs or is_due:
            self._send(Outputs(outputs=outputs, stats=self._engine.stats() if is_due else None))

    def _send(self, message: FromEngine) -> None:
        self._socket.send(encode_message(message))


def main() -> int:
    """Runs the process and returns its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_at_once)
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=EngineStart)
    configure_logging(cast(LogFormat, start.log_format))
    socket_dir = Path(start.address.removeprefix("ipc://")).parent
    threading.Thread(target=_end_with_parent, args=(socket_dir,), daemon=True).start()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        socket.set_hwm(0)
        socket.connect(start.address)
        return _run(EngineConfig.model_validate_json(start.engine_config), start.epoch, socket)


def _run(config: EngineConfig, epoch: int, socket: zmq.Socket[bytes]) -> int:
    try:
        engine = Engine(config, epoch=epoch)
    except PacelineError as error:
        socket.send(encode_message(Fatal(kind=type(error).__name__, error=str(error))))
        return 1
    except Exception as error:
        socket.send(encode_message(Fatal(kind="PacelineError", error=f"the engine could not start: {error!r}")))
        raise
    engine.tokenizer.close()  # requests arrive as token ids, so no chat is rendered here
    # Loaded objects stay for good. Frozen, they are not scanned by the garbage collector, which would take tens of
    # milliseconds of a step.
    gc.collect()
    gc.freeze()
    if config.has_warmup:
        try:
            _warm_up(engine)
        except PacelineError as error:
            _LOGGER.warning("the engine could not warm up: %s", error)
    socket.send(encode_message(Ready(epoch=epoch, model=_model_info(engine))))
    EngineLoop(engine, socket, epoch).run()
    return 0


def _warm_up(engine: Engine) -> None:
    """Answers a short request, once free and once in a form, so that all that happens only once has happened."""
    sampling = SamplingParams(max_tokens=_NUM_WARM_UP_TOKENS, temperature=0.0)
    for constraint in (None, Constraint(kind="json_object", source="")):
        engine.generate([_WARM_UP_PROMPT], sampling, constraint=constraint)
    engine.clear_prefix_cache()


def _model_info(engine: Engine) -> ModelInfo:
    return ModelInfo(
        name=engine.parts.model_name,
        context_window_size=engine.context_window_size,
        vocab_size=engine.vocab_size,
        max_batch_size=engine.config.max_batch_size,
        identity=engine.parts.model_identity,
    )


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    """Ends the process. SystemExit would print a traceback where exceptions are ignored, such as in a finalizer."""
    os._exit(0)


def _end_with_parent(socket_dir: Path) -> None:
    """Waits until the parent has ended, then removes the sockets and ends this process at once."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    shutil.rmtree(socket_dir, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
