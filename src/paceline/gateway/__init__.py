"""The HTTP side: OpenAI's API in front of an engine process that it starts, watches and starts again.

Tokenization and chat templates happen here; weights are never loaded here.
"""

from paceline.gateway.serve import serve

__all__ = ["serve"]
