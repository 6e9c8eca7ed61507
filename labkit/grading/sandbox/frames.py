"""Frames on a stream: 8 bytes of size, then the content.

Both sides of every pipe of the grader speak this. A reader says how much it takes at most, and
what announces more is refused before anything is allocated.
"""

import struct

_SIZE = struct.Struct("<Q")


class TooLong(Exception):
    """A frame announces more bytes than its reader takes."""


def framed(content: bytes) -> bytes:
    """The content as one frame."""
    return _SIZE.pack(len(content)) + content


class Incoming:
    """Bytes as they arrive, cut into frames of at most ``most`` bytes."""

    def __init__(self, most: int):
        self.most = most
        self.kept = bytearray()

    def feed(self, data: bytes) -> None:
        """Add what arrived; raises ``TooLong`` when the first frame can no longer be taken."""
        self.kept += data
        self._size()

    def frame(self) -> bytes | None:
        """The first frame, taken off, or None while it is incomplete."""
        size = self._size()
        if size is None or len(self.kept) < _SIZE.size + size:
            return None
        content = bytes(self.kept[_SIZE.size : _SIZE.size + size])
        del self.kept[: _SIZE.size + size]
        return content

    def _size(self) -> int | None:
        if len(self.kept) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self.kept)
        if size > self.most:
            raise TooLong(f"a frame of {size:,} bytes; at most {self.most:,} are taken")
        return size


def read_frame(stream, *, most: int) -> bytes:
    """One frame from a binary file that blocks; raises EOFError where the stream ends."""
    (size,) = _SIZE.unpack(_exactly(stream, _SIZE.size))
    if size > most:
        raise TooLong(f"a frame of {size:,} bytes; at most {most:,} are taken")
    return _exactly(stream, size)


def _exactly(stream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = stream.read(size - len(data))
        if not piece:
            raise EOFError("the other side has closed the stream")
        data += piece
    return bytes(data)
