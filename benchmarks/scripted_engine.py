"""An engine process that runs no model: it answers each request with the same word again and again, one a step.

`gateway_cpu.py` starts it in place of the engine, to measure the gateway alone. A step takes `STEP_S`, and each of its
messages has one token of each request, as those of the real engine.
"""

from __future__ import annotations

import sys
import time

import msgspec
import zmq

from paceline.config import EngineConfig
from paceline.core import FinishReason, Output, Request
from paceline.core.messages import (
    AbortRequest,
    AddRequest,
    EngineStart,
    ModelInfo,
    Outputs,
    Ready,
    Shutdown,
    decode_to_engine,
    encode_message,
)

STEP_S = 0.005
TOKEN_ID = 260
WORD = " word"


def main() -> None:
    """Answers until it is told to end."""
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=EngineStart)
    config = EngineConfig.model_validate_json(start.engine_config)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set_hwm(0)
        socket.connect(start.address)
        model = ModelInfo(
            name="scripted", context_window_size=4096, vocab_size=49152, max_batch_size=config.max_batch_size
        )
        socket.send(encode_message(Ready(epoch=start.epoch, model=model)))
        running: dict[str, tuple[Request, int]] = {}
        while read_messages(socket, running):
            if running:
                step(socket, running, start.epoch)
                time.sleep(STEP_S)


def read_messages(socket: zmq.Socket[bytes], running: dict[str, tuple[Request, int]]) -> bool:
    """Takes what the gateway has sent, and waits if there is nothing to do; returns False if the process is to end."""
    while socket.poll(0 if running else None):
        message = decode_to_engine(socket.recv())
        match message:
            case Shutdown():
                return False
            case AddRequest(request):
                running[request.request_id] = (request, 0)
            case AbortRequest(request_id):
                running.pop(request_id, None)
    return True


def step(socket: zmq.Socket[bytes], running: dict[str, tuple[Request, int]], epoch: int) -> None:
    """Sends one token of each request."""
    outputs = []
    for request, num_sent in list(running.values()):
        is_last = num_sent + 1 >= (request.sampling.max_tokens or 1)
        outputs.append(
            Output(
                request_id=request.request_id,
                epoch=epoch,
                first_token_index=num_sent,
                token_ids=[TOKEN_ID],
                text=WORD,
                finish_reason=FinishReason.LENGTH if is_last else None,
            )
        )
        running[request.request_id] = (request, num_sent + 1)
        if is_last:
            del running[request.request_id]
    socket.send(encode_message(Outputs(outputs=outputs)))


if __name__ == "__main__":
    main()
