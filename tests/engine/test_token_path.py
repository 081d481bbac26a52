"""A plain decode step of a running stream executes the files that docs/extending.md lists, and no others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
import zmq

import paceline
from paceline.config import EngineConfig
from paceline.core import Request, SamplingParams
from paceline.core.messages import AddRequest, Outputs, Shutdown, decode_from_engine, encode_message
from paceline.engine import Engine
from paceline.engine.process import EngineLoop
from tests.support.documents import files_of_a_tokens_life
from tests.support.tiny_gguf import TinyPair

PACKAGE = Path(paceline.__file__).parent
NUM_TOKENS = 40


@pytest.fixture
def gateway() -> Iterator[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]:
    """Yields both ends of a socket between gateway and engine."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as own, context.socket(zmq.DEALER) as engines:
        own.bind("inproc://engine")
        engines.connect("inproc://engine")
        yield own, engines


def files_executed(work: Callable[[], object]) -> set[str]:
    """Returns the package's files that have a function which `work` calls, relative to the repository."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            names.add(frame.f_code.co_filename)

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(previous)
    return {f"src/paceline/{Path(name).relative_to(PACKAGE)}" for name in names if Path(name).is_relative_to(PACKAGE)}


def test_a_plain_step_executes_the_files_that_are_listed(
    tiny_pair: TinyPair, gateway: tuple[zmq.Socket[bytes], zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, engines = gateway
    engine = Engine(EngineConfig(model=str(tiny_pair.target), drafters=(), context_window_size=128, num_threads=1))
    sampling = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
    own.send(encode_message(AddRequest(Request(request_id="r", prompt_token_ids=[70, 71], sampling=sampling))))
    steps: list[set[str]] = []
    plain_step = engine.step

    class TracedLoop(EngineLoop):
        """A loop that traces each round, from receiving messages to sending outputs. It ends with the request."""

        def _receive(self) -> None:
            steps.append(files_executed(super()._receive))

        def _publish(self, outputs: list[object]) -> None:
            steps[-1] |= files_executed(lambda: super(TracedLoop, self)._publish(outputs))
            if not self._engine.has_unfinished:
                own.send(encode_message(Shutdown()))

    def step() -> list[object]:
        outputs: list[object] = []
        steps[-1] |= files_executed(lambda: outputs.extend(plain_step()))
        return outputs

    monkeypatch.setattr(engine, "step", step)
    TracedLoop(engine, engines, 0).run()
    messages = [decode_from_engine(own.recv()) for _ in range(NUM_TOKENS)]
    assert all(isinstance(message, Outputs) for message in messages)
    decoding = steps[5:-5]  # without the steps of the prompt and of the end
    common = set.intersection(*decoding)
    assert sorted(common) == sorted(files_of_a_tokens_life())
    occasional = set.union(*decoding) - common  # files that are executed only a few times a second
    assert occasional <= {"src/paceline/engine/collect_stats.py"}
