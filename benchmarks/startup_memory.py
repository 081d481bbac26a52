"""Measures the start-up time and memory of `paceline serve` with the default pair, against the promised limits.

    startup_memory.py [--model NAME]

The start is measured twice, the second time with a warm disk cache. Memory is the proportional set size of all
processes after one answer. It is compared with the size of the model files and the whole KV cache. The script exits 1
if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import httpx
from servers import RunningServer, paceline_server

from paceline.architectures import read_model_config
from paceline.checkpoint import DEFAULT_MODEL_NAME, GgufFile
from paceline.config import EngineConfig
from paceline.drafters.selection import resolve_pair
from paceline.engine.capacity import context_window_size

MAX_STARTUP_S = 15.0
MAX_SHARE_OF_FILES = 1.15
MAX_OVERHEAD_BYTES = 400 * 2**20
FLOAT16_BYTES = 2


def pss_bytes(process_id: int) -> int:
    """Returns the proportional set size of a process and all its descendants."""
    lines = Path(f"/proc/{process_id}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    children = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="utf-8").split()
    return own + sum(pss_bytes(int(child)) for child in children)


def kv_cache_bytes(config: EngineConfig, path: Path) -> int:
    """Returns the size of one model's whole KV cache, for a full batch of full contexts."""
    with GgufFile.open(path) as gguf:
        model = read_model_config(gguf)
    num_tokens = config.max_batch_size * context_window_size(config, model)
    return num_tokens * model.num_layers * model.num_kv_heads * model.head_dim * 2 * FLOAT16_BYTES


def ask_once(server: RunningServer) -> None:
    """Asks for one short answer, so that everything that is loaded lazily is in memory."""
    body = {"model": "default", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 32}
    httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120).raise_for_status()


def main() -> int:
    """Measures, prints JSON, and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL_NAME)
    config = EngineConfig(model=parser.parse_args().model)
    pair = resolve_pair(config)
    paths = [resolved.path for resolved in (pair.target, pair.draft) if resolved is not None]
    with paceline_server(config.model) as server:
        first_startup_s = server.startup_s
    with paceline_server(config.model) as server:
        ask_once(server)
        used_bytes, startup_s = pss_bytes(server.process.pid), server.startup_s
    file_bytes = sum(path.stat().st_size for path in paths)
    kv_bytes = sum(kv_cache_bytes(config, path) for path in paths)
    limit_bytes = int(MAX_SHARE_OF_FILES * file_bytes) + kv_bytes + MAX_OVERHEAD_BYTES
    report = {
        "first_startup_s": round(first_startup_s, 2),
        "warm_startup_s": round(startup_s, 2),
        "max_startup_s": MAX_STARTUP_S,
        "pss_mib": used_bytes >> 20,
        "max_pss_mib": limit_bytes >> 20,
        "files_mib": file_bytes >> 20,
        "kv_cache_mib": kv_bytes >> 20,
    }
    print(json.dumps(report, indent=2))
    return 0 if startup_s <= MAX_STARTUP_S and used_bytes <= limit_bytes else 1


if __name__ == "__main__":
    sys.exit(main())
