"""Records where measurements come from: machine, versions, commit, models and date. They are kept with the numbers."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import paceline
from paceline.config import EngineConfig
from paceline.drafters.selection import resolve_pair
from paceline.engine.assembly import LoadedPair
from paceline.machine.cores import cpu_name


@dataclass(frozen=True, slots=True)
class ModelProvenance:
    """The model file that was measured."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a measurement comes from. `commit` is None outside a git checkout, and ends in `-dirty` if the work tree
    has changes. `target` is None if no model was measured. `shared_layers` is 0 if no first layers draft."""

    date: str
    cpu: str
    num_cores: int
    memory_bytes: int
    instruction_set: str
    num_threads: int
    paceline_version: str
    python_version: str
    numpy_version: str
    commit: str | None
    target: ModelProvenance | None
    draft: ModelProvenance | None
    shared_layers: int = 0


def read_provenance(
    instruction_set: str,
    num_threads: int,
    target: ModelProvenance | None = None,
    draft: ModelProvenance | None = None,
) -> Provenance:
    """Returns the provenance of measurements that are made now, on this machine, with this installation."""
    return Provenance(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=cpu_name(),
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        instruction_set=instruction_set,
        num_threads=num_threads,
        paceline_version=paceline.__version__,
        python_version=platform.python_version(),
        numpy_version=np.__version__,
        commit=_commit(Path(__file__).parent),
        target=target,
        draft=draft,
    )


def read_model_provenance(name: str, path: Path) -> ModelProvenance:
    """Returns name, size and checksum of a model file; it reads the whole file for the checksum."""
    with path.open("rb") as file:
        return ModelProvenance(name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def read_pair_provenance(config: EngineConfig, pair: LoadedPair) -> Provenance:
    """Returns the provenance of measurements on this machine with the models of `config`, loaded as `pair`."""
    resolved = resolve_pair(config)
    draft = resolved.draft
    provenance = read_provenance(
        pair.backend.instruction_set,
        pair.backend.num_threads,
        read_model_provenance(resolved.target.name, resolved.target.path),
        read_model_provenance(draft.name, draft.path) if draft else None,
    )
    return replace(provenance, shared_layers=config.shared_layers or 0)


def _commit(directory: Path) -> str | None:
    """Returns the commit of the git checkout that contains `directory`; None if there is no checkout or no git."""
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout.strip() or None
