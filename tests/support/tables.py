"""A target over four tokens, which is a table of logits rows; its plain decoding; and all drafts to try on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from paceline.backends.native.sampler import NativeSampler
from paceline.core import Draft, Request, SamplingParams, Sequence
from paceline.sampling.sampler import SampleQuery
from paceline.sampling.sequence_sampler import SequenceSampler

VOCAB_SIZE = 4
DEPTH = 3
PROMPT = (2, 0, 2)
HISTORIES = [history for depth in range(DEPTH + 1) for history in product(range(VOCAB_SIZE), repeat=depth)]
ROW_OF = {history: row for row, history in enumerate(HISTORIES)}
GREEDY = SamplingParams(temperature=0.0)
SAMPLED = SamplingParams(temperature=0.9)
PENALIZED = SamplingParams(
    temperature=1.1, top_p=0.9, presence_penalty=1.5, frequency_penalty=0.5, repetition_penalty=1.3, min_tokens=2
)


def greedy_table(text: tuple[int, ...]) -> np.ndarray:
    """Returns logits [histories, 4] whose greedy text is `text` (4 tokens).

    After any other history of a length, the likeliest token is 3 minus the token of `text` at that place.
    """
    table = np.zeros((len(HISTORIES), VOCAB_SIZE), dtype=np.float32)
    for history, row in ROW_OF.items():
        depth = len(history)
        likely = text[depth] if history == text[:depth] else VOCAB_SIZE - 1 - text[depth]
        table[row, likely] = 5.0
    return table


def random_table(seed: int) -> np.ndarray:
    """Returns random logits [histories, 4]."""
    return np.random.default_rng(seed).normal(0.0, 1.0, (len(HISTORIES), VOCAB_SIZE)).astype(np.float32)


def make_sequence(params: SamplingParams, seed: int) -> Sequence:
    request = Request(request_id=str(seed), prompt_token_ids=list(PROMPT), sampling=params)
    return Sequence(request=request, seed=seed, token_ids=list(PROMPT))


def make_sampler(sequence: Sequence) -> SequenceSampler:
    return SequenceSampler.begin(NativeSampler(), sequence, vocab_size=VOCAB_SIZE, ending_token_ids=(3,))


def plain_text(table: np.ndarray, params: SamplingParams, seed: int) -> tuple[int, ...]:
    """Returns the DEPTH + 1 tokens of plain decoding, which takes one row, one call and one commit for each token."""
    sequence = make_sequence(params, seed)
    sampler = make_sampler(sequence)
    text: tuple[int, ...] = ()
    while len(text) <= DEPTH:
        position = len(PROMPT) + len(text)
        [sampled] = NativeSampler().sample(table, [SampleQuery(ROW_OF[text], sampler.rows, position)])
        token = sampled.token_id
        sampler.append([token])
        text += (token,)
    return text


def draft_rows(table: np.ndarray, draft: Draft) -> np.ndarray:
    """Returns the rows of logits of the root and of each node, as a verifier gets them."""
    histories = [tuple(draft.token_ids[node] for node in draft.path_to(end)) for end in range(len(draft))]
    return table[[ROW_OF[()], *(ROW_OF[history] for history in histories)]]


def all_chains() -> list[Draft]:
    """Returns every chain of 0 to DEPTH tokens."""
    return [Draft.chain(list(history), "chain") for history in HISTORIES]


def all_trees(num_nodes: int) -> Iterator[Draft]:
    """Yields every tree of `num_nodes` nodes with distinct siblings and at most DEPTH levels; nodes come by depth."""
    for nodes in _closed_sets(num_nodes):
        yield tree_of(sorted(nodes, key=lambda history: (len(history), history)))


def random_trees(seed: int, count: int, max_nodes: int) -> Iterator[Draft]:
    """Yields larger random trees, with nodes in any order in which parents come before their children."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        nodes: list[tuple[int, ...]] = []
        for _ in range(int(generator.integers(4, max_nodes + 1))):
            frontier = [
                (*history, token)
                for history in [(), *nodes]
                for token in range(VOCAB_SIZE)
                if len(history) < DEPTH and (*history, token) not in nodes
            ]
            nodes.append(frontier[int(generator.integers(len(frontier)))])
        yield tree_of(nodes)


def tree_of(histories: list[tuple[int, ...]]) -> Draft:
    index = {history: node for node, history in enumerate(histories)}
    parents = tuple(index.get(history[:-1]) for history in histories)
    return Draft(tuple(history[-1] for history in histories), parents, (1.0,) * len(histories), "tree")


def _closed_sets(num_nodes: int) -> set[frozenset[tuple[int, ...]]]:
    sets: set[frozenset[tuple[int, ...]]] = {frozenset()}
    for _ in range(num_nodes):
        sets = {
            nodes | {(*history, token)}
            for nodes in sets
            for history in [(), *nodes]
            for token in range(VOCAB_SIZE)
            if len(history) < DEPTH and (*history, token) not in nodes
        }
    return sets
