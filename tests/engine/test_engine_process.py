"""The engine's loop over messages: a request on which the engine fails gets an error, and all others go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
import zmq

from paceline.core import FinishReason, Output
from paceline.core.messages import (
    AddRequest,
    Failed,
    FromEngine,
    Outputs,
    Ping,
    Pong,
    Shutdown,
    ToEngine,
    decode_from_engine,
    encode_message,
)
from paceline.engine import Engine
from paceline.engine.process import EngineLoop
from paceline.sampling.sequence_sampler import SequenceSampler
from tests.engine.engine_factory import request, token_ids

PROMPT = [65, 66, 67]
EPOCH = 3


class Gateway:
    """The other side of a loop, which runs in a thread. Tests may look at `engine` only after the loop has ended."""

    def __init__(self, engine: Engine, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.engine = engine
        self._socket = context.socket(zmq.DEALER)
        self._socket.rcvtimeo = 20_000
        self._socket.bind("inproc://loop")
        self._engine_socket = context.socket(zmq.DEALER)
        self._engine_socket.connect("inproc://loop")
        self._thread = threading.Thread(target=EngineLoop(engine, self._engine_socket, EPOCH).run)
        self._thread.start()

    def send(self, *messages: ToEngine) -> None:
        for message in messages:
            self._socket.send(encode_message(message))

    def receive(self) -> FromEngine:
        return decode_from_engine(self._socket.recv())

    def outputs_until(self, request_id: str) -> dict[str, list[Output]]:
        """Returns the outputs by request, up to the last output of this request."""
        outputs: dict[str, list[Output]] = {}
        while request_id not in outputs or outputs[request_id][-1].finish_reason is None:
            message = self.receive()
            assert isinstance(message, Outputs)
            for output in message.outputs:
                outputs.setdefault(output.request_id, []).append(output)
        return outputs

    def end(self) -> None:
        """Ends the loop and closes the sockets; does nothing if it was called before."""
        if self._socket.closed:
            return
        self.send(Shutdown())
        self._thread.join(20)
        self._socket.close()
        self._engine_socket.close()


@pytest.fixture
def gateway(engines) -> Iterator[Gateway]:
    with zmq.Context() as context:
        gateway = Gateway(engines.make(epoch=EPOCH), context)
        yield gateway
        gateway.end()


@pytest.fixture
def failing_ids(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Returns a set of request ids; creating a sampler fails for the ids that a test adds to it."""
    names: set[str] = set()
    make = SequenceSampler.begin

    def begin(sampler, sequence, **settings):
        if sequence.sequence_id in names:
            raise TypeError("incompatible function arguments")
        return make(sampler, sequence, **settings)

    monkeypatch.setattr(SequenceSampler, "begin", begin)
    return names


def test_a_request_that_the_engine_fails_on_ends_alone(gateway, failing_ids, caplog) -> None:
    failing_ids.add("bad")
    good = AddRequest(request("good", PROMPT, max_tokens=20, temperature=0.0, ignore_eos=True))
    gateway.send(good, AddRequest(request("bad", PROMPT)), AddRequest(request("bad", PROMPT)))
    outputs = gateway.outputs_until("good")
    assert len(token_ids(outputs["good"])) == 20
    assert (
        outputs["bad"]
        == [
            Output(
                request_id="bad",
                epoch=EPOCH,
                first_token_index=0,
                token_ids=[],
                finish_reason=FinishReason.ERROR,
                error="the engine failed on this request: see its log",
            )
        ]
        * 2
    )
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in errors] == ["request bad ends with an error"] * 2
    assert all(record.exc_info and record.exc_info[0] is TypeError for record in errors)


def test_a_request_that_the_engine_fails_on_leaves_nothing_behind(gateway, failing_ids) -> None:
    failing_ids.add("bad")
    gateway.send(AddRequest(request("bad", PROMPT)))
    assert gateway.outputs_until("bad")["bad"][-1].finish_reason is FinishReason.ERROR
    failing_ids.clear()
    gateway.send(Ping(1))
    assert gateway.receive() == Pong(1)
    gateway.send(AddRequest(request("bad", PROMPT, max_tokens=4, temperature=0.0, ignore_eos=True)))
    assert len(token_ids(gateway.outputs_until("bad")["bad"])) == 4
    gateway.end()
    engine = gateway.engine
    assert not engine.has_unfinished
    assert (engine.stats().num_waiting, engine.stats().num_running) == (0, 0)
    engine.check_integrity()


def test_a_refused_request_is_told_its_field(gateway) -> None:
    gateway.send(AddRequest(request("r", PROMPT, top_k=2**63)))
    message = gateway.receive()
    assert isinstance(message, Failed)
    assert (message.request_id, message.epoch, message.param) == ("r", EPOCH, "top_k")
    gateway.send(Ping(2))
    assert gateway.receive() == Pong(2)
