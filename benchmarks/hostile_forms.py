"""Sends forms that try to be expensive, while other clients stream, and measures what those clients notice.

    hostile_forms.py [--model smollm2-135m] [--streams 2] [--seconds 20] [--json FILE]

It prints the 95th percentile of the time between the chunks of the other streams, alone and meanwhile, the status of
each hostile request, and the memory of the server's processes before and afterwards. It exits 1 if a hostile request
gets anything but an answer or a 400.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from compare_openai import TIMEOUT_S, stream_chunks
from laboratory.hostile_forms import hostile_forms
from servers import paceline_server

QUESTION = [{"role": "user", "content": "Tell me a long story about a lighthouse."}]


@dataclass
class Streams:
    """Clients that stream one answer after another until they are stopped, and the gaps between their chunks."""

    url: str
    gaps_s: list[float] = field(default_factory=list)
    _is_stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Streams answers. Gaps before the first chunk of an answer do not count."""
        with httpx.Client(base_url=self.url, timeout=TIMEOUT_S) as client:
            while not self._is_stopped.is_set():
                body = {"messages": QUESTION, "max_tokens": 400, "stream": True, "ignore_eos": True}
                last_s = None
                for _ in stream_chunks(client, "/v1/chat/completions", body):
                    now_s = time.perf_counter()
                    if last_s is not None:
                        self.gaps_s.append(now_s - last_s)
                    last_s = now_s
                    if self._is_stopped.is_set():
                        break

    def stop(self) -> None:
        """Makes all clients end."""
        self._is_stopped.set()


@contextmanager
def streaming(url: str, num_streams: int) -> Iterator[Streams]:
    """Runs the clients in threads, and stops them at the end."""
    streams = Streams(url)
    threads = [threading.Thread(target=streams.run) for _ in range(num_streams)]
    for thread in threads:
        thread.start()
    try:
        yield streams
    finally:
        streams.stop()
        for thread in threads:
            thread.join()


def percentile_95(gaps_s: list[float]) -> float:
    """Returns the 95th percentile in milliseconds."""
    return 1000 * statistics.quantiles(gaps_s, n=20)[-1]


def memory_mib(process_id: int) -> float:
    """Returns the resident memory of a process and all of its descendants."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            pid, parent = int(status.parent.name), int(fields[1])
            if pid == process_id:
                total += int(fields[21])
            elif parent == process_id:
                total += round(memory_mib(pid) * 256)
        except OSError:
            continue
    return total / 256


def attack(url: str, seconds: float) -> dict[str, list[int]]:
    """Sends each hostile form again and again for this time, and returns the statuses by name."""
    statuses: dict[str, list[int]] = {}
    end_s = time.monotonic() + seconds
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        while time.monotonic() < end_s:
            for name, make in hostile_forms().items():
                body = {"messages": QUESTION, "max_tokens": 24, **make()}
                status = client.post("/v1/chat/completions", json=body).status_code
                statuses.setdefault(name, []).append(status)
    return statuses


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with paceline_server(options.model) as server:
        httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"messages": QUESTION, "max_tokens": 4, "choice": ["yes"]},
            timeout=TIMEOUT_S,
        ).raise_for_status()
        with streaming(server.url, options.streams) as alone:
            time.sleep(options.seconds)
        before_mib = memory_mib(server.process.pid)
        with streaming(server.url, options.streams) as meanwhile:
            statuses = attack(server.url, options.seconds)
        time.sleep(1.0)
        after_mib = memory_mib(server.process.pid)
    found = {
        "alone_p95_ms": percentile_95(alone.gaps_s),
        "meanwhile_p95_ms": percentile_95(meanwhile.gaps_s),
        "longest_gap_ms": 1000 * max(meanwhile.gaps_s),
        "before_mib": before_mib,
        "after_mib": after_mib,
        "statuses": statuses,
    }
    alone_ms, meanwhile_ms = percentile_95(alone.gaps_s), percentile_95(meanwhile.gaps_s)
    print(
        f"time between chunks, 95th percentile: {alone_ms:.1f} ms alone, {meanwhile_ms:.1f} ms meanwhile "
        f"({meanwhile_ms / alone_ms:.2f}x), longest {1000 * max(meanwhile.gaps_s):.0f} ms; memory {before_mib:.0f} MiB "
        f"before, {after_mib:.0f} MiB afterwards"
    )
    for name, found_statuses in statuses.items():
        print(
            f"  {name}: {', '.join(f'{found_statuses.count(one)} times {one}' for one in sorted(set(found_statuses)))}"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if not {status for one in statuses.values() for status in one} <= {200, 400}:
        sys.exit("a hostile request got neither an answer nor a 400")


if __name__ == "__main__":
    main()
