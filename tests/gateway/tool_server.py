"""Servers of tiny models whose chat templates show tools and reasoning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.config import EngineConfig, ServerConfig
from tests.gateway.server_process import ServerProcess
from tests.support.tiny_gguf import write_tiny_pair

TEMPLATE = (
    "{%- if tools %}To call a tool, write <tool_call>\n"
    '{"name": "...", "arguments": {}}\n</tool_call>\n'
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif -%}"
    "{%- for message in messages %}{{ '<|im_start|>' + message.role }}\n"
    "{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{%- endfor %}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif -%}"
)
THINKING_TEMPLATE = TEMPLATE + (
    "{%- if enable_thinking %}<think>\n{% elif add_generation_prompt %}<think>\n</think>\n{% endif -%}"
)


def serve(directory: Path, template: str) -> Iterator[ServerProcess]:
    """Yields a server whose model has this template."""
    sizes: dict[str, Any] = {"hidden_size": 64, "head_dim": 16, "ffn_size": 128, "weight_type": "Q8_0"}
    pair = write_tiny_pair(directory, chat_template=template, **sizes)
    engine = EngineConfig(
        model=str(pair.target), draft_model=str(pair.draft), context_window_size=1024, num_threads=1, max_batch_size=4
    )
    with ServerProcess(directory, engine, ServerConfig(port=0)) as process:
        yield process.wait_ready()
