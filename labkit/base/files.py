"""Files written in one step: a reader, or a crash, meets the old file or the new one, whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Put ``content`` into ``path``, text as UTF-8 with its ends of lines as they are.

    With ``durable`` the content is on the disk before the old file goes, so that even a power cut
    leaves one of the two. Raises OSError where the folder is missing or cannot be written; the old
    file then stays as it was.
    """
    with replacing(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file to write bytes to, which takes the place of ``path`` when the block ends.

    For what is too large to be held in memory; the rest is as in ``replace_file``. Where the block
    raises, the old file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
