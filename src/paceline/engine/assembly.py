"""Loads what an `EngineConfig` names: target, tokenizer, drafters, and a KV cache that fits in memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import get_args

from paceline.backends.native.first_layers import FirstLayers, check_num_first_layers
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.native.sampler import RowSampler
from paceline.backends.protocol import Model
from paceline.backends.slimming import WHOLE, Slimming
from paceline.checkpoint import ProgressListener, ResolvedModel, default_cache_dir, resolve_model
from paceline.config import DrafterName, EngineConfig
from paceline.controller.adaptive import AdaptiveController
from paceline.controller.cost_model import CostModel, StepCosts
from paceline.controller.fixed import FixedController
from paceline.controller.options import Limits
from paceline.controller.protocol import Controller
from paceline.core import ActivationRounding
from paceline.core.errors import ConfigError
from paceline.drafters.draft_model.drafter import DraftModelDrafter
from paceline.drafters.draft_model.text import MappedVocabulary
from paceline.drafters.draft_model.vocabulary_map import VocabularyMap
from paceline.drafters.ngram import NgramDrafter
from paceline.drafters.protocol import Drafter
from paceline.drafters.shared_layers import SharedLayersDrafter
from paceline.drafters.suffix.drafter import SuffixDrafter
from paceline.engine.capacity import check_weights_fit, context_window_size, num_kv_blocks
from paceline.engine.open_models import OpenModel, OpenPair, map_vocabularies, open_model
from paceline.engine.parts import EngineParts
from paceline.engine.profile import cached_profile
from paceline.engine.verifier import Verifier
from paceline.machine.cores import num_usable_cores
from paceline.machine.memory import available_memory_bytes
from paceline.sampling import RequestLimits
from paceline.tokenizer import Tokenizer

DRAFT_MODEL: DrafterName = "draft-model"
NGRAM: DrafterName = "ngram"
SHARED_LAYERS: DrafterName = "shared-layers"
SUFFIX: DrafterName = "suffix"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory, its vocabulary, and the name it goes by. `identity` changes with its file."""

    name: str
    model: NativeModel
    tokenizer: Tokenizer
    identity: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedPair:
    """The files of a target and its draft model (None without one), and the drafters that can run."""

    target: ResolvedModel
    draft: ResolvedModel | None
    drafter_names: tuple[DrafterName, ...]


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A target, its draft model (None without one), and the drafters that can run.

    `vocabulary_map` relates the tokens of two models with different ones (None: they are the same).
    """

    target: LoadedModel
    draft: LoadedModel | None
    drafter_names: tuple[DrafterName, ...]
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
    models = drafting_models(pair, config, pair.drafter_names)
    return cached_profile(default_cache_dir(os.environ), tuple(identities), config, pair.target.model, models)


def drafting_models(
    pair: LoadedPair, config: EngineConfig, drafter_names: tuple[DrafterName, ...]
) -> dict[DrafterName, Model]:
    """The models that those of the named drafters run that run one, by drafter.

    Raises ConfigError for `shared_layers` that are all of the target's, or more.
    """
    models: dict[DrafterName, Model] = {}
    if pair.draft is not None and DRAFT_MODEL in drafter_names:
        models[DRAFT_MODEL] = pair.draft.model
    if SHARED_LAYERS in drafter_names:
        models[SHARED_LAYERS] = FirstLayers(pair.target.model, config.shared_layers or 0)
    return models


def resolve_pair(config: EngineConfig, *, progress: ProgressListener | None = None) -> ResolvedPair:
    """The files that `config` means, pulled where they are absent.

    Raises ModelNotFoundError, DownloadError, ConfigError.
    """
    target = resolve_model(config.model, is_offline=config.is_offline, progress=progress)
    drafter_names = choose_drafters(config, target.default_draft_name)
    if DRAFT_MODEL not in drafter_names:
        return ResolvedPair(target, None, drafter_names)
    draft_name = config.draft_model or str(target.default_draft_name)
    draft = resolve_model(draft_name, is_offline=config.is_offline, progress=progress)
    return ResolvedPair(target, draft, drafter_names)


@contextmanager
def open_pair(config: EngineConfig) -> Iterator[OpenPair]:
    """The model files that `config` means, with its settings checked against them; closed again at the end.

    Raises ModelNotFoundError, DownloadError, CheckpointError, ConfigError, VocabularyMismatchError.
    """
    resolved = resolve_pair(config)
    with ExitStack() as files:
        target = files.enter_context(open_model(resolved.target))
        context_size = context_window_size(config, target.config)
        limits = RequestLimits(target.config.vocab_size, context_size, frozenset(get_args(DrafterName)))
        if SHARED_LAYERS in resolved.drafter_names:
            check_num_first_layers(target.config, config.shared_layers or 0)
        target.tokenizer.prepare_chats()
        draft = None if resolved.draft is None else files.enter_context(open_model(resolved.draft))
        vocabulary_map = None if draft is None else map_vocabularies(draft, target)
        yield OpenPair(target, draft, limits, resolved.drafter_names, vocabulary_map)


def load_pair(config: EngineConfig, *, instruction_set: str | None = None) -> LoadedPair:
    """The models that `config` means; `instruction_set` None takes the machine's best. Raises what `open_pair` raises,
    UnsupportedModelError and InsufficientMemoryError."""
    with open_pair(config) as pair:
        return load_weights(pair, config, instruction_set)


def load_weights(pair: OpenPair, config: EngineConfig, instruction_set: str | None = None) -> LoadedPair:
    """Loads the models of open files."""
    threads = _start_threads(config.num_threads or num_usable_cores())
    context_size = pair.limits.context_window_size
    target = load_model(pair.target, config, context_size, threads, instruction_set)
    if pair.draft is None:
        return LoadedPair(target, None, pair.drafter_names)
    draft = load_model(pair.draft, config, context_size, threads, instruction_set, is_draft=True)
    return LoadedPair(target, draft, pair.drafter_names, pair.vocabulary_map)


def _start_threads(num_threads: int) -> ThreadPool:
    try:
        return ThreadPool(num_threads)
    except RuntimeError as error:
        raise ConfigError(f"num_threads is {num_threads}: {error}") from error


def build_parts(
    pair: LoadedPair,
    config: EngineConfig,
    drafter_names: tuple[DrafterName, ...],
    num_blocks: int,
    costs: StepCosts | None = None,
) -> EngineParts:
    """What an engine with these drafters is made of; a draft model that is not among them stays out of it.

    With `costs` the engine finds drafters and windows itself, without them it always drafts as much as it may.
    """
    samplers: dict[str, RowSampler] = {}
    models = drafting_models(pair, config, drafter_names)
    return EngineParts(
        model_name=pair.target.name,
        target=pair.target.model,
        tokenizer=pair.target.tokenizer,
        num_blocks=num_blocks,
        controller=_build_controller(config, tuple(models), costs),
        drafters=tuple(_build_drafters(config, drafter_names, pair, models, samplers, num_blocks)),
        samplers=samplers,
        verifier=Verifier(threads=pair.target.model.threads),
        draft_model_name=pair.draft.name if pair.draft and DRAFT_MODEL in models else None,
    )


def _build_controller(
    config: EngineConfig, model_drafters: tuple[DrafterName, ...], costs: StepCosts | None
) -> Controller:
    if costs is None:
        return FixedController(config.num_speculative_tokens, *model_drafters)
    return AdaptiveController(CostModel(costs), Limits(config.num_speculative_tokens, config.fallback_threshold))


def choose_drafters(config: EngineConfig, default_draft_name: str | None) -> tuple[DrafterName, ...]:
    """The drafters to run: those that the settings name, or else suffix and, where they can be had, the target's first
    layers and the draft model.

    Raises ConfigError for a draft model that is asked for but not known, and for first layers without their number.
    """
    has_draft_model = config.draft_model is not None or default_draft_name is not None
    if config.drafters is not None and DRAFT_MODEL in config.drafters and not has_draft_model:
        raise ConfigError(f"no draft model is known for {config.model}; name one with --draft-model")
    if config.drafters is not None and SHARED_LAYERS in config.drafters and not config.shared_layers:
        raise ConfigError("the drafter shared-layers needs to know how many layers: say so with --shared-layers")
    if config.num_speculative_tokens == 0 or config.speculation == "off":
        return ()
    if config.drafters is not None:
        return config.drafters
    own: tuple[DrafterName, ...] = (SUFFIX, SHARED_LAYERS) if config.shared_layers else (SUFFIX,)
    return (*own, DRAFT_MODEL) if has_draft_model else own


def load_model(
    opened: OpenModel,
    config: EngineConfig,
    context_size: int,
    threads: ThreadPool,
    instruction_set: str | None = None,
    *,
    is_draft: bool = False,
) -> LoadedModel:
    """Repacks the weights of an open file and gives the file's pages back.

    A draft model is slimmed as the settings say, and its text may take twice as many tokens as the target's.
    """
    check_weights_fit(opened.name, opened.gguf.size_bytes, available_memory_bytes())
    model = NativeModel(
        opened.gguf,
        opened.config,
        threads=threads,
        block_size=config.block_size,
        max_positions=min(context_size * (2 if is_draft else 1), opened.config.max_context),
        instruction_set=instruction_set,
        kv_cache_type=config.kv_cache_type,
        activation_rounding=activation_rounding(config, is_draft=is_draft),
        slimming=draft_slimming(config, opened.tokenizer) if is_draft else WHOLE,
    )
    opened.gguf.release_pages()
    weight_mib = model.weight_bytes / 2**20
    _logger.info("loaded %s (%s, %.0f MiB of weights)", opened.name, opened.config.architecture, weight_mib)
    return LoadedModel(opened.name, model, opened.tokenizer, opened.identity)


def activation_rounding(config: EngineConfig, *, is_draft: bool) -> ActivationRounding | None:
    """What the settings ask for (None: the model's default); a slimmed draft model takes the faster one."""
    if is_draft and config.draft_weight_bits is not None:
        return ActivationRounding.EIGHT_BITS
    return None if config.activation_bits is None else ActivationRounding(f"{config.activation_bits}-bits")


def draft_slimming(config: EngineConfig, tokenizer: Tokenizer) -> Slimming:
    """What a draft model with this vocabulary leaves out; it keeps the tokens that end or structure a text."""
    return Slimming.of_vocabulary(
        config.draft_vocab_size,
        tokenizer.vocab_size,
        tokenizer.special_token_ids,
        has_four_bits=config.draft_weight_bits is not None,
    )


def _num_blocks(config: EngineConfig, pair: LoadedPair) -> int:
    models = [loaded.model for loaded in (pair.target, pair.draft) if loaded is not None]
    block_size_bytes = sum(model.kv.block_size_bytes for model in models)
    context_size = context_window_size(config, pair.target.model.config)
    return num_kv_blocks(config, context_size, block_size_bytes, available_memory_bytes())


def _build_drafters(
    config: EngineConfig,
    names: tuple[DrafterName, ...],
    pair: LoadedPair,
    models: Mapping[DrafterName, Model],
    samplers: dict[str, RowSampler],
    num_blocks: int,
) -> list[Drafter]:
    drafters: list[Drafter] = []
    if SUFFIX in names:
        drafters.append(SuffixDrafter(store_size=config.suffix_store_tokens))
    if NGRAM in names:
        drafters.append(NgramDrafter())
    if SHARED_LAYERS in models:
        drafters.append(SharedLayersDrafter(models[SHARED_LAYERS], samplers, threads=pair.target.model.threads))
    if pair.draft is not None and DRAFT_MODEL in models:
        model = pair.draft.model
        vocabulary = None if pair.vocabulary_map is None else MappedVocabulary(pair.vocabulary_map)
        drafters.append(
            DraftModelDrafter(
                model,
                samplers,
                num_blocks=num_blocks,
                prefill_chunk_size=config.prefill_chunk_size,
                max_length=model.max_positions,
                vocabulary=vocabulary,
                has_prefix_cache=config.has_prefix_cache,
                threads=model.threads,
            )
        )
    return drafters
