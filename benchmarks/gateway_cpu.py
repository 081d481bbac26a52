"""Measures what the gateway itself costs: CPU time for each streamed token, and the time to the first one.

    gateway_cpu.py [--streams 8] [--tokens 400] [--rounds 3] [--profile FILE]

An engine without a model answers (`scripted_engine.py`). Each stream asks for a chat completion with a prompt of about
50 tokens, and gets one chunk for each token. The clients run in this process. The gateway runs in another, whose CPU
time is read from /proc. With `--profile`, it runs under cProfile, which makes it slower, and writes FILE at its end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.config import EngineConfig, ServerConfig
from paceline.gateway import serve
from paceline.gateway.engines.process import handle

MODEL = "smollm2-135m"
PROMPT = " ".join(["The quick brown fox jumps over the lazy dog."] * 3)
TIMEOUT_S = 60.0
NUM_SHORT = 200  # requests, one after the other, with one token each


@contextmanager
def running_gateway(profile: Path | None) -> Iterator[tuple[int, int]]:
    """Runs a gateway before the scripted engine; yields its port and its process id."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}  # where the scripted engine is
    profiled = [] if profile is None else ["-m", "cProfile", "-o", str(profile)]
    command = [sys.executable, *profiled, __file__, "--serve"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            log = []
            for line in process.stderr:
                log.append(line)
                if '"ready"' in line and '"url"' in line:
                    break
            else:
                raise RuntimeError("the gateway ended before it was ready: " + "".join(log))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield int(json.loads(line)["url"].split(":")[2].split("/")[0]), process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)


def serve_scripted() -> None:
    """Serves with the scripted engine until SIGTERM."""
    handle._MODULE = "scripted_engine"
    serve([EngineConfig(model=MODEL)], ServerConfig(port=0, log_format="json"))


def cpu_s(process_id: int) -> float:
    """Returns the CPU time that a process has used so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stream(port: int, num_tokens: int) -> tuple[float, int]:
    """Asks for one streamed answer; returns the time to its first token and the number of its chunks with text."""
    body = json.dumps(
        {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": num_tokens, "stream": True}
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n"
    first_s, num_chunks, tail = 0.0, 0, b""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        started_s = time.perf_counter()
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        while data := connection.recv(65536):
            found = (tail + data).count(b'"content":" word"') - tail.count(b'"content":" word"')
            if found and not num_chunks:
                first_s = time.perf_counter() - started_s
            num_chunks += found
            tail = (tail + data)[-64:]
    return first_s, num_chunks


def measure(port: int, process_id: int, num_streams: int, num_tokens: int) -> tuple[float, float]:
    """Returns the CPU seconds for each token, and the median time to the first token, of one round."""
    results: list[tuple[float, int]] = []
    before_s = cpu_s(process_id)
    threads = [threading.Thread(target=lambda: results.append(stream(port, num_tokens))) for _ in range(num_streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used_s = cpu_s(process_id) - before_s
    total = sum(num_chunks for _, num_chunks in results)
    if total != num_streams * num_tokens:
        raise RuntimeError(f"{total} chunks came, not {num_streams * num_tokens}")
    return used_s / total, statistics.median(first_s for first_s, _ in results)


def main() -> None:
    """Measures, and prints the medians over all rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_scripted()
        return
    with running_gateway(options.profile) as (port, process_id):
        for _ in range(3):
            stream(port, 16)  # what happens only once
        rounds = [measure(port, process_id, options.streams, options.tokens) for _ in range(options.rounds)]
        before_s = cpu_s(process_id)
        alone = [stream(port, 1)[0] for _ in range(NUM_SHORT)]
        request_s = (cpu_s(process_id) - before_s) / NUM_SHORT
    token_ms = 1000 * statistics.median(used_s for used_s, _ in rounds)
    print(f"CPU time of the gateway for a token, {options.streams} streams: {token_ms:.3f} ms")
    print(f"CPU time of the gateway for a request with one token: {1000 * request_s:.2f} ms")
    print(f"time to the first token, one request at a time: {1000 * statistics.median(alone):.2f} ms")


if __name__ == "__main__":
    main()
