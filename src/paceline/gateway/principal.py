"""`Principal`: who calls. Every front finds it from the same credentials in the same way."""

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
    """A caller. Drafts and cached prefixes of one `tenant`, a hash of its key, never come from another's texts; all
    calls without a key are of the tenant "". The key itself is kept nowhere."""

    tenant: str = ""
    role: Role = Role.USE


def principal_of(authorization: str | None, api_key: str | None) -> Principal:
    """Returns the caller with these values of the headers `Authorization` and `x-api-key`.

    The same key means the same tenant in either header. With both, `Authorization` counts, unless its key is empty.
    """
    scheme, _, token = (authorization or "").strip().partition(" ")
    key = token.strip() if scheme.lower() == _BEARER else authorization
    return Principal(_tenant_of(key or api_key or ""))


def _tenant_of(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=_DIGEST_SIZE_BYTES).hexdigest() if key else ""
