"""Assembles an engine from an `EngineConfig`: models, tokenizer, drafters, controller, and a KV cache that fits.

The kinds of drafters and backends come from their registries. Only the draft model has code of its own here, because
its file is opened and loaded beside the target's.
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
from paceline.constraints.grammars import CONSTRAINT_KINDS
from paceline.constraints.guidance import GuidanceKind
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
    """A model in memory, with its tokenizer and its name. `identity` is the fingerprint of the model's file."""

    name: str
    model: Model
    tokenizer: Tokenizer
    identity: str = ""


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target, its draft model (None: there is none), the backend that runs them, and the drafters that can run.

    `vocabulary_map` maps the tokens of the two models to each other (None: their vocabularies are equal).
    """

    backend: Backend
    target: LoadedModel
    draft: LoadedModel | None
    drafter_names: tuple[str, ...]
    vocabulary_map: VocabularyMap | None = None


def load_engine_parts(config: EngineConfig) -> EngineParts:
    """Pulls the models if they are absent, loads them, and plans a KV cache that fits in memory.

    Raises ModelNotFoundError, DownloadError, CheckpointError, ConfigError, VocabularyMismatchError and
    InsufficientMemoryError.
    """
    with open_pair(config) as files:
        return load_parts(files, config)


def load_parts(files: OpenPair, config: EngineConfig) -> EngineParts:
    """Does what `load_engine_parts` does, for files that are already open."""
    pair = load_weights(files, config)
    is_adaptive = config.speculation == "auto" and pair.drafter_names != ()
    costs = measure_costs(pair, config) if is_adaptive else None
    return build_parts(pair, config, pair.drafter_names, _num_blocks(config, pair), costs)


def measure_costs(pair: LoadedPair, config: EngineConfig) -> StepCosts:
    """Returns what steps of this pair cost on this machine, from the profile of earlier starts or by measuring.

    Measuring replaces the models' KV stores.
    """
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
    """Returns, by drafter, the models of the named drafters that are not free. Raises ConfigError if one has none."""
    parts = _drafter_parts(pair, config, num_blocks=0, samplers={})
    models = {kind.name: kind.priced_model(parts) for kind in kinds_of(drafter_names) if not kind.is_free}
    for name, model in models.items():
        if model is None:
            raise ConfigError(f"the drafter {name!r} is not free, but does not name the model that it runs")
    return {name: model for name, model in models.items() if model is not None}


@contextmanager
def open_pair(config: EngineConfig) -> Iterator[OpenPair]:
    """Opens the model files that `config` means and checks the settings against them; closes the files at the end.

    Raises ModelNotFoundError, DownloadError, CheckpointError, ConfigError and VocabularyMismatchError.
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
    """Loads the models that `config` means; `instruction_set` None means the backend's best.

    Raises what `open_pair` raises, UnsupportedModelError and InsufficientMemoryError.
    """
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
    """Loads the weights of an open file and releases the file's memory pages. Raises InsufficientMemoryError."""
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
    """Returns the parts of an engine with these drafters. Without the drafter draft-model, the draft model is not used.

    With `costs` the engine chooses drafters and windows itself; without, it always drafts as much as it may.
    """
    samplers: dict[str, SequenceSampler] = {}
    kinds = kinds_of(drafter_names)
    parts = _drafter_parts(pair, config, num_blocks=num_blocks, samplers=samplers)
    return EngineParts(
        model_name=pair.target.name,
        model_identity=_model_identity(pair.target, config),
        target=pair.target.model,
        tokenizer=pair.target.tokenizer,
        num_blocks=num_blocks,
        sampler=pair.backend.sampler,
        controller=_build_controller(config, kinds, costs),
        drafters=tuple(_build(kind, parts) for kind in kinds),
        samplers=samplers,
        constraints=dict.fromkeys(CONSTRAINT_KINDS, GuidanceKind()),
    )


def _build(kind: DrafterKind, parts: DrafterParts) -> Drafter:
    drafter = kind.build(parts)
    if (getattr(drafter, "name", None), drafter.is_free) != (kind.name, kind.is_free):
        raise ConfigError(f"the drafter {kind.name!r} and its kind differ in their name, or in whether they are free")
    return drafter


def _build_controller(config: EngineConfig, kinds: list[DrafterKind], costs: StepCosts | None) -> Controller:
    """Returns a controller that plans by costs, or a fixed one if there are no costs.

    Of the drafters that are not free, the fixed one prefers the draft model.
    """
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


def _model_identity(target: LoadedModel, config: EngineConfig) -> str:
    """Returns a text that is the same for engines that give the same texts."""
    settings = (config.backend, config.kv_cache_type, config.activation_bits or "auto")
    return "-".join(map(str, (target.identity, *settings)))


def _num_blocks(config: EngineConfig, pair: LoadedPair) -> int:
    models = [loaded.model for loaded in (pair.target, pair.draft) if loaded is not None]
    block_size_bytes = sum(model.kv.block_size_bytes for model in models)
    context_size = context_window_size(config, pair.target.model.config)
    return num_kv_blocks(config, context_size, block_size_bytes, pair.backend.free_memory_bytes())
