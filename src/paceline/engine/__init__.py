"""The engine: scheduler, step and the `Engine` that owns models, drafters and KV memory.

`process` runs an `Engine` as a process of its own.
"""

from paceline.engine.completion import Completion
from paceline.engine.engine import Engine
from paceline.engine.parts import EngineParts

__all__ = ["Completion", "Engine", "EngineParts"]
