"""Tests which replica gets a call, and which models the pool lists."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from paceline.gateway.errors import EngineStartingError, QueueFullError, ServiceError, UnknownModelError
from paceline.gateway.pool import Pool, ServedModel


@dataclass(eq=False)
class ScriptedReplica:
    """A replica whose state a test sets; it answers no calls."""

    served_name: str = "a"
    model_names: frozenset[str] = field(default=frozenset({"a", "a-file"}))
    is_ready: bool = True
    num_outstanding: int = 0
    context_window_size: int | None = None
    card: None = None
    model_identity: str = ""
    opening: asyncio.Event = field(default_factory=asyncio.Event)
    error: ServiceError | None = None

    async def wait_open(self) -> None:
        await self.opening.wait()
        if self.error is not None:
            raise self.error
        self.is_ready = True


async def test_the_ready_replica_with_the_least_outstanding_requests_is_chosen() -> None:
    starting, busy, idle = ScriptedReplica(is_ready=False), ScriptedReplica(num_outstanding=2), ScriptedReplica()
    pool = Pool([starting, busy, idle])
    assert await pool.choose(None) is idle
    idle.num_outstanding = 3
    assert await pool.choose("a") is busy
    idle.is_ready = busy.is_ready = False
    assert not pool.is_ready


async def test_equal_replicas_take_turns() -> None:
    pool = Pool(replicas := [ScriptedReplica() for _ in range(3)])
    assert [replicas.index(await pool.choose("default")) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


async def test_where_none_is_ready_the_first_one_that_is_gets_the_call() -> None:
    full, slow, quick = (ScriptedReplica(is_ready=False) for _ in range(3))
    full.error = QueueFullError(7)
    full.opening.set()
    choosing = asyncio.ensure_future(Pool([full, slow, quick]).choose(None))
    await asyncio.sleep(0)
    quick.opening.set()
    assert await asyncio.wait_for(choosing, 5) is quick


async def test_where_none_gets_ready_the_call_says_why() -> None:
    replicas = [ScriptedReplica(is_ready=False, error=EngineStartingError(2.0)) for _ in range(2)]
    for replica in replicas:
        replica.opening.set()
    with pytest.raises(EngineStartingError):
        await Pool(replicas).choose(None)


async def test_models_are_found_by_all_their_names() -> None:
    other = ScriptedReplica("b", frozenset({"b"}), context_window_size=64)
    pool = Pool([ScriptedReplica(), ScriptedReplica(context_window_size=32), other])
    assert pool.models() == [ServedModel("a", 32), ServedModel("b", 64)]
    assert pool.find_model("default") == pool.find_model("a-file") == ServedModel("a", 32)
    assert await pool.choose("b") is other
    message = "model 'c' is not served here: use 'a' or 'default'"
    with pytest.raises(UnknownModelError, match=message):
        await pool.choose("c")
    with pytest.raises(UnknownModelError, match=message):
        pool.find_model("c")
