"""Files that are there whole or not at all, after a power cut too."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Creates or replaces a file, and its directory where there is none; raises OSError and leaves nothing then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        unfinished.write_bytes(content)
        sync_to_disk(unfinished)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def sync_to_disk(path: Path) -> None:
    """Returns when the file's content is on the disk, so that neither a new name nor a record of it can outlive it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
