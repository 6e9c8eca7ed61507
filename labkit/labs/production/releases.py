"""Releases: versioned precision configs with their weights, and a staged rollout that a gate ends.

A ``Registry`` is a folder of plain files. For each version it holds the recipe as JSON and the
weights, and one pointer says which version answers which share of the requests:

    v1.json  v1.pt  v2.json  v2.pt  pointer.json

``roll_out`` brings a release from shadow to all requests, stage by stage. Where a guardrail breaks
or the gate says that the release is worse, it takes the release back by itself. Fingerprints find
damaged or exchanged files. They are no signature: who may write the folder may write them as well.
"""

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labkit.base.home import replace_file
from labkit.labs.production.gates import Rule


class Tampered(ValueError):
    """A release whose files are not those that it was made of."""


class RolledBack(RuntimeError):
    """A release that was taken back, with the stage in which it was and the reason."""

    def __init__(self, stage: "Stage", why: str) -> None:
        super().__init__(f"{stage.name}, after {stage.seen:,} of {stage.pairs:,} pairs: {why}")
        self.stage, self.why = stage, why


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version: what it was made of, and what was measured before it went out.

    Args:
        version: "v1", "v2" and so on, in the order of their registration.
        recipe: the precision config, plain JSON: formats, scales, what stays in FP32.
        fingerprint: of the recipe and the weights, see ``fingerprint``.
        evaluated: what was measured on it, such as {"bits": 2.1}.
    """

    version: str
    recipe: Mapping[str, Any]
    fingerprint: str
    evaluated: Mapping[str, float]


def fingerprint(recipe: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of a recipe and of weights: names, dtypes, shapes and bits; hexadecimal.

    The order of the entries does not count. Every bit does: 0.0 and -0.0 differ.

    Raises:
        ValueError: the recipe holds NaN or inf, which JSON has not. TypeError: it is not JSON.

    >>> weights = {"w": torch.ones(2)}
    >>> fingerprint({"format": "bf16"}, weights) == fingerprint({"format": "fp16"}, weights)
    False
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True, allow_nan=False).encode())
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"\n{json.dumps(name)} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Registry:
    """Versions of a model in a folder, and a pointer to those that answer.

    At most one version is a candidate, with a share below 1; the version before it answers the
    rest. Each change of the pointer replaces one small file, so that a reader, or a crash, meets
    the old state or the new one. One process writes at a time.

    Args:
        folder: is made if there is none.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        recipe: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        evaluated: Mapping[str, float],
    ) -> Release:
        """Write a new version; no request reaches it before it is promoted.

        Raises:
            ValueError, TypeError: as ``fingerprint``; nothing was evaluated, or to NaN or inf.
        """
        if not evaluated or not all(map(math.isfinite, evaluated.values())):
            raise ValueError(f"evaluated={evaluated}: give finite numbers, such as {{'bits': 2.1}}")
        release = Release(
            version=f"v{len(self.versions()) + 1}",
            recipe=json.loads(json.dumps(recipe)),  # as it is read again: no tuples
            fingerprint=fingerprint(recipe, weights),
            evaluated={name: float(value) for name, value in evaluated.items()},
        )
        file = io.BytesIO()
        torch.save(dict(weights), file)
        # The JSON comes last: a version whose weights are not written yet does not exist.
        replace_file(self._folder / f"{release.version}.pt", file.getvalue(), durable=True)
        self._write(release.version, asdict(release))
        return release

    def versions(self) -> tuple[str, ...]:
        """All versions, the oldest first."""
        found = (re.fullmatch(r"v(\d+)\.json", path.name) for path in self._folder.iterdir())
        return tuple(f"v{n}" for n in sorted(int(match[1]) for match in found if match))

    def release(self, version: str) -> Release:
        """Read a version's file.

        Raises:
            LookupError: there is no such version. Tampered: the file cannot be read.
        """
        if version not in self.versions():
            raise LookupError(f"no {version} in {self._folder}; it has {self.versions()}")
        return self._read(version, lambda fields: Release(**fields))

    def weights(self, release: Release) -> dict[str, Tensor]:
        """Load a release's weights, which have the bits that were registered with its recipe.

        Raises:
            Tampered: a bit or the recipe differs, or the file cannot be read.
        """
        path = self._folder / f"{release.version}.pt"
        try:
            weights = torch.load(path, weights_only=True)
            found = fingerprint(release.recipe, weights)
        except Exception as error:  # a damaged pickle raises whatever it likes
            raise Tampered(f"{path} cannot be loaded: {error}") from None
        if found != release.fingerprint:
            raise Tampered(
                f"{path} and the recipe {dict(release.recipe)} are not what {release.version} was "
                f"made of: SHA-256 {found[:12]}, registered {release.fingerprint[:12]}. Do not "
                "serve it, and add a changed recipe as a new version."
            )
        return weights

    def promote(self, release: Release, share: float = 1.0) -> None:
        """Give a release this share of the requests; 0 is shadow, 1 makes it the current one.

        Raises:
            ValueError: a share outside 0 to 1; another candidate is on its way; there is no current
                release yet that could answer the rest.
            Tampered: the files are not those of the release.
            LookupError: there is no such version, or it was rolled back: add a new one.
        """
        version = release.version
        if not 0 <= share <= 1:
            raise ValueError(f"share={share}: a part of the requests, from 0 to 1")
        if why := self.rolled_back().get(version):
            raise LookupError(f"{version} was rolled back ({why}): add a new version")
        if self.release(version) != release:
            raise Tampered(f"{version} of {self._folder} is another release than this one")
        self.weights(release)
        serving = [[other, part] for other, part in self._pointer()["serving"] if other != version]
        if any(part < 1 for _, part in serving):
            raise ValueError(f"{serving[-1][0]} is a candidate already: finish its rollout first")
        if not serving and share < 1:
            raise ValueError(f"share={share}: no release answers the rest; promote one fully first")
        self._write("pointer", self._pointer() | {"serving": [*serving, [version, float(share)]]})

    def rollback(self, why: str) -> Release:
        """Take the newest promoted release back for good; returns the one that answers now.

        Raises:
            LookupError: no release came before it.
        """
        *before, newest = self._pointer()["serving"] or [None]
        if not before:
            raise LookupError(f"{self._folder}: there is no release before to go back to")
        rolled_back = self.rolled_back() | {newest[0]: why}
        self._write("pointer", {"serving": before, "rolled_back": rolled_back})
        return self.current()

    def current(self) -> Release:
        """The newest release that was promoted fully.

        Raises:
            LookupError: none was. Tampered: as ``release``.
        """
        full = [version for version, share in self._pointer()["serving"] if share == 1]
        if not full:
            raise LookupError(f"{self._folder}: no release was promoted yet")
        return self.release(full[-1])

    def shares(self) -> dict[str, float]:
        """Which version answers which share of the requests now, as a router reads it."""
        if not (serving := self._pointer()["serving"]):
            return {}
        current, (version, share) = self.current().version, serving[-1]
        return {current: 1.0} if share == 1 else {current: 1 - share, version: share}

    def rolled_back(self) -> dict[str, str]:
        """Each version that was rolled back, and why."""
        return self._pointer()["rolled_back"]

    def _pointer(self) -> dict[str, Any]:
        """Who answers: versions with their share, the newest last; and who may not."""
        if not (self._folder / "pointer.json").exists():
            return {"serving": [], "rolled_back": {}}
        return self._read(
            "pointer",
            lambda kept: {
                "serving": [(str(version), float(share)) for version, share in kept["serving"]],
                "rolled_back": dict(kept["rolled_back"]),
            },
        )

    def _read(self, name: str, made: Any) -> Any:
        path = self._folder / f"{name}.json"
        try:
            return made(json.loads(path.read_bytes()))
        except (ValueError, TypeError, KeyError) as error:
            raise Tampered(f"{path} is damaged: {error}") from None

    def _write(self, name: str, entries: Mapping[str, Any]) -> None:
        text = json.dumps(entries, indent=1) + "\n"
        replace_file(self._folder / f"{name}.json", text, durable=True)


# A staged rollout


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a rollout.

    A request is compared where both models answer it: in shadow the candidate gets a copy of each,
    and later the reference gets a copy of those that the candidate answers.

    Args:
        name: for people.
        share: of the requests that the candidate answers; 0 in shadow.
        pairs: requests that must be compared before the next stage.
        seen: how many have been.
    """

    name: str
    share: float
    pairs: int
    seen: int = 0


@dataclass(frozen=True, kw_only=True)
class Window:
    """What was seen since the last look.

    Args:
        pairs: of each compared request, whether the reference and the candidate were right.
        guardrails: what must hold of the candidate whoever is right ("finite logits"): name ->
            does it hold.
    """

    pairs: Iterable[tuple[bool, bool]]
    guardrails: Mapping[str, bool] = field(default_factory=dict)


def stages(*, shadow: int, live: int) -> tuple[Stage, ...]:
    """Shadow for so many requests, then 1, 10, 50 and 100 % of ``live`` requests each.

    Args:
        shadow: requests; 0 leaves the stage out.
        live: requests of each later stage, all of them, of which the candidate's are compared; a
            multiple of 100.

    Raises:
        ValueError: a negative number, or ``live`` is no multiple of 100.

    >>> [(stage.name, stage.pairs) for stage in stages(shadow=2000, live=500)]
    [('shadow', 2000), ('1 %', 5), ('10 %', 50), ('50 %', 250), ('100 %', 500)]
    """
    if shadow < 0 or live < 100 or live % 100:
        raise ValueError(f"shadow={shadow}, live={live}: at least 0, and a multiple of 100")
    silent = (Stage(name="shadow", share=0.0, pairs=shadow),) if shadow else ()
    return silent + tuple(
        Stage(name=f"{percent} %", share=percent / 100, pairs=live * percent // 100)
        for percent in (1, 10, 50, 100)
    )


def advance(plan: tuple[Stage, ...], gate: Rule, window: Window) -> tuple[Stage, ...]:
    """Show a window to the gate; returns the stages that are left, the running one first.

    Guardrails are looked at first: they need no comparison. A window's pairs belong to the running
    stage and to those after it, in their order. () means that the last stage is over.

    Raises:
        RolledBack: a guardrail does not hold, or the gate says so.
    """
    broken = [name for name, holds in window.guardrails.items() if not holds]
    if broken and plan:
        raise RolledBack(plan[0], f"guardrail {', '.join(broken)}")
    for reference_right, candidate_right in window.pairs:
        if not plan:
            break
        stage = replace(plan[0], seen=plan[0].seen + 1)
        if gate.see(reference_right, candidate_right):
            raise RolledBack(stage, "the gate: worse than the reference")
        plan = (stage, *plan[1:]) if stage.seen < stage.pairs else plan[1:]
    return plan


def roll_out(
    registry: Registry,
    release: Release,
    *,
    plan: tuple[Stage, ...],
    gate: Rule,
    traffic: Iterable[Window],
) -> Release:
    """Promote a release stage by stage, or take it back by rule; returns the current release.

    Where the traffic ends first, the release stays a candidate with the share of its stage.

    Raises:
        RolledBack, Tampered: after the registry went back to the release before.
        ValueError, LookupError, Tampered: as ``Registry.promote``; nothing was promoted.
    """
    share = plan[0].share
    registry.promote(release, share)
    try:
        for window in traffic:
            plan = advance(plan, gate, window)
            if not plan:
                break
            if plan[0].share != share:
                share = plan[0].share
                registry.promote(release, share)
    except (RolledBack, Tampered) as error:
        registry.rollback(str(error))
        raise
    return registry.current()
