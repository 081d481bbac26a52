"""Constraints are tried out in a process of their own, which hostile ones cannot leave, hold up or make grow."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from paceline.constraints.compile_check import CompileCheck
from paceline.core import Constraint
from paceline.core.errors import InvalidRequestError, PacelineError
from tests.constraints.byte_matcher import ByteMatcher

GOOD = Constraint(kind="regex", source="[a-z]{1,20}")


def nested(depth: int) -> str:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return json.dumps(schema)


def chain_of_rules(length: int) -> str:
    rules = [f'r{number}: "a" r{(number + 1) % length} | "z"' for number in range(length)]
    return "\n".join(["start: r0", *rules])


HOSTILE = {
    "deep": ("json_schema", nested(400)),
    "repetition": ("regex", "(((a{100}){100}){100})"),
    "multiple of a large prime": ("json_schema", '{"type": "integer", "multipleOf": 982451653}'),
    "reference to itself": ("json_schema", '{"$ref": "#"}'),
    "product of alternatives": (
        "json_schema",
        json.dumps(
            {
                "allOf": [
                    {"anyOf": [{"type": "object", "properties": {f"{i}-{j}": {"type": "string"}}} for j in range(4)]}
                    for i in range(9)
                ]
            }
        ),
    ),
    "many properties": ("json_schema", json.dumps({"properties": {f"p{i}": {"type": "string"} for i in range(8000)}})),
    "long chain of rules": ("grammar", chain_of_rules(4000)),
    "empty lines": ("grammar", "\n" * 100_000 + 'root ::= "a"'),
    "no grammar": ("grammar", "root ::= ("),
}


@pytest.fixture
def check() -> CompileCheck:
    return CompileCheck()


async def refusal(check: CompileCheck, constraint: Constraint) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        await check.check(constraint)
    return caught.value


async def test_good_constraints_pass(check: CompileCheck) -> None:
    written = await check.check(GOOD)
    assert ByteMatcher(written).allows("abc")
    assert not ByteMatcher(written).allows("abc1")
    await check.check(Constraint(kind="json_schema", source=nested(20)))
    check.close()


async def test_a_keyword_that_cannot_be_enforced_is_named(check: CompileCheck) -> None:
    error = await refusal(check, Constraint(kind="json_schema", source='{"not": {}}', field="response_format"))
    assert '"not"' in str(error)
    assert error.param == "response_format"
    check.close()


@pytest.mark.parametrize(("kind", "source"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_constraint_is_refused_and_the_next_one_is_checked(
    check: CompileCheck, kind: str, source: str
) -> None:
    start_s = time.monotonic()
    error = await refusal(check, Constraint(kind=kind, source=source))
    assert error.code == "unsupported_constraint"
    assert time.monotonic() - start_s < 15.0
    await check.check(GOOD)
    check.close()


async def test_a_reply_is_remembered(check: CompileCheck) -> None:
    hostile = Constraint(kind="regex", source="(((a{100}){100}){100})")
    await refusal(check, hostile)
    start_s = time.monotonic()
    await refusal(check, hostile)
    assert time.monotonic() - start_s < 0.3  # asking again takes a second
    check.close()


async def test_one_tenant_does_not_keep_another_waiting(check: CompileCheck) -> None:
    slow = [Constraint(kind="regex", source=f"(((a{{100}}){{100}}){{{number}}})") for number in range(100, 106)]
    tasks = [asyncio.create_task(check.check(one, "hostile")) for one in slow]
    await asyncio.sleep(0.1)
    await check.check(GOOD, "other")
    assert sum(task.done() for task in tasks) <= 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    check.close()


async def test_closing_ends_a_busy_process(check: CompileCheck) -> None:
    task = asyncio.create_task(check.check(Constraint(kind="regex", source="(((a{100}){100}){100})")))
    await asyncio.sleep(0.3)
    check.close()
    with pytest.raises(PacelineError):
        await task


async def test_many_checks_at_once_share_one_process(check: CompileCheck) -> None:
    sources = [f"[a-z]{{{number}}}" for number in range(1, 30)]
    await asyncio.gather(*(check.check(Constraint(kind="regex", source=source)) for source in sources))
    processes = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"compile_worker" in _content(path)]
    assert len(processes) >= 1
    check.close()


async def test_a_cancelled_check_leaves_no_answer_for_the_next_one(check: CompileCheck) -> None:
    hostile = asyncio.create_task(check.check(Constraint(kind="regex", source="(((a{100}){100}){100})")))
    await asyncio.sleep(0.3)
    hostile.cancel()
    await check.check(GOOD)
    assert '"not"' in str(await refusal(check, Constraint(kind="json_schema", source='{"not": {}}')))
    check.close()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
