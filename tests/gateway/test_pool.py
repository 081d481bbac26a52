"""Which replica gets a call, and which models there are."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from paceline.gateway.errors import UnknownModelError
from paceline.gateway.pool import Pool, ServedModel


@dataclass(eq=False)
class ScriptedReplica:
    """A replica of which only the state counts."""

    served_name: str = "a"
    model_names: frozenset[str] = field(default=frozenset({"a", "a-file"}))
    is_ready: bool = True
    num_outstanding: int = 0
    context_window_size: int | None = None


def test_the_ready_replica_with_the_least_outstanding_requests_is_chosen() -> None:
    starting, busy, idle = ScriptedReplica(is_ready=False), ScriptedReplica(num_outstanding=2), ScriptedReplica()
    pool = Pool([starting, busy, idle])
    assert pool.choose(None) is idle
    idle.num_outstanding = 3
    assert pool.choose("a") is busy
    idle.is_ready = busy.is_ready = False
    assert pool.choose("a-file") is starting
    assert not pool.is_ready


def test_equal_replicas_take_turns() -> None:
    pool = Pool(replicas := [ScriptedReplica() for _ in range(3)])
    assert [replicas.index(pool.choose("default")) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_models_are_found_by_all_their_names() -> None:
    other = ScriptedReplica("b", frozenset({"b"}), context_window_size=64)
    pool = Pool([ScriptedReplica(), ScriptedReplica(context_window_size=32), other])
    assert pool.models() == [ServedModel("a", 32), ServedModel("b", 64)]
    assert pool.find_model("default") == pool.find_model("a-file") == ServedModel("a", 32)
    assert pool.choose("b") is other
    for find in (pool.choose, pool.find_model):
        with pytest.raises(UnknownModelError, match="model 'c' is not served here: use 'a' or 'default'"):
            find("c")
