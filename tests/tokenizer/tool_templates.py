"""Chat templates with tools, each made for one trait of real ones, and a chat that each must render.

`given` holds what a client sends, in OpenAI's form. `expected` holds what a user of Hugging Face `transformers` would
pass to the same template, written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Message = dict[str, object]

TOOL: Message = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Looks up <weather> & wind",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
BARE_TOOL: Message = {"type": "function", "function": {"name": "clock"}}
FULL_TOOL: Message = {
    "type": "function",
    "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}},
}

ASK: Message = {"role": "user", "content": "Weather in Köln?"}
MAPPING: Message = {"city": "Köln", "days": [1, 2], "deep": {"a": None, "b": True, "c": 1.5, "d": "it's"}}
TEXT = '{"city": "Köln", "days": [1, 2], "deep": {"a": null, "b": true, "c": 1.5, "d": "it\'s"}}'


def call(arguments: object, call_id: str = "call_1", name: str = "weather") -> Message:
    """Returns one tool call in OpenAI's form."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def turn(*calls: Message, **fields: object) -> Message:
    """Returns the assistant's turn with these calls."""
    return {"role": "assistant", **fields, "tool_calls": list(calls)}


def result(content: str = "12 °C", call_id: str = "call_1", **fields: object) -> Message:
    """Returns a tool result."""
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


GIVEN = [ASK, turn(call(TEXT), content=None), result(), {"role": "user", "content": "Thanks"}]
EXPECTED = [
    ASK,
    turn(call(MAPPING), content=""),
    result(name="weather"),
    {"role": "user", "content": "Thanks"},
]
EXPECTED_TEXT = [ASK, turn(call(TEXT), content=""), *EXPECTED[2:]]
TWO_GIVEN = [
    ASK,
    turn(call(TEXT), call("", "call_2", "clock"), content="Let me see."),
    result("3 pm", "call_2"),
    result(),
]
TWO_EXPECTED = [
    ASK,
    turn(call(MAPPING), call({}, "call_2", "clock"), content="Let me see."),
    result("3 pm", "call_2", name="clock"),
    result(name="weather"),
]


@dataclass(frozen=True)
class Case:
    """One template, what a client sends, and what a user of transformers passes for it."""

    source: str
    given: list[Message] = field(default_factory=lambda: GIVEN)
    expected: list[Message] = field(default_factory=lambda: EXPECTED)
    tools: list[Message] | None = field(default_factory=lambda: [TOOL])
    expected_tools: list[Message] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    tool_source: str | None = None


def _each(body: str) -> str:
    return "{% for m in messages %}<{{ m.role }}>" + body + "{% endfor %}{% if add_generation_prompt %}<go>{% endif %}"


def _calls(body: str) -> str:
    return "{% for c in m.tool_calls or [] %}[{{ c.function.name }} " + body + "]{% endfor %}"


_TO_JSON = "{{ c.function.arguments | tojson }}"
_PLAIN = "{{ m.content }}" + _calls(_TO_JSON)
_PARTS = "{% for p in m.content %}{{ p.text }}{% endfor %}"
_REFUSES_LONG_IDS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id is not defined or c.id | length != 9 %}"
    "{{ raise_exception('ids have nine letters') }}{% endif %}{% endfor %}"
    "{% if m.role == 'tool' and m.tool_call_id | length != 9 %}{{ raise_exception('bad result') }}{% endif %}"
    "{% endfor %}"
)
_ONE_CALL = (
    "{% for m in messages %}{% if m.tool_calls is defined and m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call at a time') }}{% endif %}{% endfor %}"
)
_FIRST_CALL = (
    "{{ m.content }}{% if m.tool_calls %}{% set c = m.tool_calls[0] %}{{ c.function.name }}" + _TO_JSON + "{% endif %}"
)
_SPLIT = [
    ASK,
    turn(call(MAPPING), content="Let me see."),
    result(name="weather"),
    turn(call({}, "call_2", "clock"), content=""),
    result("3 pm", "call_2", name="clock"),
]
_SHORT = [
    ASK,
    turn(call(MAPPING, "abcDEF123"), call({}, "1b68f83fa", "clock"), content=""),
    result("3 pm", "1b68f83fa", name="clock"),
    result(call_id="abcDEF123", name="weather"),
]
_LONG = [
    ASK,
    turn(call(TEXT, "abcDEF123"), call("{}", "call_2", "clock")),
    result("3 pm", "call_2"),
    result(call_id="abcDEF123"),
]
_REASONED = [
    ASK,
    {"role": "assistant", "content": "Sunny.", "reasoning_content": "guess"},
    ASK,
    turn(call(TEXT), content=None, reasoning="look it up"),
    result(),
]
_REASONED_EXPECTED = [
    ASK,
    {"role": "assistant", "content": "Sunny.", "reasoning_content": "guess"},
    ASK,
    turn(call(MAPPING), content="", reasoning="look it up"),
    result(name="weather"),
]
_DEVELOPER = [{"role": "developer", "content": "Be brief."}, *GIVEN]
_SYSTEM = [{"role": "system", "content": "Be brief."}, *EXPECTED]
_TWO_PARTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
_PARTS_GIVEN = [{"role": "user", "content": _TWO_PARTS}, *GIVEN[1:]]


def _as_part(message: Message) -> Message:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


CASES: dict[str, Case] = {
    "arguments as a mapping": Case(_each(_PLAIN)),
    "arguments that a text would encode twice, and a list of tools as JSON": Case(
        "{{ tools | tojson(indent=4) }}" + _each(_PLAIN)
    ),
    "arguments of a mapping are looped over": Case(
        _each("{{ m.content }}" + _calls("{% for k, v in c.function.arguments | items %}{{ k }}={{ v }};{% endfor %}"))
    ),
    "arguments of either form": Case(
        _each(
            "{{ m.content }}"
            + _calls(
                "{% set a = c.function.arguments %}{% if a is string %}T{{ a }}{% else %}M{{ a | tojson }}{% endif %}"
            )
        )
    ),
    "a text is refused": Case(
        _each(
            "{{ m.content }}"
            + _calls("{% if c.function.arguments is string %}{{ raise_exception('no') }}{% endif %}" + _TO_JSON)
        )
    ),
    "arguments are added to a text": Case(
        _each("{{ m.content }}" + _calls("{{ '```json\n' + c.function.arguments + '\n```' }}")), expected=EXPECTED_TEXT
    ),
    "arguments are printed, a mapping would be Python": Case(
        _each("{{ m.content }}" + _calls("{{ c.function.arguments }}")), expected=EXPECTED_TEXT
    ),
    "a mapping is left out": Case(
        _each(
            "{{ m.content }}"
            + _calls("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}{}{% endif %}")
        ),
        expected=EXPECTED_TEXT,
    ),
    "a mapping becomes the text that a template needs": Case(
        _each("{{ m.content }}" + _calls("{{ c.function.arguments }}")),
        given=[ASK, turn(call(MAPPING))],
        expected=[ASK, turn(call(TEXT), content="")],
    ),
    "no arguments in a template that needs texts": Case(
        _each("{{ m.content }}" + _calls("{{ c.function.arguments }}")),
        given=[ASK, turn(call(""))],
        expected=[ASK, turn(call("{}"), content="")],
    ),
    "no content beside calls": Case(
        _each("{{ m.content + '' }}{% if 'x' in m.content %}{% endif %}" + _calls(_TO_JSON)),
        given=[ASK, turn(call(TEXT)), result(), turn(call(TEXT, "call_9"), content=None)],
        expected=[
            ASK,
            turn(call(MAPPING), content=""),
            result(name="weather"),
            turn(call(MAPPING, "call_9"), content=""),
        ],
    ),
    "keys without a value": Case(
        _each("{{ m.content }}{{ m.tool_calls | length }}{% if m.name is defined %}{{ m.name }}{% endif %}"),
        given=[{**ASK, "name": None, "tool_calls": None}, {"role": "assistant", "content": "Hi", "tool_calls": []}],
        expected=[{**ASK}, {"role": "assistant", "content": "Hi"}],
    ),
    "a template of its own for tools": Case(
        _each("{{ m.content }}"),
        tool_source="T:{% for t in tools %}{{ t.function.name }}{% endfor %}" + _each(_PLAIN),
    ),
    "a template of its own for tools, and no tools": Case(
        _each("{{ m.content }}"), tool_source="T:" + _each(_PLAIN), tools=None
    ),
    "a template of its own for tools that takes texts, where the usual one takes mappings": Case(
        _each(_PLAIN),
        tool_source="T:{{ tools[0].function.name + '' }}"
        + _each("{{ m.content }}" + _calls("{{ c.function.arguments + '' }}")),
        expected=EXPECTED_TEXT,
    ),
    "parameters are needed": Case(
        "{% for t in tools %}{{ t.function.name }}({% for k, v in t.function.parameters.properties.items() %}{{ k }}"
        "{% endfor %}){% endfor %}" + _each(_PLAIN),
        tools=[TOOL, BARE_TOOL],
        expected_tools=[TOOL, FULL_TOOL],
    ),
    "a description is needed": Case(
        "{% for t in tools %}{{ t.function.name + ': ' + t.function.description }}{% endfor %}" + _each(_PLAIN),
        tools=[BARE_TOOL, TOOL],
        expected_tools=[FULL_TOOL, TOOL],
    ),
    "tools as JSON, one of them bare": Case(
        "{% for t in tools %}{{ t | tojson }}{% endfor %}" + _each(_PLAIN),
        tools=[{"type": "function", "function": {"name": "clock", "description": None, "parameters": None}}],
        expected_tools=[FULL_TOOL],
    ),
    "ids of nine letters and digits": Case(
        _REFUSES_LONG_IDS
        + _each("{{ m.content }}{{ m.tool_call_id }}" + _calls("{{ c.id }}{{ c.function.arguments | tojson }}")),
        given=_LONG,
        expected=_SHORT,
    ),
    "ids are shown": Case(
        _each("{{ m.content }}{{ m.tool_call_id }}" + _calls("{{ c.id }}" + _TO_JSON)),
        given=TWO_GIVEN,
        expected=TWO_EXPECTED,
    ),
    "two calls in one turn": Case(_each(_PLAIN), given=TWO_GIVEN, expected=TWO_EXPECTED),
    "one call in a turn": Case(_ONE_CALL + _each(_FIRST_CALL), given=TWO_GIVEN, expected=_SPLIT),
    "only the first call of a turn is shown": Case(_each(_FIRST_CALL), given=TWO_GIVEN, expected=_SPLIT),
    "results need names": Case(
        _each(
            "{% if m.role == 'tool' %}{{ m.name + ': ' }}{% endif %}{{ m.content }}" + _calls("{{ c.id }}" + _TO_JSON)
        ),
        given=TWO_GIVEN,
        expected=TWO_EXPECTED,
    ),
    "a result keeps its own name": Case(
        _each("{{ m.name }}" + _PLAIN),
        given=[*GIVEN[:2], result(name="other")],
        expected=[*EXPECTED[:2], result(name="other")],
    ),
    "reasoning in turns with calls only": Case(
        _each("{% if m.tool_calls and m.reasoning_content %}({{ m.reasoning_content }}){% endif %}" + _PLAIN),
        given=_REASONED,
        expected=_REASONED_EXPECTED,
    ),
    "reasoning that is called thinking": Case(
        _each("{% if m.thinking is defined %}({{ m.thinking }}){% endif %}" + _PLAIN),
        given=_REASONED,
        expected=_REASONED_EXPECTED,
    ),
    "reasoning after the last question only": Case(
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        + _each(
            "{% if loop.index0 > ns.last and m.reasoning_content %}({{ m.reasoning_content }}){% endif %}" + _PLAIN
        ),
        given=_REASONED,
        expected=_REASONED_EXPECTED,
    ),
    "an effort is given": Case(
        "{{ reasoning_effort | default('medium') }}" + _each(_PLAIN), options={"reasoning_effort": "high"}
    ),
    "no effort is given": Case("{{ reasoning_effort | default('medium') }}" + _each(_PLAIN)),
    "thinking is not chosen": Case(
        _each(_PLAIN) + "{% if enable_thinking is defined and not enable_thinking %}<no>{% else %}<think>{% endif %}"
    ),
    "thinking is turned off": Case(
        _each(_PLAIN) + "{% if enable_thinking is defined and not enable_thinking %}<no>{% else %}<think>{% endif %}",
        options={"enable_thinking": False},
    ),
    "a budget, thinking and documents": Case(
        "{{ thinking }}{{ thinking_budget + 1 }}{% for d in documents %}{{ d.title }}:{{ d.text }}{% endfor %}"
        + _each(_PLAIN),
        options={"thinking": True, "thinking_budget": 99, "documents": [{"title": "a", "text": "b"}]},
    ),
    "the developer's role is unknown": Case(
        "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant', 'tool'] %}"
        "{{ raise_exception('unknown role') }}{% endif %}{% endfor %}" + _each(_PLAIN),
        given=_DEVELOPER,
        expected=_SYSTEM,
    ),
    "the system's message comes first": Case(
        "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set rest = messages[1:] %}"
        "{% else %}{% set rest = messages %}{% endif %}{% for m in rest %}{{ m.role }}" + _PLAIN + "{% endfor %}",
        given=_DEVELOPER,
        expected=_SYSTEM,
    ),
    "generated text is marked": Case(
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}" + _PLAIN + "{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
    ),
    "a date is written": Case("{{ strftime_now('%Y') | length }}" + _each(_PLAIN)),
    "loops are left": Case(
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}{% if loop.last %}{% break %}"
        "{% endif %}" + _PLAIN + "{% endfor %}"
    ),
    "JSON with options": Case(
        "{{ tools | tojson(sort_keys=true, separators=(',', ':')) }}{{ tools | tojson(ensure_ascii=true, indent=2) }}"
        + _each(_PLAIN)
    ),
    "parts of texts are joined by the template": Case(
        _each("{% if m.content is string %}{{ m.content }}{% else %}" + _PARTS + "{% endif %}" + _calls(_TO_JSON)),
        given=_PARTS_GIVEN,
        expected=[{"role": "user", "content": _TWO_PARTS}, *EXPECTED[1:]],
    ),
    "texts only": Case(
        _each("{{ m.content + '' }}" + _calls(_TO_JSON)),
        given=_PARTS_GIVEN,
        expected=[{"role": "user", "content": "a\nb"}, *EXPECTED[1:]],
    ),
    "parts for the user only": Case(
        _each("{% if m.role == 'user' %}" + _PARTS + "{% else %}{{ m.content + '' }}{% endif %}" + _calls(_TO_JSON)),
        expected=[_as_part(message) if message["role"] == "user" else message for message in EXPECTED],
    ),
    "parts for all": Case(
        _each(_PARTS + _calls(_TO_JSON)),
        expected=[_as_part(message) for message in EXPECTED],
    ),
    "the beginning and the end are written": Case(
        "{{ bos_token }}" + _each(_PLAIN + "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}")
    ),
    "a system message is needed": Case(
        "{% if messages[0].role != 'system' %}{{ raise_exception('who am I?') }}{% endif %}"
        + _each("{{ m.content }}" + _calls("{{ c.function.arguments + '' }}")),
        given=_DEVELOPER,
        expected=[_SYSTEM[0], *EXPECTED_TEXT],
    ),
    "macros and blocks over lines": Case(
        "{%- macro shown(value) -%}\n  {%- if value is mapping -%}\n    {%- for k in value %}\n{{ k }}: "
        "{{ shown(value[k]) }}\n    {%- endfor %}\n  {%- else -%}\n    {{ value | tojson }}\n  {%- endif -%}\n"
        "{%- endmacro -%}\n"
        + _each(
            "{{ m.content }}\n{% for c in m.tool_calls or [] %}\n{{ c.function.name }}"
            "\n{{ shown(c.function.arguments) }}\n{% endfor %}\n"
        )
    ),
    "the older form of calls": Case(
        _each("{{ m.content }}{{ m.name }}" + _calls(_TO_JSON)),
        given=[
            ASK,
            {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": TEXT}},
            {"role": "function", "name": "weather", "content": "12 °C"},
        ],
        expected=[ASK, turn(call(MAPPING), content=""), result(name="weather")],
    ),
}
