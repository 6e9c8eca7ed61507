"""Formats for training and for serving, by rules over requirements, and the record of a decision.

``decide`` names the rule behind each answer and the requirements that conflict. A ``Record``
passes five states, each with its own evidence; what it says of itself follows from the evidence.
"""

from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal, get_args

from pydantic import ConfigDict, PositiveFloat, PositiveInt, TypeAdapter

from labkit.devices import Device
from labkit.devices import recommend as recipe_for
from labkit.measuring import Verdict, verdict

Word = Literal["equivalent", "better", "worse", "inconclusive"]
Format = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"]
GOOD = ("equivalent", "better")
TRAINED = "as it was trained"
BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
"""Bytes a weight in each format that may be served, without scales."""
FEWEST = 5
"""Seeds, or pairs of seeds, below which a result is no evidence."""


# Rules


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a model needs, and what has been measured of it.

    Args:
        parameters: of the model.
        serving_bytes: memory for the weights where it is served.
        training_evidence: by format, lab 06's word on training in it beside FP32.
        serving_evidence: by format, the word on serving the weights in it beside FP32.
        token_seconds: the time that a token may take at batch 1; None where it does not matter.
        bandwidth: of the memory, bytes/s; needed with ``token_seconds``.
    """

    __pydantic_config__ = ConfigDict(
        extra="forbid", allow_inf_nan=False, revalidate_instances="always"
    )

    parameters: PositiveInt
    serving_bytes: PositiveFloat
    training_evidence: dict[Format, Word]
    serving_evidence: dict[Format, Word]
    token_seconds: PositiveFloat | None = None
    bandwidth: PositiveFloat | None = None

    def trouble(self, fmt: str) -> str:
        """Why a format does not fit the memory or the time, in a phrase; empty if it does."""
        size = BYTES[fmt] * self.parameters
        if size > self.serving_bytes:
            return f"{size / 1e9:.3g} GB of weights, {self.serving_bytes / 1e9:.3g} GB allowed"
        # At batch 1 each token reads all weights once.
        if self.token_seconds and (least := size / self.bandwidth) > self.token_seconds:
            allowed = 1e3 * self.token_seconds
            return f"{1e3 * least:.3g} ms to read the weights, {allowed:.3g} ms a token allowed"
        return ""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to train in and what to serve.

    Args:
        training: "bf16", "fp16" or "fp32".
        scaler: does the loss need a scale?
        serving: a format of ``BYTES``, or None where none has both the room and the evidence.
        quantize: does serving take fewer than 16 bits a weight?
        rules: what fired, a sentence each, training before serving.
        conflicts: requirements that cannot be met together, a sentence each.
    """

    training: str
    scaler: bool
    serving: str | None
    quantize: bool
    rules: tuple[str, ...]
    conflicts: tuple[str, ...]


def decide(requirements: Requirements | dict[str, object], device: Device) -> Decision:
    """Decide the format of training and that of serving, each by its own rules.

    Training: the recipe of the device, unless its training evidence is "worse"; then the next
    accelerated one, then FP32. Serving: the widest format, from the training format's bytes down,
    that has room, is fast enough, and has serving evidence of "equivalent" or "better". The
    training format needs none, but is passed over where its evidence is another.

    Raises:
        ValueError: a field is missing, unknown or not as described; the message names it.
    """
    need = TypeAdapter(Requirements).validate_python(requirements)
    if need.token_seconds and not need.bandwidth:
        raise ValueError("bandwidth is missing: token_seconds needs the bytes/s of the memory")
    rules: list[str] = []
    conflicts: list[str] = []
    training = _training(need, device, rules, conflicts)
    serving = _serving(need, device, training, rules, conflicts)
    return Decision(
        training=training,
        scaler=training == "fp16",
        serving=serving,
        quantize=serving is not None and BYTES[serving] < 2,
        rules=tuple(rules),
        conflicts=tuple(conflicts),
    )


def _training(need: Requirements, device: Device, rules: list[str], conflicts: list[str]) -> str:
    recipe = recipe_for(device).dtype
    fast = [f for f in ("bf16", "fp16") if recipe != "fp32" and device.dtypes[f].accelerated.answer]
    refused = [f for f in fast if need.training_evidence.get(f) == "worse"]
    training = next((f for f in fast if f not in refused), "fp32")
    for fmt in refused:
        rules.append(f"training: not {fmt}, its evidence is worse than FP32")
    if refused and training == "fp32":
        conflicts.append(
            f"{device.name} accelerates {', '.join(fast)}, which trained worse than FP32: training "
            "in FP32 takes longer"
        )
    if training == "fp32":
        left = "left" if refused else "recommended"
        rules.append(f"training: fp32, no 16-bit format is {left} on {device.name}")
    else:
        word = need.training_evidence.get(training, "no evidence yet")
        rules.append(f"training: {training}, accelerated on {device.name} ({word})")
    return training


def _serving(
    need: Requirements, device: Device, training: str, rules: list[str], conflicts: list[str]
) -> str | None:
    reasons = []
    for fmt in sorted(BYTES, key=lambda f: (-BYTES[f], f != training)):
        if BYTES[fmt] > BYTES[training] or not _runs(fmt, device):
            continue
        word = need.serving_evidence.get(fmt, TRAINED if fmt == training else "no evidence")
        if (trouble := need.trouble(fmt)) or word not in (*GOOD, TRAINED):
            reasons.append(f"{fmt}: {trouble or word}")
            continue
        rules += [f"serving: not {reason}" for reason in reasons]
        rules.append(f"serving: {fmt} has the room and the evidence ({word})")
        return fmt
    conflicts.append(f"no format serves this model: {'; '.join(reasons)}")
    return None


def _runs(fmt: str, device: Device) -> bool:
    if fmt in ("int8", "int4"):  # the weights alone; they are multiplied out before the matmul
        return True
    support = device.dtypes[fmt]
    return bool(support.accelerated.answer if fmt == "fp8" else support.computable.answer)


# The record

State = Literal["baseline", "precision", "mixed", "tuned", "validated"]
STATES: tuple[State, ...] = get_args(State)


class EvidenceMissing(ValueError):
    """A record was to enter a state without the evidence that it needs."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Paired differences against a margin named beforehand; above 0 is better."""

    differences: tuple[float, ...]
    margin: float
    control: tuple[float, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Lab 06's, computed from the differences each time."""
        return verdict(self.differences, self.margin, control=self.control)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What lets a record enter a state.

    Args:
        what: was measured or chosen, on which data and device.
        results: FP32's, one a seed, for "baseline".
        reasons: the rules of the choice, for "precision".
        comparison: "mixed" beside FP32, "tuned" beside "mixed", and "validated" beside FP32 on data
            that no choice was made on.
    """

    what: str
    results: tuple[float, ...] = ()
    reasons: tuple[str, ...] = ()
    comparison: Comparison | None = None

    def lacks(self, state: State) -> str:
        """What is missing for a state, in a phrase; empty if nothing is."""
        if not self.what.strip():
            return "what was measured or chosen"
        if state == "baseline":
            enough = len(self.results) >= FEWEST and all(map(isfinite, self.results))
            return "" if enough else f"finite FP32 results of {FEWEST} seeds"
        if state == "precision":
            return "" if any(map(str.strip, self.reasons)) else "the rules of the choice"
        if self.comparison is None or len(self.comparison.differences) < FEWEST:
            return f"a comparison of {FEWEST} pairs or more"
        answer = self.comparison.verdict.answer
        return "" if answer in GOOD else f'a verdict that is not "{answer}"'


@dataclass(frozen=True, kw_only=True)
class Record:
    """A decision and the evidence so far, a piece for each state of ``STATES`` in its order.

    Raises:
        EvidenceMissing: a piece does not carry what its state needs.
    """

    title: str
    evidence: tuple[Evidence, ...] = ()

    def __post_init__(self) -> None:
        if len(self.evidence) > len(STATES):
            raise ValueError(f"{len(self.evidence)} pieces of evidence for {len(STATES)} states")
        for state, piece in zip(STATES, self.evidence, strict=False):
            if lacking := piece.lacks(state):
                raise EvidenceMissing(f'"{state}" needs {lacking}')

    @property
    def state(self) -> State | None:
        """The last state that has evidence; None at the start."""
        return STATES[len(self.evidence) - 1] if self.evidence else None

    def advance(self, evidence: Evidence) -> "Record":
        """The record in the next state.

        Raises:
            EvidenceMissing: the evidence is not what this state needs.
            ValueError: the record is validated already.
        """
        return replace(self, evidence=(*self.evidence, evidence))

    def describe(self) -> str:
        """The title and a line for each state that was reached."""
        lines = [self.title]
        for state, piece in zip(STATES, self.evidence, strict=False):
            found = f": {piece.comparison.verdict.describe()}" if piece.comparison else ""
            lines.append(f"{state}: {'; '.join((piece.what, *piece.reasons))}{found}")
        return "\n".join(lines)

    def to_json(self) -> str:
        """The record as JSON, for a file beside the code."""
        return TypeAdapter(Record).dump_json(self, indent=2).decode()
