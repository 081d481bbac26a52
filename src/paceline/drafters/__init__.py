"""Drafters guess the next tokens. Each is a file or a folder here and implements the interface in `protocol`.

Nothing here can change the text: the target's own rule picks every token. `registry` knows all kinds by name.
"""

from paceline.drafters.registry import drafter_names, find_drafter_kind

__all__ = ["drafter_names", "find_drafter_kind"]
