"""Writes files atomically: a file is there whole or not at all, even after a power cut."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Creates or replaces a file, and creates its directory where there is none.

    Raises OSError if that fails, and leaves no unfinished file.
    """
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
    """Blocks until the file's content is on the disk. A rename or a record that follows cannot be there without it."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
