"""Files written in one step: a reader, or a crash, meets the old file or the new one, whole."""

import os
from pathlib import Path


def replace_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Put ``content`` into ``path``, text as UTF-8 with its ends of lines as they are.

    With ``durable`` the content is on the disk before the old file goes, so that even a power cut
    leaves one of the two. Raises OSError where the folder is missing or cannot be written; the old
    file then stays as it was.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
