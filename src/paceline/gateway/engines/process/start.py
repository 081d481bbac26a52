"""Creates the replicas of a server: an engine process for each `EngineConfig`, a `CallPreparer` for each model file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from paceline.checkpoint import ResolvedModel
from paceline.config import EngineConfig, ServerConfig
from paceline.core.errors import UsageError
from paceline.gateway.engines.call_preparer import CallPreparer
from paceline.gateway.engines.model_card import load_model
from paceline.gateway.engines.process.client import EngineClient
from paceline.gateway.engines.process.replica import ProcessReplica
from paceline.gateway.engines.process.supervisor import Supervisor
from paceline.gateway.engines.prompt_encoder import PromptEncoder
from paceline.gateway.parsing.formats.registry import find_format, format_names
from paceline.observability import StatusBoard
from paceline.observability.status_board import EngineAdded

_MAX_SOCKET_DIR_LENGTH = 88  # a socket's path has at most 107 bytes: this directory and `/engine-<name>-<epoch>`


def create_replicas(
    engines: Sequence[tuple[EngineConfig, ResolvedModel]],
    config: ServerConfig,
    board: StatusBoard,
    socket_dir: Path,
) -> list[ProcessReplica]:
    """Returns a replica for each engine, named 0, 1 and so on. Their engines start when `run` is called.

    It needs a running event loop. Raises UsageError if the path of `socket_dir` is too long for sockets, or if engines
    with the same model name would give different texts, or if the settings name an unknown format of tool calls.
    """
    if config.tool_format is not None and find_format(config.tool_format) is None:
        known = ", ".join(format_names())
        raise UsageError(f"there is no tool format {config.tool_format!r}; choose from {known}")
    if len(os.fsencode(socket_dir)) > _MAX_SOCKET_DIR_LENGTH:
        raise UsageError(f"the path {socket_dir} is too long for sockets: set TMPDIR to a shorter path")
    _check_names(engines, config)
    preparers: dict[Path, CallPreparer] = {}
    has_author_sampling = config.default_sampling == "model"
    replicas: list[ProcessReplica] = []
    for number, (engine_config, resolved) in enumerate(engines):
        if resolved.path not in preparers:
            loading = asyncio.to_thread(load_model, resolved, has_author_sampling=has_author_sampling)
            preparers[resolved.path] = CallPreparer(PromptEncoder(asyncio.ensure_future(loading)), config)
        name, served_name = str(number), config.served_model_name or resolved.name
        board.publish(EngineAdded(name, served_name))
        client = EngineClient(
            name, board, max_queued_requests=config.max_queued_requests, ready_timeout_s=config.ready_timeout_s
        )
        supervisor = Supervisor(
            engine_config,
            client,
            board,
            socket_dir=socket_dir,
            log_format=config.log_format,
            engine_timeout_s=config.engine_timeout_s,
        )
        replicas.append(
            ProcessReplica(
                name,
                served_name=served_name,
                own_model_name=resolved.name,
                preparer=preparers[resolved.path],
                client=client,
                supervisor=supervisor,
            )
        )
    return replicas


def _check_names(engines: Sequence[tuple[EngineConfig, ResolvedModel]], config: ServerConfig) -> None:
    """Raises UsageError if engines with the same name differ in their model or in settings that change logits."""
    answering: dict[str, tuple[object, ...]] = {}
    for engine, resolved in engines:
        name = config.served_model_name or resolved.name
        text_depends_on = (resolved.path, engine.backend, engine.kv_cache_type, engine.activation_bits)
        if answering.setdefault(name, text_depends_on) != text_depends_on:
            raise UsageError(
                f"engines with the same name {name!r} differ in model, backend, kv_cache_type or activation_bits, so "
                "their texts would differ: give them equal settings, or serve them separately"
            )
