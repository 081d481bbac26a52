"""Assembles an engine from an `EngineConfig`: models, tokenizer, drafters, controller, and a KV cache that fits.

The kinds of drafters and backends come from their registries; nothing here knows one of them by name.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from paceline.backends.protocol import Backend, LoadOptions, Model
from paceline.backends.registry import find_backend
from paceline.checkpoint import default_cache_dir
from paceline.config import EngineConfig
from paceline.controller import AdaptiveController, Controller, CostModel, FixedController, Limits, StepCosts
from paceline.core.errors import ConfigError
from paceline.drafters import drafter_names
from paceline.drafters.chains.drawing import Drawer
from paceline.drafters.draft_model.kind import draft_load_options
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap, map_vocabularies
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, DraftModel
from paceline.drafters.selection import kinds_of, resolve_pair
from paceline.engine.capacity import check_weights_fit, context_window_size, num_kv_blocks
from paceline.engine.open_models import OpenModel, OpenPair, open_model
from paceline.engine.parts import EngineParts
from paceline.engine.profile import cached_profile
from paceline.machine.cores import num_usable_cores
from paceline.sampling import RequestLimits
from paceline.sampling.sequence_sampler import SequenceSampler
from paceline.tokenizer import Tokenizer

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, its vocabulary, and the name it goes by. `identity` changes with its file."""

    name: str
    model: Model
    tokenizer: Tokenizer
    identity: str = ""


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target, its draft model (None without one) and the backend that runs them, and the drafters that can run.

    `vocabulary_map` relates the tokens of two models with different ones (None: they are the same).
    """

    backend: Backend
    target: LoadedModel
    draft: LoadedModel | None
    drafter_names: tuple[str, ...]
    vocabulary_map: VocabularyMap | None = None


def load_engine_parts(config: EngineConfig) -> EngineParts:
    """Loads the models, pulling catalog names that are absent, for a KV cache that fits in memory.

    Raises ModelNotFoundError, DownloadError, CheckpointError, ConfigError, VocabularyMismatchError,
    InsufficientMemoryError.
    """
    with open_pair(config) as files:
        return load_parts(files, config)


def load_parts(files: OpenPair, config: EngineConfig) -> EngineParts:
    """`load_engine_parts` for files that are open already."""
    pair = load_weights(files, config)
    is_adaptive = config.speculation == "auto" and pair.drafter_names != ()
    costs = measure_costs(pair, config) if is_adaptive else None
    return build_parts(pair, config, pair.drafter_names, _num_blocks(config, pair), costs)


def measure_costs(pair: LoadedPair, config: EngineConfig) -> StepCosts:
    """What steps of this pair cost on this machine: measured once, then read from the cache. Replaces KV stores."""
    identities = [loaded.identity for loaded in (pair.target, pair.draft) if loaded is not None]
    models = priced_models(pair, config, pair.drafter_names)
    kinds = [kind for kind in kinds_of(pair.drafter_names) if kind.name in models]
    settings = [getattr(config, name) for kind in kinds for name in kind.settings]
    return cached_profile(
        default_cache_dir(os.environ),
        (*identities, pair.backend.identity, config.kv_cache_type, config.activation_bits, *settings),
        context_window_size(config, pair.target.model.config),
        pair.backend,
        pair.target.model,
        models,
    )


def priced_models(pair: LoadedPair, config: EngineConfig, drafter_names: tuple[str, ...]) -> dict[str, Model]:
    """The models that those of the named drafters run that are not free, by drafter. Raises ConfigError."""
    parts = _drafter_parts(pair, config, num_blocks=0, samplers={})
    models = {kind.name: kind.priced_model(parts) for kind in kinds_of(drafter_names) if not kind.is_free}
    for name, model in models.items():
        if model is None:
            raise ConfigError(f"the drafter {name!r} is not free, but does not say whose passes it pays for")
    return {name: model for name, model in models.items() if model is not None}


@contextmanager
def open_pair(config: EngineConfig) -> Iterator[OpenPair]:
    """The model files that `config` means, with its settings checked against them; closed again at the end.

    Raises ModelNotFoundError, DownloadError, CheckpointError, ConfigError, VocabularyMismatchError.
    """
    backend = find_backend(config.backend)
    resolved = resolve_pair(config)
    with ExitStack() as files:
        target = files.enter_context(open_model(resolved.target))
        backend.check(target.gguf, target.config)
        context_size = context_window_size(config, target.config)
        limits = RequestLimits(target.config.vocab_size, context_size, frozenset(drafter_names()))
        for kind in kinds_of(resolved.drafter_names):
            kind.check(config, target.config)
        target.tokenizer.prepare_chats()
        draft = None if resolved.draft is None else files.enter_context(open_model(resolved.draft))
        if draft is None:
            yield OpenPair(target, None, limits, resolved.drafter_names, None)
            return
        backend.check(draft.gguf, draft.config)
        vocabulary_map = map_vocabularies(target.name, target.tokenizer, draft.name, draft.tokenizer)
        yield OpenPair(target, draft, limits, resolved.drafter_names, vocabulary_map)


def load_pair(config: EngineConfig, *, instruction_set: str | None = None) -> LoadedPair:
    """The models that `config` means; `instruction_set` None takes the backend's best. Raises what `open_pair` raises,
    UnsupportedModelError and InsufficientMemoryError."""
    with open_pair(config) as pair:
        return load_weights(pair, config, instruction_set)


def load_weights(pair: OpenPair, config: EngineConfig, instruction_set: str | None = None) -> LoadedPair:
    """Loads the models of open files."""
    backend = find_backend(config.backend).open(config.num_threads or num_usable_cores(), instruction_set)
    context_size = pair.limits.context_window_size
    target_options = LoadOptions(
        max_positions=min(context_size, pair.target.config.max_context),
        kv_cache_type=config.kv_cache_type,
        activation_rounding=config.activation_rounding,
    )
    target = load_model(pair.target, backend, target_options)
    if pair.draft is None:
        return LoadedPair(backend, target, None, pair.drafter_names)
    draft_options = draft_load_options(config, context_size, pair.draft.config, pair.draft.tokenizer)
    draft = load_model(pair.draft, backend, draft_options)
    return LoadedPair(backend, target, draft, pair.drafter_names, pair.vocabulary_map)


def load_model(opened: OpenModel, backend: Backend, options: LoadOptions) -> LoadedModel:
    """Loads the weights of an open file and gives the file's pages back. Raises InsufficientMemoryError."""
    check_weights_fit(opened.name, backend.weights_size_bytes(opened.gguf), backend.free_memory_bytes())
    model = backend.load(opened.gguf, opened.config, options)
    opened.gguf.release_pages()
    weight_mib = model.weight_bytes / 2**20
    _logger.info("loaded %s (%s, %.0f MiB of weights)", opened.name, opened.config.architecture, weight_mib)
    return LoadedModel(opened.name, model, opened.tokenizer, opened.identity)


def build_parts(
    pair: LoadedPair,
    config: EngineConfig,
    drafter_names: tuple[str, ...],
    num_blocks: int,
    costs: StepCosts | None = None,
) -> EngineParts:
    """What an engine with these drafters is made of; a draft model that is not among them stays out of it.

    With `costs` the engine finds drafters and windows itself, without them it always drafts as much as it may.
    """
    samplers: dict[str, SequenceSampler] = {}
    kinds = kinds_of(drafter_names)
    parts = _drafter_parts(pair, config, num_blocks=num_blocks, samplers=samplers)
    return EngineParts(
        model_name=pair.target.name,
        target=pair.target.model,
        tokenizer=pair.target.tokenizer,
        num_blocks=num_blocks,
        sampler=pair.backend.sampler,
        controller=_build_controller(config, kinds, costs),
        drafters=tuple(_build(kind, parts) for kind in kinds),
        samplers=samplers,
    )


def _build(kind: DrafterKind, parts: DrafterParts) -> Drafter:
    drafter = kind.build(parts)
    if (getattr(drafter, "name", None), drafter.is_free) != (kind.name, kind.is_free):
        raise ConfigError(f"the drafter {kind.name!r} was built with another name, or is free where its kind is not")
    return drafter


def _build_controller(config: EngineConfig, kinds: list[DrafterKind], costs: StepCosts | None) -> Controller:
    """One that plans by costs, or else a fixed one, which takes a draft model before other drafters with a price."""
    if costs is None:
        priced = sorted((kind for kind in kinds if not kind.is_free), key=lambda kind: not kind.uses_draft_model)
        return FixedController(config.num_speculative_tokens, *(kind.name for kind in priced))
    return AdaptiveController(CostModel(costs), Limits(config.num_speculative_tokens, config.fallback_threshold))


def _drafter_parts(
    pair: LoadedPair, config: EngineConfig, *, num_blocks: int, samplers: dict[str, SequenceSampler]
) -> DrafterParts:
    target = pair.target.model
    return DrafterParts(
        config=config,
        target=target,
        drawer=Drawer(pair.backend.sampler, target.config.vocab_size),
        samplers=samplers,
        num_blocks=num_blocks,
        draft=None if pair.draft is None else DraftModel(pair.draft.model, pair.vocabulary_map),
    )


def _num_blocks(config: EngineConfig, pair: LoadedPair) -> int:
    models = [loaded.model for loaded in (pair.target, pair.draft) if loaded is not None]
    block_size_bytes = sum(model.kv.block_size_bytes for model in models)
    context_size = context_window_size(config, pair.target.model.config)
    return num_kv_blocks(config, context_size, block_size_bytes, pair.backend.free_memory_bytes())
