"""Four parts of a model in 16 bits beside float64, with the repairs that model files make.

The parts are one query's attention, rotary angles, a head's probabilities and a mean over tokens.
Each has a setting that grows and runs under ``emulate_gpu()``; ``PARTS`` names them.
"""

import math
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.emulation import emulate_gpu

LIMIT = 0.005
"""A relative error above it is too large."""

PASSING = 0.1
"""Below it, too little of the gradient passes the softmax and the cap."""

VALUES = 16
"""Values that are drawn: keys, classes, pairs of a head, channels."""

ATTENTION_CAP, HEAD_CAP = 50.0, 30.0  # Gemma 2's, arXiv:2408.00118
_WIDTH = 64  # of a head


@dataclass(frozen=True, kw_only=True)
class PartRun:
    """What a part computed, beside float64 of the same function on the same inputs."""

    exact: Tensor  # float64, VALUES of them
    computed: Tensor
    wide: bool  # whether ``held`` is float32
    held: float  # the largest magnitude that was held on the way
    apart: float  # a difference of values of that size, which must survive
    passes: float | None = None  # of the gradient, through softmax and cap
    passes_exact: float | None = None  # the same in float64

    @property
    def broken(self) -> int:
        """How many values are inf or NaN."""
        return int((~self.computed.isfinite()).sum())

    @property
    def error(self) -> float:
        """The relative error, by norms; NaN where a value is inf or NaN."""
        if self.broken:
            return math.nan
        return ((self.computed - self.exact).norm() / self.exact.norm()).item()

    @property
    def holds(self) -> bool:
        """Whether the error is small enough and a gradient passes."""
        return self.error <= LIMIT and (self.passes is None or self.passes >= PASSING)


@contextmanager
def _autocast(dtype: torch.dtype, repairs: Set[str]) -> Iterator[None]:
    with emulate_gpu(), torch.autocast("cpu", dtype=dtype, enabled="before" not in repairs):
        yield


def _bf16(x: Tensor) -> Tensor:
    """Rounded once, so that BF16, FP16 and float64 begin with the same numbers."""
    return x.to(torch.bfloat16).float()


# ---------------------------------------------------------------- attention


@cache
def _query_and_keys() -> tuple[Tensor, Tensor]:
    """A query (1, 64) and keys (16, 64): the largest score is 1, the second largest 0.996."""
    generator = torch.Generator().manual_seed(0)
    direction = F.normalize(torch.randn(1, _WIDTH, generator=generator))
    scores = torch.cat([torch.tensor([1, 0.996]), torch.linspace(0.85, -0.6, VALUES - 2)])
    cosines = 0.6 * scores[torch.randperm(VALUES, generator=generator)][:, None]
    across = torch.randn(VALUES, _WIDTH, generator=generator)
    across = F.normalize(across - (across @ direction.T) * direction)
    keys = cosines * direction + (1 - cosines**2).sqrt() * across
    return _bf16(math.sqrt(_WIDTH) * direction), _bf16(keys / 0.6)


def _attend(q: Tensor, k: Tensor, repairs: Set[str]) -> tuple[Tensor, Tensor]:
    """The weights of one query (16,) and its scores before the cap (16,)."""
    values = torch.eye(VALUES, _WIDTH, dtype=k.dtype)  # so that the output is the weights
    if "qk_norm" in repairs:
        q, k = (F.rms_norm(x, (_WIDTH,), eps=1e-6) for x in (q, k))
    scores = q @ k.mT / math.sqrt(_WIDTH)
    if "fused" in repairs:
        out = F.scaled_dot_product_attention(q[None, None], k[None, None], values[None, None])[0, 0]
    else:
        capped = _capped(scores, ATTENTION_CAP if "cap" in repairs else None)
        out = capped.softmax(-1) @ values
    return out[0, :VALUES], scores[0]


def _attention(level: int, dtype: torch.dtype, repairs: Set[str]) -> PartRun:
    query, keys = _query_and_keys()
    q, k = query * 2.0 ** (level - level // 2), keys * 2.0 ** (level // 2)
    exact, true = _attend(q.double(), k.double(), repairs - {"fused"})
    wide = "before" in repairs
    if not wide:
        q, k = q.to(dtype), k.to(dtype)
    with _autocast(dtype, repairs):
        computed, scores = _attend(q, k, repairs)
    if "fused" in repairs:  # the kernel keeps its scores in float32
        scores, wide = true.float(), True
    cap = ATTENTION_CAP if "cap" in repairs else None
    return _softmaxed(exact, computed, true=true, scores=scores, cap=cap, wide=wide)


# ---------------------------------------------------------------- the head


@cache
def _head() -> tuple[Tensor, Tensor]:
    """A hidden state (1, 64) and a head's weight (16, 64)."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(1, _WIDTH, generator=generator)
    return _bf16(hidden), _bf16(torch.randn(VALUES, _WIDTH, generator=generator) / 8)


def _logits(level: int, dtype: torch.dtype, repairs: Set[str]) -> PartRun:
    hidden, weight = _head()
    offset = torch.full((VALUES,), 2.0**level)
    cap = HEAD_CAP if "cap" in repairs else None
    true = F.linear(hidden.double(), weight.double(), offset.double())[0]
    exact = _capped(true, cap).softmax(-1)
    wide = "before" in repairs
    with _autocast(dtype, repairs):
        logits = F.linear(hidden, weight, offset)[0]
        if "after" in repairs:
            logits = logits.float()
        computed = _capped(logits, cap).softmax(-1)
    return _softmaxed(exact, computed, true=true, scores=logits, cap=cap, wide=wide)


def _capped(scores: Tensor, cap: float | None) -> Tensor:
    return scores if cap is None else cap * torch.tanh(scores / cap)


def _softmaxed(
    exact: Tensor, computed: Tensor, *, true: Tensor, scores: Tensor, cap: float | None, wide: bool
) -> PartRun:
    first, second = true.topk(2).values.tolist()
    return PartRun(
        exact=exact,
        computed=computed.double(),
        wide=wide,
        held=scores.abs().max().item(),
        apart=first - second,
        passes=_passes(computed, scores, cap),
        passes_exact=_passes(exact, true, cap),
    )


def _passes(weights: Tensor, scores: Tensor, cap: float | None) -> float:
    """The sum of p (1 - p), times the cap's slope, which autograd takes from the stored tanh."""
    p = weights.double()
    slope = 1.0 if cap is None else 1 - torch.tanh(scores / cap).double() ** 2
    return (p * (1 - p) * slope).sum().item()


# ---------------------------------------------------------------- angles and means


def _angles(level: int, dtype: torch.dtype, repairs: Set[str]) -> PartRun:
    positions = torch.tensor([2**level + 1])
    even = torch.arange(0, 2 * VALUES, 2) / (2 * VALUES)
    inverse = 10000.0**-even
    exact = (positions.double() * 10000.0 ** -even.double()).cos()
    with _autocast(dtype, repairs):
        angles = (positions.float()[:, None] @ inverse[None])[0]
        if "after" in repairs:
            angles = angles.float()
        computed = angles.cos().double()
    return PartRun(
        exact=exact,
        computed=computed,
        wide="before" in repairs,
        held=angles.abs().max().item(),
        apart=2 * math.pi,
    )


@cache
def _tokens() -> Tensor:
    """Hidden states (16385, 16), whose channels have means from 24 to 54."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2**14 + 1, VALUES, generator=generator)
    return _bf16(torch.arange(24.0, 24 + 2 * VALUES, 2) + 4 * noise)


def _mean(level: int, dtype: torch.dtype, repairs: Set[str]) -> PartRun:
    tokens = _tokens()[: 2**level + 1]
    mask = torch.ones(len(tokens))
    total = tokens.double().sum(0)
    wide = "before" in repairs
    with emulate_gpu():  # no autocast, whose list has sum in float32: a model after .half()
        hidden = tokens if wide else tokens.to(dtype)
        sums = hidden.sum(0)
        computed = sums / mask.to(hidden.dtype).sum()
    return PartRun(
        exact=total / len(tokens),
        computed=computed.double(),
        wide=wide,
        held=sums.max().item(),
        apart=(total.max() / len(tokens)).item(),
    )


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """A part of a model: what is set, what can be repaired, and the words for both."""

    title: str
    dial: str
    levels: range  # exponents of 2
    more: int = 0  # added to the power of 2
    start: int
    repairs: dict[str, str]
    run: Callable[[int, torch.dtype, Set[str]], PartRun]  # of level, 16-bit dtype, repairs
    values: str  # what is drawn
    signed: bool = False  # whether bars go both ways
    held: str
    overflow: str = ""  # what overflows where ``held`` is inf
    apart: str
    goal: tuple[int, str]  # at this level or a higher one, in this format


PARTS = {
    "attention": ModelPart(
        title="attention",
        dial="Largest score before repairs",
        levels=range(15),
        start=2,
        repairs={
            "qk_norm": "QK-norm",
            "fused": "fused attention",
            "cap": "soft cap at 50",
            "before": "float32 matmul",
        },
        run=_attention,
        values="weights of 16 keys",
        held="largest score",
        overflow="q @ k.mT, 8 times the scores, overflows",
        apart="the two largest scores differ by",
        goal=(12, "BF16"),
    ),
    "angles": ModelPart(
        title="rotary angles",
        dial="Position",
        levels=range(18),
        start=3,
        repairs={"after": ".float() on the angles", "before": "float32 matmul"},
        run=_angles,
        values="cosines of 16 pairs",
        held="largest angle",
        overflow="The position overflows",
        apart="a full turn is",
        goal=(16, "BF16"),
        signed=True,
        more=1,
    ),
    "logits": ModelPart(
        title="logits of the head",
        dial="Offset of all logits",
        levels=range(10),
        start=0,
        repairs={
            "cap": "soft cap at 30",
            "after": ".float() on the logits",
            "before": "float32 matmul",
        },
        run=_logits,
        values="probabilities of 16 classes",
        held="largest logit",
        apart="the two largest logits differ by",
        goal=(8, "BF16"),
    ),
    "mean": ModelPart(
        title="mean over tokens",
        dial="Tokens",
        levels=range(4, 15),
        start=4,
        repairs={"after": ".float() on the mean", "before": ".float() on the tokens"},
        run=_mean,
        values="means of 16 channels",
        held="largest sum",
        overflow="The largest sum overflows",
        apart="one token adds about",
        goal=(12, "FP16"),
        more=1,
    ),
}
