"""Old copies of the labs import this name, which is labkit.labs now: they are told what to do."""

from labkit.base.manifest import OLDER_COPY

raise ImportError(OLDER_COPY)
