"""Seeds that nobody can foretell without the instructor's secret.

A secret is a file of 64 hex digits that only its owner may read. A seed is made of the secret and
of what it is for, so the same submission meets the same inputs whenever it is graded.
"""

import hashlib
import hmac
import os
import secrets
from pathlib import Path


def make_secret(path: Path) -> None:
    """Write a new secret to ``path``; raises FileExistsError where there is one."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(secrets.token_hex(32) + "\n")
    except OSError:  # a full disk: half a secret would stand in the way of the next try
        path.unlink()
        raise


def read_secret(path: Path) -> str:
    """The secret in ``path``; raises FileNotFoundError, with the way out, where it is missing."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing, and without it hidden checks have no seeds. Put it back, or build "
            "the course again for a new one; every submission is then graded on other inputs."
        ) from None


def derive_seed(secret: str | bytes, *what: str) -> int:
    """A whole number below 2**32 for ``what``: HMAC-SHA256 under ``secret``.

    >>> derive_seed("secret", "02_number_formats", "ulp", "ada")
    1509124725
    """
    key = secret.encode() if isinstance(secret, str) else secret
    # numpy's legacy generator takes 32 bits and no more.
    return int.from_bytes(hmac.digest(key, "\0".join(what).encode(), hashlib.sha256)[:4])
