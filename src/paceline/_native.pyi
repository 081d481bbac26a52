"""Types of the extension module; native/bindings/ says what each function does."""

from collections.abc import Sequence

from paceline.core import Float32Array

def instruction_sets() -> list[str]: ...
def default_instruction_set() -> str: ...

class RowSampler:
    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        *,
        seed: int,
        choice_index: int,
        temperature: float,
        top_k: int | None,
        top_p: float,
        min_p: float,
        presence_penalty: float,
        frequency_penalty: float,
        repetition_penalty: float,
        logit_bias: Sequence[tuple[int, float]],
        min_tokens: int,
        banned_token_ids: Sequence[int],
    ) -> None: ...
    def append(self, token_ids: Sequence[int]) -> None: ...

def sample_rows(
    logits: Float32Array,
    rows: Sequence[int],
    samplers: Sequence[RowSampler],
    positions: Sequence[int],
    extra_token_ids: Sequence[Sequence[int]],
    num_logprobs: Sequence[int | None],
    instruction_set: str | None,
) -> tuple[list[int], list[tuple[float, list[tuple[int, float]]] | None]]: ...
def hash_rows(logits: Float32Array, rows: Sequence[int]) -> list[int]: ...
def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]: ...
def exponential_noise(bits: int) -> float: ...
