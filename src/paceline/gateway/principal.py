"""`Principal`: the caller of a request. Every front derives it from the same credentials in the same way."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass

_DIGEST_SIZE_BYTES = 16
_BEARER = "bearer"


class Role(enum.StrEnum):
    """What a caller may do: use the models, or also administer the server."""

    USE = "use"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. `tenant` is a hash of the caller's key, or "" for all calls without a key; the key itself is not kept.

    Drafts and cached prefixes for one tenant never come from the texts of another.
    """

    tenant: str = ""
    role: Role = Role.USE


def principal_of(authorization: str | None, api_key: str | None) -> Principal:
    """Returns the caller that the headers `Authorization` and `x-api-key` identify.

    The same key gives the same tenant in either header. If both are sent, `Authorization` counts, unless its key is
    empty.
    """
    scheme, _, token = (authorization or "").strip().partition(" ")
    key = token.strip() if scheme.lower() == _BEARER else authorization
    return Principal(_tenant_of(key or api_key or ""))


def _tenant_of(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST_SIZE_BYTES).hexdigest() if key else ""
