"""Counts how many tool tasks a model calls rightly behind each server: Paceline's, and llama.cpp's on the same file.

    tool_calls.py [--model NAME] [--servers paceline,llama.cpp] [--threads N] [--json OUT]

The servers run one after another. Each answers the 40 tasks of workloads/tool_tasks.jsonl greedily, without streaming
and with `tool_choice: auto`. Only what a server returns in `message.tool_calls` counts as a call; a call that stays in
the content is counted apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import msgspec
from compare_openai import TIMEOUT_S
from report import markdown, write_report
from servers import RunningServer, llama_cpp_server, paceline_server

from paceline.backends.native.model import instruction_sets
from paceline.checkpoint import DEFAULT_MODEL_NAME, ResolvedModel
from paceline.config import EngineConfig
from paceline.drafters.selection import resolve_pair
from paceline.operations.provenance import read_model_provenance, read_provenance

TASKS = Path(__file__).parent / "workloads" / "tool_tasks.jsonl"
PACELINE, LLAMA_CPP = "paceline", "llama.cpp"
PACKAGES = {PACELINE: "paceline", LLAMA_CPP: "xllamacpp"}
KINDS = ("single", "parallel", "nested", "none")
MAX_TOKENS = 300
CONTEXT_SIZE = 4096


class ExpectedCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that a task expects: the acceptable values of each argument, and the arguments that may be absent."""

    name: str
    arguments: dict[str, list[Any]]
    optional: list[str] = []


class ToolTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chat with tools. `expected` lists the acceptable sets of calls; an empty set is an answer without a call."""

    id: str
    kind: str
    messages: list[dict[str, str]]
    tools: list[dict[str, Any]]
    expected: list[list[ExpectedCall]]


@dataclass(frozen=True)
class Call:
    """A call that a server returned. `arguments` is None if their text is not a JSON object."""

    name: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True)
class Answer:
    """What a server answered to one task, judged. `written_as` says in which form the content holds a call, if any."""

    task_id: str
    kind: str
    calls: list[Call]
    content: str
    finish_reason: str
    is_right: bool
    written_as: str | None


def read_tool_tasks(path: Path = TASKS) -> list[ToolTask]:
    """Returns the tasks in a file. Raises msgspec.ValidationError if a line is not a task."""
    return [msgspec.json.decode(line, type=ToolTask) for line in path.read_bytes().splitlines()]


def is_equal(value: object, expected: object) -> bool:
    """Returns whether two JSON values are equal.

    Numbers are equal as numbers, and strings without regard to case and to white space at their ends.
    """
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, str) and isinstance(expected, str):
        return value.strip().casefold() == expected.strip().casefold()
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(is_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(is_equal(value[key], expected[key]) for key in expected)
    return value == expected


def matches(call: Call, expected: ExpectedCall) -> bool:
    """Returns whether the call has the name, no other arguments, and an acceptable value for each one."""
    if call.name != expected.name or call.arguments is None or call.arguments.keys() - expected.arguments.keys():
        return False
    return all(
        any(is_equal(call.arguments[name], value) for value in values)
        if name in call.arguments
        else name in expected.optional
        for name, values in expected.arguments.items()
    )


def is_right(calls: Sequence[Call], expected: Sequence[Sequence[ExpectedCall]]) -> bool:
    """Returns whether the calls are one of the acceptable sets of calls, in any order."""
    return any(
        len(calls) == len(one_set) and any(all(map(matches, order, one_set)) for order in itertools.permutations(calls))
        for one_set in expected
    )


def call_written_as(content: str, names: Collection[str]) -> str | None:
    """Returns the form of the first call in a content: `<tool_call>`, `json block` or `bare JSON`; None without one.

    A call is a JSON object with the name of a tool and with arguments. A block is what stands between backticks.
    """
    decoder = json.JSONDecoder()
    for start, character in enumerate(content):
        if character != "{":
            continue
        try:
            value, _ = decoder.raw_decode(content, start)
        except ValueError:
            continue
        if isinstance(name := value.get("name"), str) and name in names and "arguments" in value:
            before = content[:start]
            if before.count("<tool_call>") > before.count("</tool_call>"):
                return "<tool_call>"
            return "json block" if before.count("```") % 2 else "bare JSON"
    return None


def parse_call(call: Mapping[str, Any]) -> Call:
    """Returns a call of a server's answer with its arguments parsed."""
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = None
    return Call(function["name"], arguments if isinstance(arguments, dict) else None)


def ask(client: httpx.Client, task: ToolTask) -> Answer:
    """Returns a server's judged answer to a task. Raises httpx.HTTPStatusError."""
    body = {
        "model": "default",
        "messages": task.messages,
        "tools": task.tools,
        "tool_choice": "auto",
        "temperature": 0.0,
        "max_tokens": MAX_TOKENS,
    }
    [choice] = client.post("/v1/chat/completions", json=body).raise_for_status().json()["choices"]
    calls = [parse_call(call) for call in choice["message"].get("tool_calls") or ()]
    content = choice["message"].get("content") or ""
    names = [tool["function"]["name"] for tool in task.tools]
    return Answer(
        task_id=task.id,
        kind=task.kind,
        calls=calls,
        content=content,
        finish_reason=choice["finish_reason"],
        is_right=is_right(calls, task.expected),
        written_as=call_written_as(content, names),
    )


def start_server(
    name: str, model: str, target: ResolvedModel, num_threads: int
) -> AbstractContextManager[RunningServer]:
    """Starts a server by its name. Paceline gets the model's name, and llama.cpp the file that the name stands for."""
    if name == PACELINE:
        sizes = ("--threads", str(num_threads), "--context-window-size", str(CONTEXT_SIZE))
        return paceline_server(model, *sizes)
    return llama_cpp_server(target.path, num_threads=num_threads, context_size=CONTEXT_SIZE)


def ask_all(server: RunningServer, tasks: Sequence[ToolTask]) -> list[Answer]:
    """Returns the server's answers to all tasks, asked one after another."""
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        return [ask(client, task) for task in tasks]


def describe(answer: Answer) -> str:
    """Returns the answer on one line: whether it is right, its calls, and its content."""
    calls = [f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in answer.calls]
    content = [f"content {answer.content!r}"] if answer.content else []
    ended = [] if answer.finish_reason in ("stop", "tool_calls") else [f"finish_reason {answer.finish_reason}"]
    return f"{'right' if answer.is_right else 'wrong'}: {'; '.join([*calls, *content, *ended]) or 'nothing'}"


def render(answers: Mapping[str, Sequence[Answer]]) -> str:
    """Returns a table of right answers by kind, with the calls that stayed in the content in each form."""
    rows = []
    for name, given in answers.items():
        right = Counter(answer.kind for answer in given if answer.is_right)
        asked = Counter(answer.kind for answer in given)
        forms = Counter(answer.written_as for answer in given if answer.written_as)
        cells = [f"{right[kind]} of {asked[kind]}" for kind in KINDS]
        in_content = ", ".join(f"{count} as {form}" for form, count in sorted(forms.items())) or "none"
        rows.append([name, *cells, f"{right.total()} of {asked.total()}", in_content])
    return markdown(["right calls", *KINDS, "all", "calls in the content"], rows)


def render_differences(answers: Mapping[str, Sequence[Answer]]) -> str:
    """Returns, for each task on which the servers differ in calls or in being right, what each of them answered."""
    lines = []
    for given in zip(*answers.values(), strict=True):
        if any((one.calls, one.is_right) != (given[0].calls, given[0].is_right) for one in given):
            lines.append(f"\n{given[0].task_id}")
            lines += [f"  {name}: {describe(one)}" for name, one in zip(answers, given, strict=True)]
    return "\n".join(lines)


def server_names(text: str) -> list[str]:
    """Parses the argument of --servers. Raises argparse.ArgumentTypeError if a name is unknown."""
    names = text.split(",")
    if unknown := [name for name in names if name not in PACKAGES]:
        raise argparse.ArgumentTypeError(f"there is no server {unknown[0]}; name {' or '.join(PACKAGES)}")
    return names


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    parser.add_argument("--servers", type=server_names, default=list(PACKAGES), help="names joined by commas")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="file for all answers")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Asks each server all tasks, prints the table and the differences, and writes all answers to the file."""
    options = parse_options(arguments)
    target = resolve_pair(EngineConfig(model=options.model)).target
    tasks = read_tool_tasks()
    answers: dict[str, list[Answer]] = {}
    for name in options.servers:
        with start_server(name, options.model, target, options.threads) as server:
            answers[name] = ask_all(server, tasks)
        print(f"{name}: {sum(answer.is_right for answer in answers[name])} right", file=sys.stderr, flush=True)
    print(render(answers))
    print(render_differences(answers))
    if options.json:
        isa = os.environ.get("PACELINE_ISA") or instruction_sets()[-1]
        provenance = read_provenance(isa, options.threads, read_model_provenance(target.name, target.path), None)
        content = {
            "versions": {name: version(PACKAGES[name]) for name in answers},
            "answers": {name: [dataclasses.asdict(answer) for answer in given] for name, given in answers.items()},
        }
        write_report(options.json, provenance, content)


if __name__ == "__main__":
    main()
