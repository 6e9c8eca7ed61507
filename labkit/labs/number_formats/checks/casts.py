"""Checks of lab 02: what a cast loses, and the error of the rest."""

import math

import torch

from labkit.labs.engine import Mistake, attempt, check, number, several
from labkit.training.data import digits_mlp

LAB = "02_number_formats"

LOST = "`{call}`: lost is {got}; {lost} of {count} non-zero values become 0, that is {want}. {why}"
IN_PERCENT = "Yours is in percent: a share from 0 to 1 is asked for."
A_COUNT = "Yours is the count: a share of the non-zero values is asked for."
THE_SURVIVORS = "Yours is the share that survives."
OF_ALL = "Yours is their share of all {count} values: divide by the number of non-zero ones."
SWAPPED = "Your second value is that share: return lost first, then the error."
ERROR = "`{call}`: the survivors' median relative error is {want}, yours is {got}. {why}"
NO_ERROR = (
    "A median of 0 has two usual reasons. Either errors of both signs cancel: take the magnitude. "
    "Or x was cast as well before the subtraction: subtract the float32 x."
)
SIGNED = "Yours is the median of signed errors, in which both signs cancel: take the magnitude."
THE_MEAN = "Yours is the mean: the median is asked for."
THE_LARGEST = "Yours is the largest error: the median is asked for."
OF_THE_CAST = "You divide by the value after the cast: the error relative to x is asked for."


# Lost values and rounding error


def _edges() -> torch.Tensor:
    """Values at the edges of both 16-bit formats, zeros among them."""
    powers = 2.0 ** torch.arange(-30, -8).float()
    edges = [0.0, -0.0, 2.0**-25, 1.01 * 2.0**-25, -(2.0**-24), 1.0, 3.0, 1000.1, 0.1, 7e-5]
    below_bf16 = [1e-41, -2e-41, 3e-41]
    return torch.cat([powers * 1.3, -powers, torch.tensor(edges + below_bf16), torch.zeros(25)])


_WINDOW_DTYPES = (torch.float16, torch.bfloat16)


def _windows(seed):
    """Edge values, recorded gradients, and 500 values that are drawn over 40 octaves."""
    generator = torch.Generator().manual_seed(seed)
    octaves = torch.randint(-36, 4, (500,), generator=generator)
    drawn = torch.ldexp(torch.randn(500, generator=generator), octaves)
    return {"edges": _edges(), "gradients": digits_mlp()["gradients"], "drawn": drawn}


def run_window(window, seed):
    """`window` on three tensors, in both 16-bit formats."""
    return {
        name: [attempt(window, tensor.clone(), dtype) for dtype in _WINDOW_DTYPES]
        for name, tensor in _windows(seed).items()
    }


@check(run_window, own_work=("labkit.formats.histograms.range_report",))
def check_window(answers, seed):
    """The share lost and the error of the survivors, in FP16 and in BF16."""
    for name, values in _windows(seed).items():
        for dtype, got in zip(_WINDOW_DTYPES, answers[name], strict=True):
            _judge_window(
                got, values, dtype, call=f"window({name}, {str(dtype).removeprefix('torch.')})"
            )


def _judge_window(got, values, dtype, *, call):
    lost, error = several(got, 2, call=call)
    lost, error = number(lost, call=call + "[0]"), number(error, call=call + "[1]")
    share, ideas = _shares(values, dtype)
    # A share of at most 8,191 values, rounded once to float32: 2**-23 is ample.
    if not abs(lost - share) <= 2.0**-23:
        count = int((values != 0).sum())
        raise Mistake(
            LOST,
            call=call,
            got=lost,
            lost=round(share * count),
            count=count,
            want=share,
            why=_why_lost(lost, error, share, count=count, total=values.numel()),
            misconception=_only(idea for idea, one in ideas.items() if abs(lost - one) < 1e-6),
        )
    low, high, ideas, others = _errors(values, dtype)
    if not _within(error, low, high):
        raise Mistake(
            ERROR,
            call=call,
            got=error,
            want=low,
            why=_only(said for said, bounds in others.items() if _is_near(error, *bounds))
            or ("" if error else NO_ERROR),
            misconception=_only(i for i, bounds in ideas.items() if _is_near(error, *bounds)),
            search=error != 0,
        )


def _why_lost(lost, error, share, *, count, total):
    """Another number that is as natural to return, if it came."""
    others = {
        IN_PERCENT: (lost, 100 * share),
        A_COUNT: (lost, count * share),
        THE_SURVIVORS: (lost, 1 - share),
        OF_ALL.format(count=total): (lost, share * count / total),
        SWAPPED: (error, share),
    }
    return (
        _only(said for said, (got, want) in others.items() if math.isclose(got, want, rel_tol=1e-5))
        or ""
    )


def _only(ideas) -> str | None:
    """The idea that fits, if it is the only one."""
    ideas = list(ideas)
    return ideas[0] if len(ideas) == 1 else None


def _within(error: float, low: float, high: float) -> bool:
    """Between the middle values, with the slack of a quotient, or of a ratio - 1, in float32."""
    return low * (1 - 1e-6) - 2.0**-23 <= error <= high * (1 + 1e-6) + 2.0**-23


def _is_near(error: float, low: float, high: float) -> bool:
    """Between the middle values of another rule; of no use where these are 0."""
    low, high = sorted((low, high))
    return high != 0 and low - 1e-4 * abs(low) <= error <= high + 1e-4 * abs(high)


def _shares(x: torch.Tensor, dtype: torch.dtype) -> tuple[float, dict[str, float]]:
    """The share lost in the cast, and what it would be under wrong ideas."""
    info, other = torch.finfo(dtype), torch.bfloat16 if dtype == torch.float16 else torch.float16
    present = x != 0

    def share(gone):
        return gone[present].double().mean().item()

    return share(x.to(dtype) == 0), {
        "lost-means-below-normal": share(x.abs() < info.smallest_normal),
        "lost-means-below-smallest": share(x.abs().double() < info.smallest_normal * info.eps),
        "zeros-count-as-lost": (x.to(dtype) == 0).double().mean().item(),
        "fp16-and-bf16-lose-alike": share(x.to(other) == 0),
    }


def _errors(x: torch.Tensor, dtype: torch.dtype) -> tuple[float, float, dict, dict]:
    """The two middle relative errors of the survivors, and where wrong ideas would put them."""
    before = x[x != 0].double()
    after = before.float().to(dtype).double()
    kept, gap = after != 0, (after - before).abs()
    relative = (gap / before.abs())[kept]
    ideas = {
        "range-and-rounding-are-one-error": _middle(gap / before.abs()),
        "error-is-absolute": _middle(gap[kept]),
    }
    others = {
        SIGNED: _middle(((after - before) / before)[kept]),
        THE_MEAN: (relative.mean().item(),) * 2,
        THE_LARGEST: (relative.max().item(),) * 2,
        OF_THE_CAST: _middle((gap / after.abs())[kept]),
    }
    return *_middle(relative), ideas, others


def _middle(values: torch.Tensor) -> tuple[float, float]:
    ordered = values.sort().values
    return ordered[(len(ordered) - 1) // 2].item(), ordered[len(ordered) // 2].item()


check_window.slip(
    "lost-means-below-normal",
    "You count every value below the smallest normal one, where subnormals begin. Which of them "
    "does the cast make 0?",
    swap=("(~kept)", "(x.abs() < torch.finfo(dtype).smallest_normal)"),
)
check_window.slip(
    "lost-means-below-smallest",
    "You count every value below the smallest positive one of the format. To which value is 0.51 "
    "times the smallest positive one rounded?",
    swap=(
        "(~kept)",
        "(x.abs().double() < torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps)",
    ),
)
check_window.slip(
    "zeros-count-as-lost",
    "Some inputs are 0 before the cast. They are not lost, and the share is that of the others. "
    "Where does your formula leave them out?",
    cut="x = x[x != 0]",
)
check_window.slip(
    "range-and-rounding-are-one-error",
    "A lost value has a relative error of 1, and the share counts it already. Over which values do "
    "you take the median?",
    swap=("(after - x)[kept] / x[kept]", "(after - x) / x"),
)
check_window.slip(
    "error-is-absolute",
    "Yours is the median of |cast - x|. By what must you divide it to make the error relative?",
    cut=" / x[kept]",
)
check_window.slip(
    "fp16-and-bf16-lose-alike",
    "Your share is that of the other 16-bit format. Does your cast use the argument `dtype`?",
    swap=("x.to(dtype)", "x.to(torch.float16)"),
)
