"""The planner: pure functions that choose a drafter and a window for each sequence in one step.

It maximizes expected tokens minus `rate` times seconds. If `rate` is the speed that is reached in the long run, this
maximizes tokens per second over many steps (Dinkelbach, 1967).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from operator import itemgetter


@dataclass(frozen=True, slots=True)
class Candidate:
    """What one drafter can do for one sequence. `gains[k]` is the expected number of tokens that node k brings. It
    never rises with k. Each node costs a row and `node_s` seconds of its drafter, and the first node costs `price_s`
    more.

    Each depth also costs the drafter `depth_s` seconds, once for all sequences that draft so deep. All candidates of a
    drafter have the same `depth_s`. If it is 0, the depth of a node does not matter.
    """

    drafter: str
    gains: Sequence[float]
    node_s: float = 0.0
    price_s: float = 0.0
    depth_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pick:
    """A candidate's index and how many of its nodes to take; None and 0 is plain decoding."""

    candidate: int | None
    window: int


PLAIN = Pick(None, 0)
Alternatives = Sequence[Sequence[Candidate]]


def best_plan(alternatives: Alternatives, steps_s: Sequence[float], rate: float) -> list[Pick]:
    """Returns a pick for each sequence. The picks maximize `value`, with at most `len(steps_s) - 1` nodes in all.

    `steps_s[n]` is the time of the target's pass with n draft rows. The result is exact for a single sequence, and for
    several sequences if each has one candidate, without `price_s` and `depth_s`. Otherwise it tries a few prices of a
    row. For each, every sequence takes the candidate that is worth most at this price, and the best nodes of these
    candidates are chosen exactly. Tests with jumps in the costs require at most 1 % below the optimum on average, and
    20 % at worst. At most one drafter with a `depth_s` is used in a step. O(nodes * log(nodes)).
    """
    if len(alternatives) == 1:
        return [_best_alone(alternatives[0], steps_s, rate)]
    last = len(steps_s) - 1
    num_rows = sorted({min(last, len(alternatives)), last} - {0})
    prices_s = [0.0, *((steps_s[count] - steps_s[0]) / count for count in num_rows)]
    sharing = {candidate.drafter for candidates in alternatives for candidate in candidates if candidate.depth_s}
    cases = product(sorted(sharing) or [""], prices_s)
    assignments = dict.fromkeys(_assign(alternatives, name, price_s, rate) for name, price_s in cases)
    found = [_fill(alternatives, *assignment, steps_s, rate) for assignment in assignments]
    return max([[PLAIN] * len(alternatives), *found], key=lambda picks: value(alternatives, picks, steps_s, rate))


def value(alternatives: Alternatives, picks: Sequence[Pick], steps_s: Sequence[float], rate: float) -> float:
    """Returns the expected number of accepted draft tokens, minus `rate` times the seconds of the step."""
    return num_expected(alternatives, picks) - rate * plan_s(alternatives, picks, steps_s)


def num_expected(alternatives: Alternatives, picks: Sequence[Pick]) -> float:
    """Returns the number of draft tokens that the target is expected to accept."""
    return sum(sum(candidate.gains[:window]) for candidate, window in _taken(alternatives, picks))


def plan_s(alternatives: Alternatives, picks: Sequence[Pick], steps_s: Sequence[float]) -> float:
    """Returns the seconds of drafting and of the target's pass."""
    taken = list(_taken(alternatives, picks))
    own_s = sum(candidate.price_s + candidate.node_s * window for candidate, window in taken)
    shared_s: dict[str, float] = {}
    for candidate, window in taken:
        if candidate.depth_s:
            shared_s[candidate.drafter] = max(shared_s.get(candidate.drafter, 0.0), candidate.depth_s * window)
    return steps_s[sum(window for _, window in taken)] + own_s + sum(shared_s.values())


def _taken(alternatives: Alternatives, picks: Sequence[Pick]) -> list[tuple[Candidate, int]]:
    return [
        (candidates[pick.candidate], pick.window)
        for candidates, pick in zip(alternatives, picks, strict=True)
        if pick.candidate is not None and pick.window > 0
    ]


def _best_alone(candidates: Sequence[Candidate], steps_s: Sequence[float], rate: float) -> Pick:
    best, best_value = PLAIN, -rate * steps_s[0]
    for index, candidate in enumerate(candidates):
        node_price = rate * (candidate.node_s + candidate.depth_s)
        worth = -rate * candidate.price_s
        for window, (gain, step_s) in enumerate(zip(candidate.gains, steps_s[1:], strict=False), 1):
            worth += gain - node_price
            if worth - rate * step_s > best_value:
                best, best_value = Pick(index, window), worth - rate * step_s
    return best


def _assign(alternatives: Alternatives, name: str, row_s: float, rate: float) -> tuple[tuple[int | None, ...], int]:
    """Returns for each sequence the index of the candidate that is worth most if a row costs `row_s`, and the greatest
    depth of the drafts of `name`. Other drafters with a `depth_s` are not considered."""
    free: list[tuple[float, int | None]] = []
    shared: list[tuple[list[float], int | None]] = []
    depth_s = 0.0
    for candidates in alternatives:
        best_free: tuple[float, int | None] = (0.0, None)
        own_shared: tuple[list[float], int | None] = ([0.0], None)
        best_gain = 0.0
        for index, candidate in enumerate(candidates):
            worths = worths_by_size(candidate, row_s, rate)
            if candidate.depth_s and candidate.drafter == name:
                own_shared, depth_s = (worths, index), candidate.depth_s
            elif (
                not candidate.depth_s
                and candidate.gains
                and (worths[-1], candidate.gains[0]) > (best_free[0], best_gain)
            ):
                best_free, best_gain = (worths[-1], index), candidate.gains[0]
        free.append(best_free)
        shared.append(own_shared)
    depth = _best_depth(free, shared, rate * depth_s)
    assignment = tuple(
        index if worths[min(depth, len(worths) - 1)] > free_worth else free_index
        for (free_worth, free_index), (worths, index) in zip(free, shared, strict=True)
    )
    return assignment, depth


def _best_depth(
    free: list[tuple[float, int | None]], shared: list[tuple[list[float], int | None]], depth_price: float
) -> int:
    """Returns the most profitable depth of the shared passes. Each sequence takes its better alternative."""
    totals = [-depth_price * depth for depth in range(max(len(worths) for worths, _ in shared))]
    for (free_worth, _), (worths, _) in zip(free, shared, strict=True):
        for depth in range(1, len(totals)):
            worth = worths[depth] if depth < len(worths) else worths[-1]
            if worth > free_worth:
                totals[depth] += worth - free_worth
    return max(range(len(totals)), key=totals.__getitem__)


def worths_by_size(candidate: Candidate, row_s: float, rate: float) -> list[float]:
    """Returns the worth of a candidate with 0, 1, ... nodes, at least 0. It ends where another node adds nothing."""
    node_price = rate * (row_s + candidate.node_s)
    worth = -rate * candidate.price_s
    worths = [0.0]
    for gain in candidate.gains:
        if gain <= node_price:
            break
        worth += gain - node_price
        worths.append(max(0.0, worth))
    return worths


def _fill(
    alternatives: Alternatives, assignment: Sequence[int | None], depth: int, steps_s: Sequence[float], rate: float
) -> list[Pick]:
    """Returns the picks with the most valuable nodes of the assigned candidates, as many as are worth their rows."""
    chosen = [
        None if index is None else candidates[index] for candidates, index in zip(alternatives, assignment, strict=True)
    ]
    nodes = [
        (gain - rate * candidate.node_s, sequence)
        for sequence, candidate in enumerate(chosen)
        if candidate is not None
        for gain in candidate.gains[: depth if candidate.depth_s else None]
    ]
    nodes.sort(key=itemgetter(0), reverse=True)
    nodes = nodes[: len(steps_s) - 1]
    worths = list(accumulate((worth for worth, _ in nodes), initial=0.0))
    num_nodes = max(range(len(worths)), key=lambda count: worths[count] - rate * steps_s[count])
    windows = [0] * len(alternatives)
    for _, sequence in nodes[:num_nodes]:
        windows[sequence] += 1
    return [Pick(index, window) if window else PLAIN for index, window in zip(assignment, windows, strict=True)]
