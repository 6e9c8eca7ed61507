"""Check of lab 13's attention with QK-norm, beside the same in float64."""

import torch
import torch.nn.functional as F

from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.labs.engine import Mistake, attempt, check, tensor
from labkit.labs.engine.messages import fill

LAB = "13_real_models"

OFF = (
    "attend in {dtype} with {name}: the output is {off:.2g} of its size away from the right one; "
    "{room:.2g} is the room for {dtype}. {why}"
)
NOT_FINITE = "attend in {dtype} with {name}: {count:d} of {all:d} outputs are inf or NaN. {why}"
COMES_OUT = "Yours comes out if {how}."
ZERO = "One query is all zeros, so its mean square is 0. What do you divide by?"
LARGE = "A query of 300 has a square of 90,000, above 65504. In which dtype do you square it?"

_ROOM = {torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}
_REASONS = {  # of outputs that are not finite, for each case
    "queries of ordinary size": ("", None),
    "queries of about 300": (LARGE, None),
    "a query of zeros": (ZERO, "a-norm-needs-no-eps"),
    "queries of about 0.001": ("", None),
}
_CASES = _ORDINARY, _LARGE, _ZERO, _SMALL = tuple(_REASONS)
_EPS = 1e-6


def _inputs(name, dtype, seed):
    """q, k, v and the two gains; the heads have queries of different sizes."""
    draw = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, 2, 2, 9, 16, generator=draw)
    q_gain, k_gain = 1 + 0.5 * torch.rand(2, 16, generator=draw)
    k_gain = k_gain.flip(0) / 2
    q[:, 1] *= 4
    if name == _LARGE:
        q, k = 300 * q.sign(), 3 * k
    if name == _ZERO:
        q[1, 0, 4] = 0
    if name == _SMALL:
        q /= 1000
    return q.to(dtype), k.to(dtype), v.to(dtype), q_gain, k_gain


def run_attend(attend, seed):
    """Each case in both dtypes, inside autocast."""
    shown = {}
    with emulate_gpu():
        for dtype in _ROOM:
            for name in _CASES:
                with torch.autocast("cpu", dtype=dtype):
                    inputs = _inputs(name, dtype, seed)
                    shown[name_of(dtype), name] = attempt(attend, *inputs)
    return shown


@check(run_attend)
def check_attend(shown, seed):
    """QK-norm and causal attention, for large queries and for a query of zeros."""
    for name in _CASES:
        for dtype, room in _ROOM.items():
            inputs = [x.double() for x in _inputs(name, dtype, seed)]
            want = _attended(*inputs)
            call = f"attend in {name_of(dtype)} with {name}"
            got = tensor(shown[name_of(dtype), name], call=call, shape=want.shape).double()
            said = {"name": name, "dtype": name_of(dtype)}
            if bad := int((~got.isfinite()).sum()):
                why, idea = _REASONS[name]
                values = {"count": bad, "all": got.numel(), "why": why}
                raise Mistake(NOT_FINITE, misconception=idea, search=not idea, **values, **said)
            if not (off := _distance(got, want)) <= room:
                squares = name == _LARGE and dtype is torch.float16
                why, idea = _explained(got, inputs, room, off, squares)
                raise Mistake(
                    OFF, misconception=idea, search=not why, off=off, room=room, why=why, **said
                )


def _distance(got, want):
    return ((got - want).norm() / want.norm()).item()


def _rms(x, gain, dims=(-1,), eps=_EPS):
    return x / (x.square().mean(dim=dims, keepdim=True) + eps).sqrt() * gain


def _masked(q, k, v, q_gain, k_gain, mask):
    return F.scaled_dot_product_attention(_rms(q, q_gain), _rms(k, k_gain), v, attn_mask=mask)


def _attended(q, k, v, q_gain, k_gain, *, norm=_rms, causal=True, scale=None):
    q, k = norm(q, q_gain), norm(k, k_gain)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def _explained(got, inputs, room, off, squares):
    """How the output comes out by one mistake, and the mistake's idea.

    ``squares`` says whether the queries' squares are inf in the dtype.
    """
    q, k, v, q_gain, k_gain = inputs
    ones = torch.ones_like(q_gain)
    past = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril()
    others = {
        ("the keys are not normed", "one-norm-bounds-the-scores"): F.scaled_dot_product_attention(
            _rms(q, q_gain), k, v, is_causal=True
        ),
        ("the queries are not normed", "one-norm-bounds-the-scores"): (
            F.scaled_dot_product_attention(q, _rms(k, k_gain), v, is_causal=True)
        ),
        ("each query and key is divided by its length and not by its root mean square",
         "length-is-root-mean-square"): _attended(
            *inputs, norm=lambda x, gain: F.normalize(x, dim=-1) * gain
        ),
        ("the mean square is taken over all heads together", "a-head-is-the-width"): _attended(
            *inputs, norm=lambda x, gain: _rms(x, gain, (1, 3))
        ),
        ("the mean square is taken over the whole tensor", None): _attended(
            *inputs, norm=lambda x, gain: _rms(x, gain, (0, 1, 2, 3))
        ),
        ("the mean square is taken over the positions", None): _attended(
            *inputs, norm=lambda x, gain: _rms(x, gain, (2,))
        ),
        ("the mean is subtracted, as in a layer norm", None): _attended(
            *inputs, norm=lambda x, gain: F.layer_norm(x, x.shape[-1:], eps=_EPS) * gain
        ),
        # 0 and float32's eps of 1.2e-7 are both within BF16's room of this one.
        ("the 1e-6 inside of the square root is missing or far too small", None): _attended(
            *inputs, norm=lambda x, gain: _rms(x, gain, eps=6e-8)
        ),
        ("the values are normed too", None): _attended(q, k, _rms(v, ones), q_gain, k_gain),
        ("queries and keys have the gain of the queries", None): _attended(
            q, k, v, q_gain, q_gain
        ),
        ("queries and keys have the gain of the keys", None): _attended(q, k, v, k_gain, k_gain),
        ("a position attends to itself and to those after it", None): _masked(*inputs, past.mT),
        ("a position attends to those after it too", None): _attended(*inputs, causal=False),
        ("the gains are left out", None): _attended(q, k, v, ones, ones),
        ("the scores are not divided by sqrt(width)", None): _attended(*inputs, scale=1.0),
        ("the scores are divided by sqrt(width) twice", None): _attended(
            *inputs, scale=1 / q.shape[-1]
        ),
        ("neither queries nor keys are normed", None): _attended(
            *inputs, norm=lambda x, gain: x * gain
        ),
    }  # fmt: skip
    if squares:
        how = "the queries are divided by inf, because 90,000 is inf in FP16", "squares-fit-fp16"
        others[how] = _attended(0 * q, k, v, q_gain, k_gain)
    fitting = [key for key, other in others.items() if _distance(got, other) <= min(room, off / 4)]
    if len(fitting) != 1:
        return "", None
    how, idea = fitting[0]
    return fill(COMES_OUT, how=how), idea


_Q = "F.rms_norm(q.float(), q.shape[-1:], q_gain.float(), eps=1e-6)"
_K = "F.rms_norm(k.float(), k.shape[-1:], k_gain.float(), eps=1e-6)"
_LENGTHS = "F.normalize({0}.float(), dim=-1) * {0}_gain"

check_attend.slip(
    "one-norm-bounds-the-scores",
    "A score is a dot product of a query and a key. What bounds it while one of them may grow?",
    swap=(_K, "k"),
)
check_attend.slip(
    "length-is-root-mean-square",
    "A vector of width values of size 1 has the length sqrt(width). Which of the two does RMS norm "
    "divide by?",
    swap=(f"{_Q}\n    k = {_K}",
          f"{_LENGTHS.format('q')}\n    k = {_LENGTHS.format('k')}"),
)  # fmt: skip
check_attend.slip(
    "squares-fit-fp16",
    "The norm was computed in FP16. Which dtype must its input have?",
    swap=(f"{_Q}\n",
          "q * q_gain.to(q.dtype) * torch.rsqrt((q * q).mean(dim=-1, keepdim=True) + 1e-6)\n"),
)  # fmt: skip
check_attend.slip(
    "a-norm-needs-no-eps",
    "Without an eps, 0 / sqrt(0) is NaN. Which argument of `rms_norm` prevents it?",
    swap=(_Q, "q.float() / q.float().square().mean(dim=-1, keepdim=True).sqrt() * q_gain"),
)
check_attend.slip(
    "a-head-is-the-width",
    "Each head has queries of its own size. Over which dimension is the mean square taken?",
    swap=(f"q = {_Q}\n    k = {_K}", "\n    ".join((
        "q, k = (x.float().transpose(1, 2) for x in (q, k))",
        "q, k = (F.rms_norm(x, x.shape[-2:], eps=1e-6).transpose(1, 2) for x in (q, k))",
        "q, k = q * q_gain, k * k_gain",
    ))),
)  # fmt: skip
