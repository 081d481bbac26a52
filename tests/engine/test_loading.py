"""What an engine loads for its settings: drafters, KV memory and context; and which settings it refuses."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import msgspec
import pytest

from paceline.config import EngineConfig
from paceline.core import SamplingParams
from paceline.core.errors import (
    CheckpointError,
    ConfigError,
    InsufficientMemoryError,
    ModelNotFoundError,
    VocabularyMismatchError,
)
from paceline.drafters.selection import choose_drafters, resolve_pair
from paceline.engine import Engine
from paceline.engine.assembly import load_pair, measure_costs
from paceline.engine.capacity import check_weights_fit, num_kv_blocks
from paceline.engine.profile import (
    TARGET_ROWS,
    ModelProfile,
    PassTimes,
    ProfileTimes,
    pass_cases,
    without_disturbance,
)
from paceline.machine.memory import available_memory_bytes
from tests.support.tiny_gguf import write_tiny_gguf

MIB = 1 << 20


@pytest.mark.parametrize(
    ("settings", "default_draft", "names"),
    [
        ({}, None, ("suffix", "grammar")),
        ({}, "small", ("suffix", "grammar", "draft-model")),
        ({"draft_model": "mine"}, None, ("suffix", "grammar", "draft-model")),
        ({"shared_layers": 3}, None, ("suffix", "grammar", "shared-layers")),
        ({"shared_layers": 3}, "small", ("suffix", "grammar", "shared-layers", "draft-model")),
        ({"shared_layers": 3, "drafters": ("shared-layers",)}, "small", ("shared-layers",)),
        ({"shared_layers": 3, "drafters": ("suffix",)}, None, ("suffix",)),
        ({"drafters": ("ngram",), "draft_model": "mine"}, "small", ("ngram",)),
        ({"drafters": ()}, "small", ()),
        ({"num_speculative_tokens": 0}, "small", ()),
    ],
)
def test_the_drafters_that_run(settings, default_draft, names):
    assert choose_drafters(EngineConfig(model="m", **settings), default_draft) == names


def test_a_draft_model_that_nobody_knows_is_an_error():
    with pytest.raises(ConfigError, match="no draft model is known for m"):
        choose_drafters(EngineConfig(model="m", drafters=("draft-model",)), None)


def test_first_layers_without_their_number_are_an_error():
    with pytest.raises(ConfigError, match="say so with --shared-layers"):
        resolve_pair(EngineConfig(model="not-pulled-for-this", drafters=("shared-layers",)))


def test_kv_memory_holds_a_full_batch_or_what_fits():
    config = EngineConfig(model="m", max_batch_size=4)
    assert num_kv_blocks(config, 160, 1 * MIB, 1000 * MIB) == 40
    assert num_kv_blocks(config, 160, 1 * MIB, 20 * MIB) == 18
    explicit = EngineConfig(model="m", max_batch_size=4, kv_cache_size_bytes=12 * MIB)
    assert num_kv_blocks(explicit, 160, 1 * MIB, 1000 * MIB) == 12


def test_a_context_larger_than_memory_is_an_error():
    with pytest.raises(InsufficientMemoryError, match="160 tokens needs 10 MiB, but free memory allows 9 MiB"):
        num_kv_blocks(EngineConfig(model="m"), 160, 1 * MIB, 10 * MIB)
    small = EngineConfig(model="m", kv_cache_size_bytes=5 * MIB)
    with pytest.raises(InsufficientMemoryError, match="kv_cache_size_bytes allows 5 MiB"):
        num_kv_blocks(small, 160, 1 * MIB, 1000 * MIB)


def test_weights_larger_than_memory_are_an_error():
    check_weights_fit("big", 10 * MIB, 10 * MIB)
    with pytest.raises(InsufficientMemoryError, match="the weights of big need 11 MiB, but only 10 MiB are free"):
        check_weights_fit("big", 11 * MIB, 10 * MIB)


def test_available_memory_is_the_control_groups_where_that_is_less(tmp_path):
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    cgroup.mkdir()
    (proc / "meminfo").write_text("MemTotal:  8192 kB\nMemAvailable:  4096 kB\n")
    assert available_memory_bytes(proc, cgroup) == 4 * MIB
    (cgroup / "memory.current").write_text(f"{1 * MIB}\n")
    (cgroup / "memory.max").write_text("max\n")
    assert available_memory_bytes(proc, cgroup) == 4 * MIB
    (cgroup / "memory.max").write_text(f"{3 * MIB}\n")
    assert available_memory_bytes(proc, cgroup) == 2 * MIB
    assert available_memory_bytes() > 0


def test_by_default_there_is_a_thread_for_each_usable_core(tiny_pair, monkeypatch):
    monkeypatch.setattr("paceline.engine.assembly.num_usable_cores", lambda: 3)
    assert load_pair(config_of(tiny_pair, num_threads=None)).backend.num_threads == 3
    assert load_pair(config_of(tiny_pair, num_threads=2)).backend.num_threads == 2


def config_of(pair, **settings):
    defaults = {"model": str(pair.target), "draft_model": str(pair.draft), "context_window_size": 128}
    return EngineConfig(**(defaults | {"num_threads": 1, "max_batch_size": 2} | settings))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_CACHE_DIR", str(tmp_path / "cache"))


def test_an_engine_from_files_answers(tiny_pair):
    engine = Engine(config_of(tiny_pair))
    assert engine.parts.model_name == "target"
    assert engine.drafter_names == ("suffix", "grammar", "draft-model")
    assert engine.stats().num_blocks == 16
    (completion,) = engine.generate(["the riders"], SamplingParams(max_tokens=20, temperature=0.0))
    assert len(completion.token_ids) == 20
    assert completion.speculation.num_accepted_tokens > 0


@pytest.mark.parametrize("speculation", ["auto", "fixed"])
def test_first_layers_draft_without_weights_or_kv_of_their_own(tiny_pair, speculation):
    settings = {"draft_model": None, "speculation": speculation, "num_speculative_tokens": 4}
    plain, drafted = (Engine(config_of(tiny_pair, **settings, shared_layers=number)) for number in (0, 2))
    assert plain.drafter_names == ("suffix", "grammar")
    assert drafted.drafter_names == ("suffix", "grammar", "shared-layers")
    assert drafted.stats().num_blocks == plain.stats().num_blocks
    sampling = SamplingParams(max_tokens=40, temperature=0.0)
    answers = [engine.generate(["the riders"], sampling)[0] for engine in (plain, drafted)]
    assert answers[0].token_ids == answers[1].token_ids
    if speculation == "fixed":  # automatic mode drafts only if it pays on this machine
        assert drafted.stats().by_drafter["shared-layers"].num_accepted_tokens > 0


def test_the_profile_of_a_target_is_that_of_whole_passes(tiny_pair):
    config = config_of(tiny_pair, shared_layers=2)
    pair = load_pair(config)
    costs = measure_costs(pair, config)
    assert pair.target.model.num_resumed_rows == 0
    assert set(costs.drafters) == {"shared-layers", "draft-model"}
    assert costs.drafters["shared-layers"].missed_token_s == 0.0
    assert costs.target.rows == TARGET_ROWS
    assert all(fewer <= more for fewer, more in itertools.pairwise(costs.target.seconds))


@pytest.mark.parametrize("size", [16, 31, 32, 47, 48])
@pytest.mark.parametrize("settings", [{}, {"draft_model": None}, {"shared_layers": 2}])
def test_an_engine_of_a_small_context_starts_in_automatic_mode(tiny_pair, size, settings):
    sampling = SamplingParams(temperature=0.0)
    small = {"context_window_size": size, **settings}
    engines = [Engine(config_of(tiny_pair, **small)), Engine(config_of(tiny_pair, **small, speculation="off"))]
    drafted, plain = (engine.generate(["the riders"], sampling)[0] for engine in engines)
    assert len(drafted.prompt_token_ids) + len(drafted.token_ids) == size
    assert drafted.token_ids == plain.token_ids


@pytest.mark.parametrize("context_length", [2, 12])
def test_an_engine_of_a_model_with_a_small_context_starts_in_automatic_mode(tmp_path, context_length):
    path = write_tiny_gguf(tmp_path / "short.gguf", "llama", "Q4_K", context_length=context_length)
    engine = Engine(EngineConfig(model=str(path), num_threads=1))
    (completion,) = engine.generate([[100]], SamplingParams(temperature=0.0))
    assert len(completion.token_ids) == context_length - 1


def test_a_draft_model_with_a_smaller_context_than_the_targets_drafts_within_it(tiny_pair, tmp_path):
    draft = write_tiny_gguf(tmp_path / "short.gguf", "qwen2", "Q4_K", num_layers=1, context_length=24)
    settings = {"draft_model": str(draft), "drafters": ("draft-model",)}
    engine = Engine(config_of(tiny_pair, **settings))
    plain = Engine(config_of(tiny_pair, drafters=()))
    sampling = SamplingParams(max_tokens=40, temperature=0.0)
    answers = [each.generate(["the riders"], sampling)[0] for each in (engine, plain)]
    assert engine.drafter_names == ("draft-model",)
    assert answers[0].token_ids == answers[1].token_ids


def test_no_pass_of_a_profile_leaves_the_context():
    for size in (1, 7, 16, 31, 47, 48, 4096):
        chains = pass_cases(size, is_target=True)
        assert max(rows + context for rows, context in chains) <= size
        singles = pass_cases(size, is_target=False)
        assert max(context for _, context in singles) < size
        assert [rows for rows, _ in singles[:5]] == [1, 2, 4, 8, 16]
    assert pass_cases(4096, is_target=True) == [*((rows, 0) for rows in TARGET_ROWS), (1, 1008), (8, 1008)]


class FewTokens:
    """A model that claims to have a tiny vocabulary, and keeps the tokens that it is given."""

    def __init__(self, model, vocab_size):
        self.config = replace(model.config, vocab_size=vocab_size)
        self.kv = model.kv
        self.max_positions = model.max_positions
        self.token_ids = set()
        self._model = model

    def forward(self, batch):
        self.token_ids |= set(batch.token_ids.tolist())
        return self._model.forward(batch)


@pytest.mark.parametrize("is_target", [False, True])
def test_a_profile_reads_only_tokens_that_there_are(tiny_pair, is_target):
    pair = load_pair(config_of(tiny_pair, draft_model=None))
    model = FewTokens(pair.target.model, vocab_size=20)
    ModelProfile(pair.backend, model, 128, PassTimes(), is_target=is_target).measure(math.inf)
    assert model.token_ids == set(range(20))


def test_a_profile_of_a_small_context_is_not_taken_for_a_larger_ones(tiny_pair, tmp_path):
    small, large = (config_of(tiny_pair, context_window_size=size) for size in (16, 128))
    assert measure_costs(load_pair(small), small).target.rows == TARGET_ROWS[:-1]
    assert measure_costs(load_pair(large), large).target.rows == TARGET_ROWS
    assert len(list((tmp_path / "cache" / "profiles").iterdir())) == 2


def slowed_down(times, factor):
    """Returns the times of a machine that is slower by this factor."""
    best = tuple((count, context, factor * seconds) for count, context, seconds in times.best)
    return PassTimes(best, None if times.read_s is None else factor * times.read_s)


def test_a_profile_of_a_busy_machine_is_put_right_by_the_next_start(tiny_pair, tmp_path):
    config = config_of(tiny_pair)
    first = measure_costs(load_pair(config), config)
    (path,) = (tmp_path / "cache" / "profiles").iterdir()
    found = msgspec.json.decode(path.read_bytes(), type=ProfileTimes)
    assert found.costs() == first
    assert found.num_rounds >= 1

    drafters = {name: slowed_down(times, 1e3) for name, times in found.drafters.items()}
    busy = ProfileTimes(1, slowed_down(found.target, 1e3), drafters)
    path.write_bytes(msgspec.json.encode(busy))
    second = measure_costs(load_pair(config), config)
    assert max(second.target.seconds) < min(busy.costs().target.seconds)
    assert second.drafters["draft-model"].missed_token_s < busy.costs().drafters["draft-model"].missed_token_s
    assert msgspec.json.decode(path.read_bytes(), type=ProfileTimes).num_rounds == 2

    path.write_bytes(msgspec.json.encode(ProfileTimes(12, busy.target, busy.drafters)))
    assert measure_costs(load_pair(config), config) == busy.costs()  # after twelve rounds nothing is measured


def test_a_profile_that_cannot_be_read_is_measured_anew(tiny_pair, tmp_path, caplog):
    config = config_of(tiny_pair)
    measure_costs(load_pair(config), config)
    (path,) = (tmp_path / "cache" / "profiles").iterdir()
    path.write_text("{")
    assert measure_costs(load_pair(config), config).target.rows == TARGET_ROWS
    assert f"cannot read {path}" in caplog.text


def test_a_disturbed_pass_does_not_cost_more_than_one_of_more_rows():
    assert without_disturbance([3.0, 9.0, 4.0, 5.0, 8.0, 7.0]) == (3.0, 4.0, 4.0, 5.0, 7.0, 7.0)


def test_as_many_first_layers_as_there_are_layers_are_refused(tiny_pair):
    with pytest.raises(ConfigError, match="shared_layers is 3, but tiny qwen2 has 3 layers; choose 1 to 2"):
        Engine(config_of(tiny_pair, shared_layers=3))


def test_q8_holds_more_and_drafts_do_not_change_its_text(tiny_pair):
    num_bytes, sampling = 1 * MIB, SamplingParams(max_tokens=40, temperature=0.0)
    engines = [
        Engine(config_of(tiny_pair, kv_cache_type=kind, kv_cache_size_bytes=num_bytes, max_batch_size=64, **settings))
        for kind, settings in (("f16", {}), ("q8", {}), ("q8", {"drafters": ()}))
    ]
    blocks = [engine.stats().num_blocks for engine in engines]
    assert 1.7 * blocks[0] < blocks[1] < 1.9 * blocks[0]
    drafted, plain = (engine.generate(["the riders"], sampling)[0] for engine in engines[1:])
    assert drafted.token_ids == plain.token_ids
    assert drafted.speculation.num_accepted_tokens > 0


def test_a_model_of_one_layer_has_none_to_share(tiny_pair):
    with pytest.raises(ConfigError, match="shared_layers is 1, but tiny qwen2 has 1 layer; leave it at 0"):
        Engine(config_of(tiny_pair, model=str(tiny_pair.draft), draft_model=None, shared_layers=1))


def test_the_context_is_cut_to_the_models_unless_asked_for(tmp_path):
    path = write_tiny_gguf(tmp_path / "short.gguf", "llama", "Q4_K", context_length=64)
    assert Engine(EngineConfig(model=str(path), num_threads=1)).context_window_size == 64
    for size in (65, 4096):
        message = f"context_window_size is {size}, but tiny llama was made for at most 64 tokens"
        with pytest.raises(ConfigError, match=message):
            Engine(EngineConfig(model=str(path), num_threads=1, context_window_size=size))


def test_a_draft_of_another_vocabulary_is_refused(tiny_pair, tmp_path):
    other = write_tiny_gguf(tmp_path / "other.gguf", "qwen2", "Q4_K", vocab_size=300)
    with pytest.raises(VocabularyMismatchError, match="draft model other has another vocabulary than target"):
        Engine(config_of(tiny_pair, draft_model=str(other)))


def test_a_kv_cache_too_small_for_one_context_is_refused(tiny_pair):
    with pytest.raises(InsufficientMemoryError, match="kv_cache_size_bytes allows"):
        Engine(config_of(tiny_pair, kv_cache_size_bytes=1000))


def test_a_model_that_is_not_there_is_refused():
    with pytest.raises(ModelNotFoundError):
        Engine(EngineConfig(model="no-such-model", is_offline=True))


def test_a_truncated_model_is_refused(tiny_pair, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(tiny_pair.target.read_bytes()[:100_000])
    with pytest.raises(CheckpointError):
        Engine(EngineConfig(model=str(broken)))


def test_rows_beyond_the_tokens_add_nothing_to_a_text(tmp_path):
    path = write_tiny_gguf(tmp_path / "padded.gguf", "qwen2", "Q4_K", num_padding_rows=7)
    engine = Engine(EngineConfig(model=str(path), num_threads=1))
    assert engine.vocab_size == 391
    sampling = SamplingParams(max_tokens=3, temperature=0.0, logit_bias={390: 100.0}, num_logprobs=2)
    (completion,) = engine.generate([[390, 100]], sampling)
    assert (completion.token_ids, completion.text) == ([390] * 3, "")


@pytest.mark.parametrize("settings", [{}, {"draft_vocab_size": 300}])
@pytest.mark.parametrize(("target_padding", "draft_padding"), [(7, 0), (0, 7), (7, 7)])
def test_a_draft_model_with_another_number_of_rows_drafts(tmp_path, target_padding, draft_padding, settings):
    target = write_tiny_gguf(tmp_path / "target.gguf", num_layers=3, num_padding_rows=target_padding)
    draft = write_tiny_gguf(tmp_path / "draft.gguf", num_layers=1, num_padding_rows=draft_padding)
    common = {"model": str(target), "num_threads": 1, "context_window_size": 128, "speculation": "fixed"}
    names = {"draft_model": str(draft), "drafters": ("draft-model",)}
    drafted, plain = (Engine(EngineConfig(**common, **extra)) for extra in ({**names, **settings}, {"drafters": ()}))
    sampling = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)
    prompt = [383 + target_padding, *b"the riders"]
    answers = [engine.generate([prompt], sampling)[0] for engine in (drafted, plain)]
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].speculation.num_accepted_tokens > 0


def test_tokens_without_a_row_are_refused(tmp_path):
    path = write_tiny_gguf(tmp_path / "cut.gguf", "qwen2", "Q4_K", num_padding_rows=-3)
    message = r"cut\.gguf: the vocabulary has 384 tokens, but the embedding only 381 rows; the file is corrupt"
    with pytest.raises(CheckpointError, match=message):
        Engine(EngineConfig(model=str(path), num_threads=1))


def test_more_threads_than_can_be_started_are_refused(monkeypatch, tiny_pair):
    """The thread pool fails as it does in a control group that limits the number of tasks."""

    def refuse(num_threads):
        raise RuntimeError("only 2 of 64 threads can run here; ask for fewer")

    monkeypatch.setattr("paceline._native.ThreadPool", refuse)
    with pytest.raises(ConfigError, match="num_threads is 64: only 2 of 64 threads can run here; ask for fewer"):
        load_pair(EngineConfig(model=str(tiny_pair.target), num_threads=64))
