"""`Conversation`: keeps the messages of a chat and answers one question at a time."""

from __future__ import annotations

from rich.console import Console

from paceline.cli.answer import PlainText, print_answer
from paceline.cli.messages import print_note
from paceline.core import FinishReason, Output, SamplingParams
from paceline.core.errors import ContextOverflowError, UsageError
from paceline.engine import Engine
from paceline.sampling import check_room


class Conversation:
    """The messages of a chat, beginning with `opening`. A question that gets no answer is not kept."""

    def __init__(self, engine: Engine, sampling: SamplingParams, opening: list[dict[str, str]]) -> None:
        self._engine = engine
        self._sampling = sampling
        self._messages = opening
        self._console = Console(highlight=False)

    def ask(self, question: str) -> None:
        """Prints the answer, and a note if the answer was cut off.

        Raises UsageError if the question is not valid text, ContextOverflowError if it leaves no room for an answer,
        and PacelineError if answering fails.
        """
        _check_unicode(question)
        asked = [*self._messages, {"role": "user", "content": question}]
        token_ids = self._engine.tokenizer.encode_chat(asked)
        self._check_room(len(token_ids))
        text, last = print_answer(self._engine.stream(token_ids, self._sampling), PlainText(), self._console)
        self._messages = [*asked, {"role": "assistant", "content": text}]
        if last.finish_reason is FinishReason.LENGTH:
            print_note(self._describe_cut(len(token_ids), last))

    def _check_room(self, num_tokens: int) -> None:
        try:
            check_room(num_tokens, self._engine.context_window_size, subject="the conversation with this question")
        except ContextOverflowError as error:
            raise ContextOverflowError(f"{error}; the question is left out") from error

    def _describe_cut(self, num_prompt_tokens: int, last: Output) -> str:
        num_tokens = last.first_token_index + len(last.token_ids)
        limit = self._engine.context_window_size
        if num_prompt_tokens + num_tokens >= limit:
            return f"the answer was cut off, because the context window of {limit} tokens is full"
        return f"the answer was cut off after {num_tokens} tokens; raise --max-tokens for longer ones"


def _check_unicode(question: str) -> None:
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the question is not UTF-8 text from character {error.start} on and is left out") from error
