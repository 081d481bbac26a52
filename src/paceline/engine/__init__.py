"""The engine: the scheduler, the step, and the `Engine`, which owns the models, the drafters and the KV memory.

The module `process` runs an `Engine` in its own process.
"""

from paceline.engine.completion import Completion
from paceline.engine.engine import Engine
from paceline.engine.parts import EngineParts

__all__ = ["Completion", "Engine", "EngineParts"]
