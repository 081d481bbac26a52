"""`paceline verify MODEL`: checks on this machine that speculation does not change the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from paceline.cli.options import JsonOption, draft_options, model_options, takes_settings

if TYPE_CHECKING:
    from paceline.config import Settings
    from paceline.operations.verify import Check, CommittedToken, Difference, Verification

FullOption = Annotated[
    bool, typer.Option("--full", help="Check all windows, thread counts and instruction sets, not just some of them.")
]
LogitsOption = Annotated[bool, typer.Option("--logits", help="Also compare a hash of all logits of each token.")]

_ROW = "{:<8} {:>7}  {:<24} {:>6} {:>5} {:>5}  {:<5} {:>6} {:>7} {:>8} {:>6} {:>7}  {}"
_HEADER = ("isa", "threads", "drafters", "window", "batch", "chunk", "cache")
_COUNTS = ("tokens", "drafted", "accepted", "cached", "seconds", "result")


@takes_settings(model_options, draft_options)
def verify(
    settings: Settings,
    is_full: FullOption = False,
    has_row_hashes: LogitsOption = False,
    is_json: JsonOption = False,
) -> None:
    """Compare drafters, windows, batch sizes, thread counts and instruction sets with plain decoding.

    Exits with 1 at the first token or log-probability that differs in a single bit.
    """
    from paceline.cli.model_files import pull_models
    from paceline.operations.verify import begin_verification
    from paceline.operations.verify_plan import Scope

    pull_models(settings.engine)
    scope = Scope.FULL if is_full else Scope.QUICK
    verification = begin_verification(settings.engine, scope, has_row_hashes=has_row_hashes)
    checks = _run(verification, _ignore if is_json else _print_row)
    if is_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(checks)))
    difference = checks[-1].difference
    if difference is not None:
        typer.echo(f"error: {describe_difference(difference)}", err=True)
        raise typer.Exit(1)
    if not is_json:
        num_tokens = sum(check.num_tokens for check in checks)
        what = "tokens, log-probabilities and logits" if has_row_hashes else "tokens and log-probabilities"
        typer.echo(f"identical: {what} of {num_tokens} tokens in {len(checks)} runs equal plain decoding bit for bit")


def _run(verification: Verification, report: Callable[[Check], None]) -> list[Check]:
    checks: list[Check] = []
    for check in verification.checks():
        if not checks and report is _print_row:
            typer.echo(_ROW.format(*_HEADER, *_COUNTS))
        report(check)
        checks.append(check)
    return checks


def _ignore(check: Check) -> None:
    """Shows nothing."""


def _print_row(check: Check) -> None:
    variant = check.variant
    typer.echo(
        _ROW.format(
            check.machine.instruction_set,
            check.machine.num_threads,
            ",".join(variant.drafters) or "none",
            variant.window if variant.costs is None else "auto",
            variant.batch_size,
            variant.prefill_chunk_size,
            check.cache,
            check.num_tokens,
            check.num_draft_tokens,
            check.num_accepted_tokens,
            check.num_cached_tokens,
            f"{check.duration_s:.1f}",
            "equal" if check.difference is None else "DIFFERS",
        )
    )


def describe_difference(difference: Difference) -> str:
    """Returns a line that says where two texts begin to differ."""
    return (
        f"{difference.sampling} text of prompt {difference.prompt_index} differs at output position "
        f"{difference.position}: plain decoding has {_describe(difference.expected, difference.expected_text)}, "
        f"this run has {_describe(difference.actual, difference.actual_text)}"
    )


def _describe(token: CommittedToken | None, text: str) -> str:
    if token is None:
        return "no token"
    row = "" if token.row_hash is None else f", logits {token.row_hash}"
    return f"token {token.token_id} {text!r} (log-probability bits {token.logprob_bits:08x}{row})"
