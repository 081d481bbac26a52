"""The gateway stands between clients and engines: HTTP fronts, the generation service, and replicas of engines.

It starts and watches the engines. It tokenizes prompts and renders chat templates, but never loads weights.
"""

from paceline.gateway.server import serve

__all__ = ["serve"]
