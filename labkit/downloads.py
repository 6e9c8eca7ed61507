"""``PublishedFile``: a file of the network, complete and unchanged, or what is wrong with it.

This module believes that a file is what its SHA-256 says and nothing else. What has arrived so far
stands beside it as ``<name>.part``; the name itself is given only to what has the right sum, so
that an interrupted download leaves nothing that looks whole. Nothing is fetched unless asked for.
"""

import hashlib
import http.client
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 18
SECONDS_WITHOUT_A_BYTE = 30
NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)


@dataclass(frozen=True)
class PublishedFile:
    """A file at an address, with the size in bytes and the SHA-256 that it was published with."""

    url: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def find(self, folder: Path) -> Path:
        """The file in this folder.

        Raises:
            FileNotFoundError: it is not there.
            ValueError: what has its name there is truncated or another file.
        """
        path = folder / self.name
        if not path.exists():
            raise FileNotFoundError(
                f"{path} is not there. download=True fetches it ({self.size:,} bytes) from "
                f"{self.url}; or put it there yourself."
            )
        wrong = self._wrong(path)
        if wrong:
            raise ValueError(f"{path} {wrong}. Remove it, or let download=True put it aside.")
        return path

    def fetch(self, folder: Path, *, progress: bool = True) -> Path:
        """The file in this folder, downloaded unless it is there already.

        A download that stopped goes on where it stopped, if the server can (HTTP Range). A wrong
        file of that name is not touched but renamed to ``<name>.other``.

        Raises:
            ConnectionError: the server cannot be reached, refuses, or stops half-way.
            ValueError: what arrived is another file. It is deleted.
        """
        path, part = folder / self.name, folder / f"{self.name}.part"
        if path.exists():
            if not self._wrong(path):
                return path
            path.replace(folder / f"{self.name}.other")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self._receive(part, progress)
        except NETWORK as problem:
            raise ConnectionError(
                f"no download from {self.url}: {getattr(problem, 'reason', problem)}. Try again "
                "later, what has arrived is kept; or fetch the file on another machine and put "
                f"it at {path}"
            ) from problem
        wrong = self._wrong(part)
        if wrong:
            part.unlink()
            raise ValueError(
                f"what {self.url} sent {wrong}. It is deleted. Try again, or over another network."
            )
        return part.replace(path)

    def _wrong(self, path: Path) -> str:
        """What is wrong with the file as this one, as the end of a sentence; empty if nothing."""
        size = path.stat().st_size
        if size < self.size:
            return f"has {size:,} of {self.size:,} bytes: it is truncated, or another file"
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != self.sha256:
            return f"has the SHA-256 {actual[:12]}..., not {self.sha256[:12]}...: another file"
        return ""

    def _receive(self, part: Path, progress: bool) -> None:
        """Add to ``part`` what it lacks."""
        have = part.stat().st_size if part.exists() else 0
        if have >= self.size:
            return
        asked = {"Range": f"bytes={have}-"} if have else {}
        request = urllib.request.Request(self.url, headers=asked)
        try:
            response = urllib.request.urlopen(request, timeout=SECONDS_WITHOUT_A_BYTE)
        except urllib.error.HTTPError as refusal:
            refusal.close()
            if not have or refusal.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise
            part.unlink()  # the server's file ends before ours: they are not the same
            return self._receive(part, progress)
        with response:
            # A server without Range sends the whole file.
            self._save(response, part, have if _goes_on(response, have) else 0, progress)

    def _save(
        self, response: http.client.HTTPResponse, part: Path, have: int, progress: bool
    ) -> None:
        from tqdm.auto import tqdm  # looks for a notebook, so not when labkit is imported

        arrived, announced = 0, response.headers.get("Content-Length")
        show = {"desc": self.name, "unit": "B", "unit_scale": True, "disable": not progress}
        with (
            tqdm(initial=have, total=self.size, **show) as bar,
            part.open("ab" if have else "wb") as file,
        ):
            # One byte too many is enough to know that it is another file.
            while have + arrived <= self.size and (chunk := response.read(CHUNK)):
                arrived += file.write(chunk)
                bar.update(len(chunk))
        if announced and arrived < int(announced) and have + arrived < self.size:
            raise ConnectionError(
                f"the connection ended after {have + arrived:,} of {self.size:,} bytes"
            )


def _goes_on(response: http.client.HTTPResponse, have: int) -> bool:
    """Whether the answer is the part of the file that begins after ``have`` bytes."""
    partial = response.status == http.HTTPStatus.PARTIAL_CONTENT
    return partial and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
