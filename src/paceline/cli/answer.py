"""Prints an answer while it is generated. `DraftColours` also shows which of its characters a draft had guessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rich.console import Console
from rich.segment import Segment, Segments

from paceline.core import Output
from paceline.core.errors import PacelineError
from paceline.tokenizer import IncrementalDetokenizer, Tokenizer

ACCEPTED_STYLE = "green"


class PlainText:
    """Shows all text in the same way, without colours."""

    def split(self, output: Output) -> Iterator[tuple[str, str | None]]:
        """Yields the text of one output, with no style."""
        yield output.text, None


class DraftColours:
    """Colours the characters of accepted draft tokens.

    An engine holds back text that may become a stop string, so an output's text need not be the text of its tokens. It
    is always the next part of the text of all tokens together.
    """

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: list[int]) -> None:
        self._detokenizer = IncrementalDetokenizer(tokenizer, prompt_token_ids)
        self._num_accepted = 0
        self._pending: list[tuple[str, str | None]] = []

    def split(self, output: Output) -> Iterator[tuple[str, str | None]]:
        """Yields the pieces of one output's text, each with its style."""
        num_accepted = output.speculation.num_accepted_tokens - self._num_accepted
        self._num_accepted += num_accepted
        for index, token_id in enumerate(output.token_ids):
            style = ACCEPTED_STYLE if index < num_accepted else None
            self._pending += [(character, style) for character in self._detokenizer.append(token_id)]
        shown, self._pending = self._pending[: len(output.text)], self._pending[len(output.text) :]
        styles = [style for _, style in shown] + [None] * (len(output.text) - len(shown))
        for style, pieces in groupby(zip(output.text, styles, strict=True), key=lambda pair: pair[1]):
            yield "".join(character for character, _ in pieces), style


def print_answer(outputs: Iterable[Output], colours: PlainText | DraftColours, console: Console) -> tuple[str, Output]:
    """Prints the answer as it arrives and a line break at the end; returns the whole text and the last output.

    Every character is printed; `console` only adds colours. Raises PacelineError if the engine ended the answer with an
    error.
    """
    text = ""
    last: Output | None = None
    for last in outputs:
        text += last.text
        for piece, style in colours.split(last):
            _print_piece(piece, style, console)
        console.file.flush()
    console.file.write("\n")
    console.file.flush()
    if last is None or last.error is not None:
        raise PacelineError(f"the answer ended early: {last.error if last else 'the engine gave no output'}")
    return text, last


def _print_piece(text: str, style: str | None, console: Console) -> None:
    """Prints one piece. It avoids rich's printing of strings, which expands tabs and drops control characters."""
    if style is None:
        console.file.write(text)
    else:
        console.print(Segments([Segment(text, console.get_style(style))]), crop=False, end="")
