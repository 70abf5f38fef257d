"""API keys: made, and compared in a time that tells nothing."""

from __future__ import annotations

import hashlib
import hmac
import secrets


def new_key() -> str:
    """A key with 256 bits of randomness."""
    return f"sk-{secrets.token_urlsafe(32)}"


def accepts(authorization: str, key: str) -> bool:
    """Whether an Authorization header carries the key. Hashes are compared, so the length tells nothing either."""
    scheme, _, given = authorization.partition(" ")
    same = hmac.compare_digest(_digest(given.strip()), _digest(key))
    return same and scheme.lower() == "bearer"


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
