"""A complete drafter of another package, in one file. Once installed, it is used by its name like Paceline's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline import Engine, EngineConfig, SamplingParams, SpeculationParams
from paceline.core import Draft, Plan, Sequence
from paceline.core.errors import ConfigError, InvalidRequestError
from paceline.drafters import drafter_names, find_drafter_kind
from paceline.drafters.protocol import Drafter, DrafterKind, DrafterParts, Proposals
from paceline.engine.assembly import build_parts, load_pair
from tests.support.tiny_gguf import TinyPair

ROOT = Path(__file__).parents[2]
METADATA = "Metadata-Version: 2.1\nName: echo-drafter\nVersion: 1.0\n"


class EchoDrafter(Drafter):
    """Guesses that the last two tokens repeat forever."""

    name = "echo"

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        drafts = [
            Draft.chain((sequence.token_ids[-2:] * plan.window)[: plan.window], self.name)
            for sequence, plan in zip(sequences, plans, strict=True)
        ]
        return Proposals(drafts)


class EchoKind(DrafterKind):
    name = "echo"

    def build(self, parts: DrafterParts) -> EchoDrafter:
        return EchoDrafter()


class MisnamedKind(EchoKind):
    name = "another"


class ForeignKind(EchoKind):
    """Builds a drafter with another name than its kind's."""

    name = "foreign"


class UnpricedKind(EchoKind):
    name = "unpriced"
    is_free = False


class NamelessKind(DrafterKind):
    def build(self, parts: DrafterParts) -> EchoDrafter:
        return EchoDrafter()


class FaultyDrafter(EchoDrafter):
    """Proposes what `fault` makes of correct proposals."""

    def __init__(self, fault: Callable[[Proposals], Any]) -> None:
        self.fault = fault

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        return self.fault(super().propose(sequences, plans))


def changed(proposals: Proposals, **fields: object) -> Proposals:
    """Returns the proposals with these fields of their drafts replaced."""
    return Proposals([replace(draft, **fields) for draft in proposals.drafts])


FAULTS: dict[str, Callable[[Proposals], Any]] = {
    "no proposals": lambda proposals: proposals.drafts,
    "too few": lambda _: Proposals([]),
    "no drafts": lambda proposals: Proposals([None] * len(proposals.drafts)),
    "unknown tokens": lambda proposals: changed(proposals, token_ids=(10**8,), parents=(None,), confidences=(1.0,)),
    "negative tokens": lambda proposals: changed(proposals, token_ids=(-1,), parents=(None,), confidences=(1.0,)),
    "no tree": lambda proposals: changed(proposals, token_ids=(1, 2), parents=(1, None), confidences=(1.0, 1.0)),
    "no confidences": lambda proposals: changed(proposals, confidences=()),
    "confidences above 1": lambda proposals: Proposals(
        [Draft((1, 2, 3, 4), (None, 0, None, 2), (0.5, 1.0000001, 0.4, 0.1), "echo")] * len(proposals.drafts)
    ),
    "negative confidences": lambda proposals: changed(proposals, token_ids=(1,), parents=(None,), confidences=(-0.1,)),
    "confidences that are no numbers": lambda proposals: changed(
        proposals, token_ids=(1,), parents=(None,), confidences=("0.5",)
    ),
    "tokens that are no integers": lambda proposals: changed(
        proposals, token_ids=(float("nan"),), parents=(None,), confidences=(0.5,)
    ),
    "parents that are no integers": lambda proposals: changed(
        proposals, token_ids=(1, 2), parents=(None, 0.0), confidences=(0.5, 0.5)
    ),
    "another name": lambda proposals: changed(proposals, drafter="other"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of installed packages, as pip leaves it, with one package that offers drafters."""
    folder = tmp_path_factory.mktemp("site")
    information = folder / "echo_drafter-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(METADATA)
    module = "tests.drafters.test_package_drafter"
    kinds = {
        "echo": "Echo",
        "misnamed": "Misnamed",
        "foreign": "Foreign",
        "unpriced": "Unpriced",
        "nameless": "Nameless",
    }
    lines = [*(f"{name} = {module}:{kind}Kind" for name, kind in kinds.items()), "broken = no_such_module:Kind"]
    (information / "entry_points.txt").write_text("\n".join(["[paceline.drafters]", *lines]))
    return folder


@pytest.fixture
def _installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))


def config_of(pair: TinyPair, **settings: object) -> EngineConfig:
    return EngineConfig(model=str(pair.target), num_threads=1, speculation="fixed", **settings)


def test_without_the_package_the_name_is_unknown(tiny_pair: TinyPair) -> None:
    with pytest.raises(ConfigError, match="there is no drafter named 'echo'; choose from suffix, ngram,"):
        Engine(config_of(tiny_pair, drafters=("echo",)))


@pytest.mark.usefixtures("_installed")
def test_it_serves_through_the_engine(tiny_pair: TinyPair) -> None:
    sampling = SamplingParams(max_tokens=40, temperature=0.0, logit_bias={97: 12.0, 98: 12.0})
    plain, drafted = (Engine(config_of(tiny_pair, drafters=drafters)) for drafters in ((), ("suffix", "echo")))
    assert drafted.drafter_names == ("suffix", "echo")
    only = SpeculationParams(drafters=("echo",))
    answers = [engine.generate(["the riders"], sampling, only)[0] for engine in (plain, drafted)]
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[1].speculation.by_drafter.keys() == {"echo"}
    assert answers[1].speculation.num_accepted_tokens > 0
    with pytest.raises(InvalidRequestError, match=r"'oracle' is not a drafter; known are: .*echo"):
        drafted.generate(["the riders"], sampling, SpeculationParams(drafters=("oracle",)))


@pytest.mark.usefixtures("_installed")
def test_names_are_known_without_loading_anything() -> None:
    assert {"suffix", "ngram", "shared-layers", "draft-model", "echo", "broken"} <= set(drafter_names())
    assert isinstance(find_drafter_kind("echo"), EchoKind)


@pytest.mark.usefixtures("_installed")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "cannot be loaded: No module named"),
        ("misnamed", "is not a DrafterKind of that name"),
        ("nameless", "is not a DrafterKind of that name"),
        ("foreign", "the drafter 'foreign' and its kind differ in their name"),
        ("unpriced", "the drafter 'unpriced' is not free, but does not name the model that it runs"),
    ],
)
def test_one_that_cannot_be_loaded_says_so_when_it_is_named(name: str, message: str, tiny_pair: TinyPair) -> None:
    with pytest.raises(ConfigError, match=message):
        Engine(EngineConfig(model=str(tiny_pair.target), num_threads=1, drafters=(name,)))


@pytest.mark.parametrize("fault", FAULTS)
def test_one_that_breaks_the_contract_is_switched_off_and_the_text_goes_on(
    fault: str, tiny_pair: TinyPair, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(tiny_pair, drafters=(), context_window_size=512)
    pair = load_pair(config)
    parts = build_parts(pair, config, (), num_blocks=64)
    plain = Engine.from_parts(config, parts)
    engine = Engine.from_parts(config, replace(parts, drafters=(FaultyDrafter(FAULTS[fault]),)))
    sampling = SamplingParams(max_tokens=20, temperature=0.0)
    prompts = ["the riders", "a line"]
    assert [answer.token_ids for answer in engine.generate(prompts, sampling)] == [
        answer.token_ids for answer in plain.generate(prompts, sampling)
    ]
    assert engine.drafter_names == ()
    assert "drafter echo failed and is switched off" in caplog.text


def test_it_serves_through_the_command_line(site: Path, tiny_pair: TinyPair, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": f"{site}:{ROOT}", "PACELINE_CACHE_DIR": str(tmp_path)}

    def paceline(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("paceline")), *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    options = ("generate", tiny_pair.target, "x", "--raw", "--max-tokens", 30, "--speculation", "fixed")
    plain = paceline(*options, "--drafters", "none")
    drafted = paceline(*options, "--drafters", "echo", "--show-drafts")
    assert drafted.returncode == 0, drafted.stderr
    assert drafted.stdout == plain.stdout
    assert "echo" in drafted.stderr
    verified = paceline("verify", tiny_pair.target, "--drafters", "echo", "--json")
    assert verified.returncode == 0, verified.stderr
    checks = json.loads(verified.stdout)
    assert {tuple(check["variant"]["drafters"]) for check in checks} == {(), ("echo",)}
