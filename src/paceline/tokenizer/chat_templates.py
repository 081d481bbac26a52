"""`ChatTemplates`: the chat templates of one model, one for chats with tools and one for chats without.

`vocabulary` reads them from the model file, and `chat_template` renders one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer.chat_template import ChatTemplate
from paceline.tokenizer.vocabulary import Vocabulary


class ChatTemplates:
    """Renders each chat with the right template; many models have one template for all chats, some have none.

    `source` is the template for chats without tools, `tool_source` the one for chats with tools; None where there is
    none. Safe to use from several threads.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.source = vocabulary.chat_template
        self.tool_source = vocabulary.chat_template if vocabulary.tool_template is None else vocabulary.tool_template
        ids = {"bos_token": vocabulary.bos_token_id, "eos_token": vocabulary.eos_token_id}
        variables = {name: "" if token_id is None else vocabulary.tokens[token_id] for name, token_id in ids.items()}
        sources = dict.fromkeys(source for source in (self.source, self.tool_source) if source is not None)
        self._templates = {source: ChatTemplate(source, variables) for source in sources}

    def prepare(self) -> None:
        """Prepares each template. Raises CheckpointError for one that does not compile."""
        for template in self._templates.values():
            template.prepare()

    def close(self) -> None:
        """Ends the processes that render; a later rendering starts a new one."""
        for template in self._templates.values():
            template.close()

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None,
        options: Mapping[str, object],
    ) -> str:
        """Returns the prompt text of a chat. An empty list of tools counts as None.

        Raises what `ChatTemplate.render` raises, and InvalidRequestError where there is no template.
        """
        source = self.tool_source if tools else self.source
        if source is None:
            raise InvalidRequestError(
                "the model has no chat template; use /v1/completions, or a model that is made for chats", "messages"
            )
        return self._templates[source].render(messages, tools or None, **options)
