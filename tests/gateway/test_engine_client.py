"""Requests in flight: outputs reach the calls that wait, old and repeated outputs are dropped, and each end is reported
once."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from paceline.core import EngineStats, FinishReason, Output, Request, SamplingParams
from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.core.messages import (
    AbortRequest,
    AddRequest,
    Failed,
    ModelInfo,
    Outputs,
    ToEngine,
    decode_to_engine,
    encode_message,
)
from paceline.gateway.engines.process.client import EngineClient
from paceline.gateway.engines.process.in_flight import OutputStream
from paceline.gateway.errors import EngineEndedError, EngineStartingError, QueueFullError, ShuttingDownError
from paceline.observability import Metrics, StatusBoard
from paceline.observability.status_board import EngineAdded, EngineDown, EngineReady, StatsReported

MODEL = ModelInfo(name="m", context_window_size=64, vocab_size=100)


class Bench:
    """A client whose engine is played by the test. `sent` has the messages that the engine got."""

    def __init__(self, *, max_queued_requests: int = 4, ready_timeout_s: float = 5.0) -> None:
        self.registry = CollectorRegistry()
        self.sent: list[ToEngine] = []
        self.board = StatusBoard()
        Metrics(self.registry, self.board)
        self.board.publish(EngineAdded("7", "m"))
        self.client = EngineClient(
            "7",
            self.board,
            max_queued_requests=max_queued_requests,
            ready_timeout_s=ready_timeout_s,
        )

    def attach(self, epoch: int = 0) -> None:
        self.client.attach(epoch, MODEL, self.sent.append)

    async def submit(self, *requests: Request, arrival_s: float | None = None) -> OutputStream:
        """Submits the choices of one call; `arrival_s` None means that the call arrives now."""
        return await self.client.submit(requests, time.monotonic() if arrival_s is None else arrival_s)

    def encode(self, message: ToEngine) -> None:
        """Sends a message as `EngineHandle` does: it raises if the message cannot be encoded."""
        self.sent.append(decode_to_engine(encode_message(message)))

    def say(self, *outputs: Output, stats: EngineStats | None = None) -> None:
        self.client.deliver(Outputs(outputs=list(outputs), stats=stats))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"paceline_{name}", {"model_name": "m", "engine": "7", **labels})


def request(request_id: str, resumed: list[int] | None = None) -> Request:
    return Request(request_id=request_id, prompt_token_ids=[1, 2], resumed_token_ids=resumed or [])


def output(request_id: str, first: int, *token_ids: int, epoch: int = 0, finish: FinishReason | None = None) -> Output:
    return Output(
        request_id=request_id,
        epoch=epoch,
        first_token_index=first,
        token_ids=list(token_ids),
        text="".join(map(str, token_ids)),
        finish_reason=finish,
    )


async def test_outputs_of_several_choices_come_in_order_of_arrival() -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a"), request("b")) as stream:
        bench.say(output("b", 0, 5), output("a", 0, 6, finish=FinishReason.STOP))
        bench.say(output("b", 1, 7, 8, finish=FinishReason.LENGTH))
        news = [(index, one.token_ids) async for index, one in stream]
    assert news == [(1, [5]), (0, [6]), (1, [7, 8])]
    assert bench.sent == [AddRequest(request("a")), AddRequest(request("b"))]
    assert bench.metric("request_success_total", finished_reason="stop") == 1
    assert bench.metric("generation_tokens_total") == 4
    assert bench.metric("prompt_tokens_total") == 4


async def test_leaving_aborts_what_is_unfinished() -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a"), request("b")) as stream:
        bench.say(output("a", 0, 6, finish=FinishReason.STOP))
        await anext(stream)
    assert bench.sent[2:] == [AbortRequest("b")]
    assert bench.metric("request_success_total", finished_reason="abort") == 1
    await asyncio.wait_for(bench.client.wait_idle(), 1)


async def test_news_of_an_older_engine_and_known_tokens_are_dropped() -> None:
    bench = Bench()
    bench.attach(epoch=3)
    with await bench.submit(request("a")) as stream:
        bench.say(output("a", 0, 1, 2, epoch=2), output("a", 0, 3, epoch=3))
        bench.say(output("a", 0, 3, epoch=3), output("unknown", 0, 1, epoch=3))
        bench.say(output("a", 1, 4, epoch=3, finish=FinishReason.STOP))
        assert [one.token_ids async for _, one in stream] == [[3], [4]]


async def test_a_resumed_request_counts_the_tokens_that_its_client_has() -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a", resumed=[7, 8])) as stream:
        bench.say(output("a", 0, 7, 8), output("a", 2, 9, finish=FinishReason.STOP))
        assert [one.token_ids async for _, one in stream] == [[9]]


@pytest.mark.parametrize(("first", "token_ids"), [(2, (5,)), (0, (4, 5))])
async def test_missing_or_doubled_tokens_end_the_request_with_an_error(first: int, token_ids: tuple[int, ...]) -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a")) as stream:
        bench.say(output("a", 0, 4))
        bench.say(output("a", first, *token_ids))
        await anext(stream)
        with pytest.raises(PacelineError, match="but index 1 was expected"):
            await anext(stream)
    assert bench.sent[1:] == [AbortRequest("a")]


async def test_a_refusal_of_the_engine_keeps_its_field() -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a"), request("b")) as stream:
        bench.client.deliver(Failed(request_id="a", epoch=0, error="bad bias", param="logit_bias", code="c"))
        with pytest.raises(InvalidRequestError, match="bad bias") as caught:
            await anext(stream)
    assert (caught.value.param, caught.value.code) == ("logit_bias", "c")
    assert bench.sent[2:] == [AbortRequest("b")]


@pytest.mark.parametrize("finish", [FinishReason.ERROR, FinishReason.ABORT])
async def test_an_end_that_no_client_wanted_is_an_error(finish: FinishReason) -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a")) as stream:
        bench.say(output("a", 0, finish=finish))
        with pytest.raises(PacelineError, match="ended this request"):
            await anext(stream)


async def test_a_crash_fails_what_is_in_flight_after_what_was_said() -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a")) as stream:
        bench.say(output("a", 0, 1))
        bench.client.detach(EngineEndedError())
        assert (await anext(stream))[1].token_ids == [1]
        with pytest.raises(EngineEndedError):
            await anext(stream)
    assert bench.sent == [AddRequest(request("a"))]
    assert bench.metric("engine_up") == 0


async def test_the_next_request_waits_for_the_next_engine() -> None:
    bench = Bench()
    bench.attach()
    bench.client.detach(EngineEndedError())
    waiting = asyncio.create_task(bench.submit(request("a")))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.attach(epoch=1)
    with await waiting as stream:
        bench.say(output("a", 0, 1, epoch=1, finish=FinishReason.STOP))
        assert [one.token_ids async for _, one in stream] == [[1]]


async def test_nobody_waits_for_a_start_for_ever() -> None:
    bench = Bench(ready_timeout_s=0.01)
    with pytest.raises(EngineStartingError, match=r"still starting after 0\.01 s"):
        await bench.client.wait_ready()


async def test_too_many_queued_requests_are_refused() -> None:
    bench = Bench(max_queued_requests=2)
    bench.attach()
    with await bench.submit(request("a"), request("b")):
        with pytest.raises(QueueFullError):
            await bench.submit(request("c"))
        bench.say(output("a", 0, 1))
        with await bench.submit(request("c")):
            assert bench.client.num_queued == 2


async def test_a_call_in_preparation_keeps_its_places_in_the_queue() -> None:
    bench = Bench(max_queued_requests=2)
    bench.attach()
    with bench.client.preparing(1):
        with await bench.submit(request("a")), pytest.raises(QueueFullError), bench.client.preparing(1):
            pass
        with pytest.raises(QueueFullError):
            await bench.submit(request("b"), request("c"))
    with await bench.submit(request("b"), request("c")):
        assert bench.client.num_queued == 2
    with pytest.raises(InvalidRequestError, match="2 choices, not 3"), bench.client.preparing(3):
        pass


async def test_too_many_requests_that_wait_for_an_engine_are_refused() -> None:
    bench = Bench(max_queued_requests=1)
    waiting = asyncio.create_task(bench.client.wait_ready())
    await asyncio.sleep(0)
    with pytest.raises(QueueFullError):
        await bench.client.wait_ready()
    bench.attach()
    assert await waiting == MODEL


async def test_one_call_cannot_ask_for_more_than_the_queue_holds() -> None:
    bench = Bench(max_queued_requests=2)
    bench.attach()
    with pytest.raises(InvalidRequestError, match="2 choices, not 3"):
        await bench.submit(request("a"), request("b"), request("c"))


@pytest.mark.parametrize("is_attached", [True, False])
async def test_a_closed_client_refuses_and_lets_the_rest_go_on(is_attached: bool) -> None:
    bench = Bench()
    waiting = asyncio.create_task(bench.client.wait_ready())
    await asyncio.sleep(0)
    if is_attached:
        bench.attach()
        await waiting
    bench.client.close()
    with pytest.raises(ShuttingDownError):
        await (bench.client.wait_ready() if is_attached else waiting)
    assert not bench.client.is_ready


async def test_counters_grow_over_restarts() -> None:
    bench = Bench()
    bench.attach()
    bench.say(stats=EngineStats(num_steps=5, num_drafts=3, num_accepted_per_position=(3, 1), num_running=2))
    bench.say(stats=EngineStats(num_steps=7, num_drafts=3, num_accepted_per_position=(3, 1, 1), num_running=1))
    assert bench.metric("num_requests_running") == 1
    bench.client.detach(EngineEndedError())
    assert bench.metric("num_requests_running") == 0
    bench.attach(epoch=1)
    bench.say(stats=EngineStats(num_steps=2, num_accepted_per_position=(1,), num_blocks=8, num_free_blocks=6))
    assert bench.metric("engine_steps_total") == 9
    assert bench.metric("spec_decode_num_drafts_total") == 3
    assert bench.metric("spec_decode_num_accepted_tokens_per_pos_total", position="0") == 4
    assert bench.metric("spec_decode_num_accepted_tokens_per_pos_total", position="2") == 1
    assert bench.metric("kv_cache_usage_perc") == 0.25


async def test_a_request_that_cannot_be_sent_leaves_nothing_behind() -> None:
    bench = Bench(max_queued_requests=3)
    bench.client.attach(0, MODEL, bench.encode)
    unsendable = structs.replace(request("b"), sampling=SamplingParams(max_tokens=2**64))
    for _ in range(5):
        with pytest.raises(OverflowError):
            await bench.submit(request("a"), unsendable, request("c"))
        assert bench.client.num_queued == 0
        await asyncio.wait_for(bench.client.wait_idle(), 1)
    assert bench.sent == [AddRequest(request("a")), AbortRequest("a")] * 5
    assert bench.metric("prompt_tokens_total") == 2 * 5
    with await bench.submit(request("a"), request("b"), request("c")) as stream:
        bench.say(*(output(name, 0, 1, finish=FinishReason.STOP) for name in "abc"))
        assert [index async for index, _ in stream] == [0, 1, 2]


async def test_times_count_from_the_arrival_of_the_call() -> None:
    bench = Bench()
    bench.attach()
    with await bench.submit(request("a"), request("b"), arrival_s=time.monotonic() - 100) as stream:
        bench.say(output("a", 0, 1, finish=FinishReason.STOP), output("b", 0, 1, 2, finish=FinishReason.STOP))
        assert len([index async for index, _ in stream]) == 2
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds"):
        assert bench.metric(f"{name}_count") == 2
        assert 200 <= (bench.metric(f"{name}_sum") or 0) < 210


async def test_the_board_has_the_last_snapshot_and_what_became_of_the_engine() -> None:
    bench = Bench()
    told: list[object] = []
    bench.board.subscribe(told.append)
    assert not bench.board.engines["7"].is_up
    bench.attach(epoch=2)
    bench.say(stats=EngineStats(num_running=3))
    status = bench.board.engines["7"]
    assert (status.model_name, status.is_up, status.epoch) == ("m", True, 2)
    assert status.stats == EngineStats(num_running=3)
    bench.client.detach(EngineEndedError())
    assert (status.is_up, status.stats) == (False, None)
    assert [event for _, event in bench.board.events] == [EngineReady("7", 2), EngineDown("7")]
    assert told == [EngineReady("7", 2), StatsReported("7", EngineStats(num_running=3)), EngineDown("7")]
