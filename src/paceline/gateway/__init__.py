"""Between clients and engines: fronts over HTTP, the generation service, and replicas, which it starts and watches.

Tokenization and chat templates happen here; weights are never loaded here.
"""

from paceline.gateway.server import serve

__all__ = ["serve"]
