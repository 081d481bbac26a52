"""`EngineFactory`: makes engines over a pair of tiny models that is loaded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.architectures import read_model_config
from paceline.backends.native.model import NativeModel, ThreadPool
from paceline.backends.native.sampler import NativeSampler
from paceline.backends.protocol import Model
from paceline.checkpoint import GgufFile
from paceline.config import EngineConfig
from paceline.controller.adaptive import AdaptiveController
from paceline.controller.cost_model import CostModel, StepCosts
from paceline.controller.fixed import FixedController
from paceline.controller.options import Limits
from paceline.controller.protocol import Controller
from paceline.core import Output, Request, SamplingParams, SpeculationParams
from paceline.drafters.chains.drawing import Drawer
from paceline.drafters.draft_model.drafter import DraftModelDrafter
from paceline.drafters.grammar import GrammarDrafter
from paceline.drafters.protocol import Drafter
from paceline.drafters.shared_layers import SharedLayersDrafter
from paceline.engine import Engine, EngineParts
from paceline.sampling.constraints import ConstraintKind
from paceline.tokenizer import Tokenizer
from tests.support.tiny_gguf import TinyPair

CONTEXT_SIZE = 256
NUM_BLOCKS = 96


def load_model(gguf: GgufFile) -> NativeModel:
    """Loads a model in the way that all engine tests do."""
    return NativeModel(gguf, read_model_config(gguf), threads=ThreadPool(2))


class EngineFactory:
    """Makes engines. A new engine empties the KV of the engine before, so use only one at a time."""

    def __init__(self, pair: TinyPair) -> None:
        with GgufFile.open(pair.target) as target, GgufFile.open(pair.draft) as draft:
            self.target = load_model(target)
            self.draft = load_model(draft)
            self.tokenizer = Tokenizer.from_gguf(target, None)
        self.sampler = NativeSampler()

    @property
    def vocab_size(self) -> int:
        return self.target.config.vocab_size

    def make(
        self,
        drafters: Sequence[Drafter] = (),
        *,
        window: int = 7,
        num_blocks: int = NUM_BLOCKS,
        has_draft_model: bool = False,
        draft_length: int | None = None,
        has_grammar: bool = False,
        shared_layers: int = 0,
        target: Model | None = None,
        costs: StepCosts | None = None,
        constraints: Mapping[str, ConstraintKind] | None = None,
        epoch: int = 0,
        **settings: object,
    ) -> Engine:
        """Returns a new engine with `drafters`, followed by the draft model and by shared layers if asked for.

        `draft_length` limits the texts of the draft model. `has_grammar` adds the drafter of what constraints force.
        `target` replaces the tiny target. With `costs` the engine plans by these costs.
        """
        defaults = {"context_window_size": CONTEXT_SIZE, "num_speculative_tokens": window, "prefill_chunk_size": 32}
        samplers: dict = {}
        drawer = Drawer(self.sampler, self.vocab_size)
        if has_grammar:
            drafters = (*drafters, GrammarDrafter(samplers))
        if has_draft_model:
            model = DraftModelDrafter(
                self.draft, samplers, drawer, num_blocks=num_blocks, max_length=draft_length, has_prefix_cache=True
            )
            drafters = (*drafters, model)
        if shared_layers:
            drafters = (*drafters, SharedLayersDrafter(self.target.first_layers(shared_layers), samplers, drawer))
        parts = EngineParts(
            model_name="tiny",
            target=target or self.target,
            tokenizer=self.tokenizer,
            num_blocks=num_blocks,
            sampler=self.sampler,
            controller=make_controller(window, [drafter.name for drafter in drafters if not drafter.is_free], costs),
            drafters=tuple(drafters),
            samplers=samplers,
            constraints=constraints or {},
        )
        return Engine.from_parts(EngineConfig(model="tiny", **(defaults | settings)), parts, epoch=epoch)


def make_controller(window: int, model_drafters: Sequence[str], costs: StepCosts | None) -> Controller:
    """Returns an adaptive controller for `costs`, or a fixed one if there are none."""
    if costs is None:
        return FixedController(window, *model_drafters)
    return AdaptiveController(CostModel(costs), Limits(window))


def request(request_id: str, prompt: Sequence[int], speculation: SpeculationParams | None = None, **sampling: object):
    """Returns a request with token ids as its prompt."""
    return Request(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        sampling=SamplingParams(**sampling),
        speculation=speculation or SpeculationParams(),
    )


def run(engine: Engine) -> dict[str, list[Output]]:
    """Steps until all requests have ended, and checks the blocks after every step; returns outputs by request id."""
    outputs: dict[str, list[Output]] = {}
    while engine.has_unfinished:
        for output in engine.step():
            outputs.setdefault(output.request_id, []).append(output)
        engine.check_integrity()
    return outputs


def token_ids(outputs: list[Output]) -> list[int]:
    """Checks that the indices of one request's tokens have no gaps, and returns all of its tokens."""
    tokens: list[int] = []
    for output in outputs:
        assert output.first_token_index == len(tokens)
        tokens += output.token_ids
    return tokens


def answer(outputs: list[Output]) -> tuple[object, ...]:
    """Returns what must not depend on speculation: tokens, text, finish and stop reason, bits of log-probabilities."""
    last = outputs[-1]
    logprobs = [(entry.token_id, entry.logprob.hex()) for output in outputs for entry in output.logprobs or ()]
    text = "".join(output.text for output in outputs)
    return token_ids(outputs), text, last.finish_reason, last.stop_reason, logprobs
