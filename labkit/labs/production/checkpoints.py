"""Checkpoints of a run in plain files: each is whole or is passed over.

A file holds the SHA-256 of what follows, then what ``torch.save`` writes of all parts, of torch's
generators and of the step. It is written beside its place and renamed when it is on the disk, so a
kill leaves the old files as they were. ``resume`` compares the digest before it loads anything.
"""

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch


class CheckpointError(Exception):
    """A whole checkpoint does not fit the run that resumes."""


class Part(Protocol):
    """What has a state: a model, an optimizer, a schedule, a scaler, the order of the data."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> Any: ...


class Checkpoints:
    """Checkpoints of named parts in a folder.

    Args:
        folder: made if it is not there.
        parts: by name. torch's generators, the CPU's and those of CUDA devices, are saved too.
        keep: so many of the newest files stay.

    ``skipped`` lists the damaged files that the last ``resume`` passed over.

    Raises:
        ValueError: keep is below 2: one damaged file would leave nothing.
    """

    def __init__(self, folder: str | Path, parts: Mapping[str, Part], keep: int = 3) -> None:
        if keep < 2:
            raise ValueError(f"keep={keep}: 2 or more, or one damaged file leaves nothing")
        self.folder, self.parts, self.keep = Path(folder), dict(parts), keep
        self.skipped: tuple[Path, ...] = ()
        self.folder.mkdir(parents=True, exist_ok=True)

    def save(self, step: int) -> Path:
        """Write all parts as they are after ``step``, also for a second time; returns the file."""
        state = {
            "step": step,
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "cpu": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all(),
        }
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data, final = buffer.getvalue(), self.folder / f"{step:012}.pt"
        unfinished = final.with_suffix(".unfinished")
        with open(unfinished, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, final)
        for old in self._newest_first()[self.keep :]:
            old.unlink()
        return final

    def resume(self) -> int:
        """Load the newest file that is whole, and return its step; 0 if there is none.

        Raises:
            CheckpointError: that file holds parts of other names.
        """
        skipped: list[Path] = []
        for path in self._newest_first():
            data = path.read_bytes()
            if hashlib.sha256(data[32:]).digest() == data[:32]:
                break
            skipped.append(path)
        else:
            self.skipped = tuple(skipped)
            return 0
        self.skipped = tuple(skipped)
        saved = torch.load(io.BytesIO(data[32:]), weights_only=True)
        if other := saved["parts"].keys() ^ self.parts.keys():
            raise CheckpointError(
                f"{path.name} holds the parts {', '.join(saved['parts'])}, and this run has "
                f"{', '.join(self.parts)}; {min(other)!r} is on one side only"
            )
        for name, part in self.parts.items():
            part.load_state_dict(saved["parts"][name])
        torch.set_rng_state(saved["cpu"])
        if saved["cuda"] and torch.cuda.device_count() == len(saved["cuda"]):
            torch.cuda.set_rng_state_all(saved["cuda"])
        return saved["step"]

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("*.pt"), reverse=True)
