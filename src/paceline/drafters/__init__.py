"""Drafters guess the next tokens; each is a file or a folder here, behind the interface of `protocol`.

Nothing here can change the text: the target's own rule picks every token.
"""

from paceline.drafters.protocol import Drafter

__all__ = ["Drafter"]
