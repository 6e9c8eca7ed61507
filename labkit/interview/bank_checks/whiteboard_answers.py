"""Checks of the code questions that are asked at a whiteboard: low precision matmuls and states."""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.labs.engine import Mistake, attempt, check, number, several, tensor

LAB = "interview"

OTHER_VALUE = "{call}: at {place} came {got}; {want} is wanted. {why}"
NOT_FINITE = "{call}: at {place} came {got}."


def _values(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _compare(got, want, room, *, call, why=""):
    """Mistake at the first place where got is further than room from want."""
    got, want = got.double(), want.double()
    near = ((got - want).abs() <= room) | (got == want)
    if near.all():
        return
    at = tuple((~near).nonzero()[0].tolist())
    if not got[at].isfinite() and want[at].isfinite():
        raise Mistake(NOT_FINITE, call=call, place=list(at), got=got[at].item())
    raise Mistake(
        OTHER_VALUE, call=call, place=list(at), got=got[at].item(), want=want[at].item(), why=why
    )


# Stochastic rounding with 16 random bits

DRIFTED = (
    "{call}: over all 65536 noises the mean of the results is {got}; {want} is wanted, x itself."
)

_SINGLE = (1.0, -1.0, 1.001, -3.7, 1e-3, 255.9, -1e-30)


def run_stochastic_bf16(stochastic_bf16):
    """Each value with each of the 65536 noises."""
    noise = torch.arange(65536, dtype=torch.int32)
    return {x: attempt(stochastic_bf16, torch.full((65536,), x), noise) for x in _SINGLE}


@check(run_stochastic_bf16)
def check_stochastic_bf16(answers):
    """Exact values stay, others reach both neighbours with a mean that is the value."""
    for x in _SINGLE:
        call = f"stochastic_bf16(x = {x}, all noises)"
        got = tensor(answers[x], call=call, shape=(65536,), dtype=torch.bfloat16).double()
        exact = torch.tensor(x).double().item()
        bits = torch.tensor(x).view(torch.int32)
        low = (bits & -65536).view(torch.float32).double().item()
        high = ((bits & -65536) + 65536).view(torch.float32).double().item()
        if low == exact:
            high = low
        ends = torch.tensor([low, high], dtype=torch.float64)
        _compare(got, ends[(got[:, None] - ends).abs().argmin(1)], 0.0, call=call)
        # One noise of 65536 is the finest share there is.
        if not abs(got.mean().item() - exact) <= 2.0**-16 * abs(high - low):
            raise Mistake(DRIFTED, call=call, got=got.mean().item(), want=exact)


# Two halves of an attention row

_HALVES = {
    "scores near 0": (0.0, 0.0),
    "the second half far above": (-40.0, 60.0),
    "scores near 1000": (1000.0, 990.0),
    "the first half empty": (None, 0.0),
    "the second half empty": (0.0, None),
    "both halves empty": (None, None),
}


def _half(seed, shift):
    """log-sum-exp and output of 3 rows over 5 keys, and the scores and values behind them."""
    scores, values = _values(seed, 3, 5) * 2 + (shift or 0.0), _values(seed + 1, 5, 4)
    if shift is None:
        scores = torch.full((3, 5), -math.inf)
        return torch.full((3,), -math.inf), torch.zeros(3, 4), scores, values
    return scores.logsumexp(1), scores.softmax(1) @ values, scores, values


def run_combine(combine):
    """`combine` on the two halves of each case."""
    return {
        name: attempt(combine, *(t.clone() for s, x in ((3, a), (5, b)) for t in _half(s, x)[:2]))
        for name, (a, b) in _HALVES.items()
    }


@check(run_combine)
def check_combine(answers):
    """Two partial softmax averages become one, empty halves included."""
    for name, (a, b) in _HALVES.items():
        call = f"combine({name})"
        got = several(answers[name], 2, call=call)
        lse = tensor(got[0], call=f"lse of {call}", shape=(3,))
        output = tensor(got[1], call=f"output of {call}", shape=(3, 4))
        _, _, left, first = _half(3, a)
        _, _, right, second = _half(5, b)
        scores = torch.cat([left, right], 1).double()
        want = scores.softmax(1).nan_to_num(0.0) @ torch.cat([first, second]).double()
        # Near 1000 the log-sum-exp has gaps of 6e-5, and so have the weights.
        room = 2.0**-20 + 2.0**-22 * scores.abs().nan_to_num(posinf=0.0).max().item()
        _compare(lse, scores.logsumexp(1), 4 * room, call=f"lse of {call}")
        _compare(output, want, 4 * room, call=f"output of {call}")


# A matmul of FP8 codes with scales for blocks

_BLOCKS = {"2 blocks of 4 along K": (3, 8, 8, 4), "5 blocks of 8 along K": (4, 40, 16, 8)}


def _coded(x, *, rows, block):
    """E4M3 codes of x and the descales of its blocks of rows x block."""
    tiles = x.unflatten(1, (-1, block)).unflatten(0, (-1, rows))
    scale = tiles.abs().amax(dim=(1, 3), keepdim=True) / 448
    codes = (tiles / scale).flatten(0, 1).flatten(1).to(torch.float8_e4m3fn)
    return codes, scale[:, 0, :, 0].contiguous()


def _block_problem(name):
    m, k, n, block = _BLOCKS[name]
    # The blocks along K differ in size, as activations do.
    sizes = torch.exp2(torch.arange(k // block) * 3.0 - 4).repeat_interleave(block)
    a = _coded(_values(11, m, k) * sizes, rows=1, block=block)
    b = _coded(_values(12, n, k) / sizes.flip(0), rows=block, block=block)
    return *a, *b, block


def run_block_matmul(block_matmul):
    """`block_matmul` on both problems."""
    return {name: attempt(block_matmul, *_block_problem(name)) for name in _BLOCKS}


@check(run_block_matmul)
def check_block_matmul(answers):
    """Each block's partial sum gets its two scales before it is added in FP32."""
    for name in _BLOCKS:
        a, sa, b, sb, block = _block_problem(name)
        call = f"block_matmul({name})"
        wide_a = a.double() * sa.double().repeat_interleave(block, 1)
        wide_b = b.double() * sb.double().repeat_interleave(block, 0).repeat_interleave(block, 1)
        got = tensor(answers[name], call=call, shape=(len(a), len(b)), dtype=torch.float32)
        # At most 64 roundings to 2**-24 of the terms.
        room = 2.0**-18 * (wide_a.abs() @ wide_b.abs().T)
        _compare(got, wide_a @ wide_b.T, room, call=call)


# A linear layer in FP8 with scales for rows

_ROWS = {"8 tokens": 1.0, "tokens of unlike sizes": None, "a token of zeros": 0.0}


def _row_problem(name):
    x, w, bias = _values(21, 8, 32), _values(22, 6, 32) / 4, _values(23, 6)
    w[2] *= 1000
    if _ROWS[name] is None:
        x = x * torch.logspace(-3, 3, 8)[:, None]
    x[3] *= 0.0 if _ROWS[name] == 0.0 else 1.0
    return x, w, bias


def run_fp8_linear(fp8_linear):
    """`fp8_linear` on each problem."""
    return {name: attempt(fp8_linear, *_row_problem(name)) for name in _ROWS}


@check(run_fp8_linear)
def check_fp8_linear(answers):
    """E4M3 codes with a scale a row, and an epilogue that scales before it adds the bias."""
    for name in _ROWS:
        x, w, bias = _row_problem(name)
        call = f"fp8_linear({name})"
        got = tensor(answers[name], call=call, shape=(8, 6), dtype=torch.bfloat16)
        want = _back(x) @ _back(w).T + bias.double()
        # BF16 rounds once; a value at a tie may get the other code of E4M3.
        room = 2.0**-8 * want.abs() + 2.0**-7 * (x.double().abs() @ w.double().abs().T) / 8
        _compare(got, want, room, call=call)
        if name == "a token of zeros":
            _compare(got[3], bias, 2.0**-8 * bias.abs(), call=f"{call}, row 3")


def _back(x):
    """x after E4M3 codes with a scale a row."""
    scale = x.abs().amax(1, keepdim=True).clamp(min=2.0**-100) / 448
    return (x / scale).to(torch.float8_e4m3fn).double() * scale.double()


# An optimizer's state in INT8 blocks

OTHER_SCALES = "The scales of {call} are {got}; {want} are wanted, amax / 127 of each block."
_STATES = {
    "16 values, blocks of 8": (16, 8),
    "19 values, blocks of 8": (19, 8),
    "a block of zeros": (24, 8),
    "3 values, blocks of 8": (3, 8),
}


def _state(name):
    size, block = _STATES[name]
    x = _values(31, size) * torch.logspace(-4, 0, size)
    if name == "a block of zeros":
        x[8:16] = 0.0
    return x, block


def run_pack_state(pack_state):
    """`pack_state` on each state."""
    return {name: attempt(pack_state, *_state(name)) for name in _STATES}


@check(run_pack_state)
def check_pack_state(answers):
    """INT8 codes with one scale a block; the last block may be short, a block may be zero."""
    for name in _STATES:
        x, block = _state(name)
        call = f"pack_state({name})"
        codes, scales = several(answers[name], 2, call=call)
        parts = x.double().split(block)
        codes = tensor(codes, call=f"codes of {call}", shape=x.shape, dtype=torch.int8)
        scales = tensor(scales, call=f"scales of {call}", shape=(len(parts),)).double()
        want = torch.stack([part.abs().max() / 127 for part in parts])
        live = want > 0
        if not torch.allclose(scales[live], want[live], rtol=1e-5):
            raise Mistake(OTHER_SCALES, call=call, got=scales.tolist(), want=want.tolist())
        steps = torch.where(live, want, 1.0).repeat_interleave(block)[: len(x)]
        # Half a step, and what float32 makes of a tie.
        _compare(codes.double() * steps, x, 0.5001 * steps, call=f"codes * scales of {call}")


# FP32 from BF16 matmuls

TOO_MANY = "Your matmul_fp32 called mm {got} times; at most 6 calls are wanted."
NOT_BF16 = "mm takes BF16 matrices; it was given {got}."


def _six_problem():
    return _values(41, 8, 24), _values(42, 24, 5)


def run_six_products(matmul_fp32):
    """The result, the number of products and the first dtype that was not BF16."""
    calls, strange = [], []

    def mm(a, b):
        calls.append(1)
        strange.extend(str(t.dtype) for t in (a, b) if t.dtype != torch.bfloat16)
        return a.float() @ b.float()

    return attempt(matmul_fp32, *_six_problem(), mm), len(calls), strange[:1]


@check(run_six_products)
def check_six_products(found):
    """Six products of three parts give nearly all of FP32's digits."""
    got, count, strange = found
    a, b = (t.double() for t in _six_problem())
    got = tensor(got, call="matmul_fp32(a, b, mm)", shape=(8, 5), dtype=torch.float32)
    if strange:
        raise Mistake(NOT_BF16, got=strange[0])
    # Left out are products of 2**-24 and less; six float32 sums of 24 terms add the rest.
    _compare(got, a @ b, 2.0**-20 * (a.abs() @ b.abs()), call="matmul_fp32(a, b, mm)")
    if count > 6:
        raise Mistake(TOO_MANY, got=count)


# BF16 weights that keep what rounding took

LEFT_BEHIND = (
    "After {steps} updates of {update:g} a weight of {start:g} is {got:g}; in exact arithmetic it "
    "is {want:g}, and one gap of BF16 is {gap:g}."
)
_UPDATES = {
    "small and equal": (1.0, 1e-4, 400),
    "down": (1.0, -1e-4, 400),
    "large": (1.0, 0.5, 20),
    "tiny weight": (2.0**-10, 1e-7, 400),
}


def run_kahan_step(kahan_step):
    """The weight after all updates of each case."""

    def through(start, update, steps):
        weight = torch.full((3,), start, dtype=torch.bfloat16)
        lost = torch.zeros(3, dtype=torch.bfloat16)
        for _ in range(steps):
            state = kahan_step(weight, lost, torch.full((3,), update))
            if not isinstance(state, tuple | list) or len(state) != 2:
                return state
            weight, lost = state
        return [weight, lost]

    return {name: attempt(through, *case) for name, case in _UPDATES.items()}


@check(run_kahan_step)
def check_kahan_step(answers):
    """The weight follows the exact sum within one gap, both tensors stay BF16."""
    for name, (start, update, steps) in _UPDATES.items():
        call = f"kahan_step ({name})"
        pair = several(answers[name], 2, call=call)
        weight = tensor(pair[0], call=f"w of {call}", shape=(3,), dtype=torch.bfloat16)
        tensor(pair[1], call=f"c of {call}", shape=(3,), dtype=torch.bfloat16)
        want = start + steps * torch.tensor(update).double().item()
        gap = 2.0 ** (math.frexp(want)[1] - 8)
        got = weight[0].item()
        if not abs(got - want) <= gap:
            raise Mistake(
                LEFT_BEHIND, steps=steps, update=update, start=start, got=got, want=want, gap=gap
            )


# Gradients that keep their quantization error

LOST = (
    "Over {steps} steps the means add up to {got:g} at place {place:d}; the true means add up to "
    "{want:g}, and what the ranks still hold explains at most {room:g}."
)
_STEPS, _RANKS = 60, 4


def _coarse(x):
    """Rounds to a grid of 9 values."""
    scale = x.abs().max() / 4
    return x if scale == 0 else (x / scale).round() * scale


def run_feedback(reduce):
    """The mean gradients of all steps, and the errors that are left."""

    def through():
        errors = [torch.zeros(8) for _ in range(_RANKS)]
        means = []
        for step in range(_STEPS):
            state = reduce([_rank_gradient(step, rank) for rank in range(_RANKS)], errors, _coarse)
            if not isinstance(state, tuple | list) or len(state) != 2:
                return state
            mean, errors = state
            means.append(mean)
        return [torch.stack(means), torch.stack(list(errors))]

    return attempt(through)


def _rank_gradient(step, rank):
    """One large entry and small ones that always have one sign."""
    return torch.logspace(-3, 0, 8) + 0.01 * _values(100 * step + rank, 8)


@check(run_feedback)
def check_feedback(found):
    """What quantization takes from a gradient goes into the next one."""
    pair = several(found, 2, call="reduce(gradients, errors, quantize)")
    means = tensor(pair[0], call="the means of reduce", shape=(_STEPS, 8))
    got = means.double().sum(0)
    gradients = [_rank_gradient(s, r) for s in range(_STEPS) for r in range(_RANKS)]
    want = torch.stack(gradients).double().sum(0) / _RANKS
    # Half a step of the grid, with the error that was carried, is below 0.16.
    for place in range(8):
        if not abs(got[place] - want[place]) <= 0.2:
            raise Mistake(
                LOST, steps=_STEPS, got=got[place].item(), place=place, want=want[place].item(),
                room=0.2,
            )  # fmt: skip


# Cross-entropy without the logits

TOO_LARGE = (
    "{call} held a tensor of {got} values, as many as tokens x classes or more. The logits of all "
    "classes must never be there at once; tokens x chunk is {want}."
)
_LOGITS = {"logits near 0": 1.0, "logits near 100": 60.0, "classes that fill no last chunk": 2.0}


class _Largest(TorchDispatchMode):
    """The largest tensor that an operator made."""

    def __init__(self):
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else (out,):
            self.size = max(self.size, t.numel() if isinstance(t, torch.Tensor) else 0)
        return out


def _logits_problem(name):
    classes = 61 if name == "classes that fill no last chunk" else 64
    hidden = (_values(51, 16, 8) * _LOGITS[name] ** 0.5).bfloat16()
    head = (_values(52, classes, 8) * _LOGITS[name] ** 0.5).bfloat16()
    targets = torch.randint(classes, (16,), generator=torch.Generator().manual_seed(53))
    targets[0], targets[1] = 0, classes - 1
    return hidden, head, targets, 16


def run_loss_in_chunks(loss_in_chunks):
    """The loss of each problem, and the largest tensor on the way."""
    seen = {}
    for name in _LOGITS:
        with _Largest() as largest:
            got = attempt(loss_in_chunks, *_logits_problem(name))
        seen[name] = got, largest.size
    return seen


@check(run_loss_in_chunks)
def check_loss_in_chunks(seen):
    """The mean cross-entropy in FP32, without a tensor of tokens x classes."""
    for name, (got, size) in seen.items():
        hidden, head, targets, chunk = _logits_problem(name)
        call = f"loss_in_chunks({name})"
        logits = hidden.double() @ head.double().T
        want = torch.nn.functional.cross_entropy(logits, targets)
        # float32 logits near 500 have gaps of 3e-5.
        value = torch.tensor(number(got, call=call))
        _compare(value.reshape(1), want.reshape(1), 2e-4, call=call)
        if size >= len(hidden) * len(head):
            raise Mistake(TOO_LARGE, call=call, got=size, want=len(hidden) * chunk)


# Operands of the backward matmuls

OTHER_GRADIENT = (
    "{call}: at {place} came {got}; {want} is wanted. Along which dimension does this matmul add, "
    "and along which do the values of a block lie?"
)


def _fp8_blocks(t, dim):
    """t after E4M3 with one scale for 4 neighbours along dim."""
    blocks = t.movedim(dim, -1).unflatten(-1, (-1, 4))
    scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 448
    back = (blocks / scale).to(torch.float8_e4m3fn).float() * scale
    return back.flatten(-2).movedim(-1, dim)


def _backward_problem():
    sizes = torch.logspace(-3, 3, 8)
    return _values(61, 8, 12) * sizes[:, None], _values(62, 8, 16), _values(63, 12, 16)


def run_fp8_backward(backward):
    """Both gradients."""
    return attempt(backward, *_backward_problem(), _fp8_blocks)


@check(run_fp8_backward)
def check_fp8_backward(found):
    """Each operand is quantized along the dimension over which its matmul adds."""
    pair = several(found, 2, call="backward(g, x, w, quantize)")
    g, x, w = _backward_problem()
    wants = {
        "grad_x": (_fp8_blocks(g, 1), _fp8_blocks(w, 0)),
        "grad_w": (_fp8_blocks(g, 0).T, _fp8_blocks(x, 0)),
    }
    for got, (name, (a, b)) in zip(pair, wants.items(), strict=True):
        a, b = a.double(), b.double()
        got = tensor(got, call=name, shape=(a.shape[0], b.shape[1]))
        near = (got.double() - a @ b).abs() <= 2.0**-19 * (a.abs() @ b.abs())
        if not near.all():
            at = tuple((~near).nonzero()[0].tolist())
            raise Mistake(
                OTHER_GRADIENT, call=name, place=list(at), got=got[at].item(),
                want=(a @ b)[at].item(),
            )  # fmt: skip


# The scale that AWQ searches

OTHER_ALPHA = "{call} chose the exponent {got:g}; the smallest error of the output has {want:g}."


def _grouped(w):
    """w on a 3-bit grid with one scale for each group of 8 inputs."""
    groups = w.unflatten(1, (-1, 8))
    scale = groups.abs().amax(-1, keepdim=True) / 3
    return ((groups / scale).round().clamp(-3, 3) * scale).flatten(1)


_LAYERS = {"one channel of 30": 71, "channels of unlike sizes": 72, "equal channels": 73}
_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)


def _layer(name):
    x, w = _values(_LAYERS[name], 64, 32), _values(_LAYERS[name] + 10, 12, 32)
    if name == "one channel of 30":
        x[:, 5] *= 30
    if name == "channels of unlike sizes":
        x = (
            x
            * torch.logspace(-1, 1, 32)[
                torch.randperm(32, generator=torch.Generator().manual_seed(1))
            ]
        )
    return w, x


def run_awq(search_scale):
    """The exponent and the weight of each layer."""
    return {name: attempt(search_scale, *_layer(name), _grouped, _EXPONENTS) for name in _LAYERS}


@check(run_awq)
def check_awq(answers):
    """The exponent with the smallest output error, and the weight as the layer sees it."""
    for name in _LAYERS:
        call = f"search_scale({name})"
        got = several(answers[name], 2, call=call)
        alpha = number(got[0], call=f"the exponent of {call}")
        weight = tensor(got[1], call=f"the weight of {call}", shape=(12, 32))
        w, x = _layer(name)
        size = x.abs().mean(0)
        made = {a: _grouped(w * size**a) / size**a for a in _EXPONENTS}
        error = {a: (x.double() @ (q - w).double().T).norm() for a, q in made.items()}
        want = min(error, key=error.get)
        if alpha != want:
            raise Mistake(OTHER_ALPHA, call=call, got=alpha, want=want)
        _compare(weight, made[want], 1e-5 * w.abs().max(), call=f"the weight of {call}")


# A drafted token, accepted or not

OTHER_SHARE = (
    "{call}: over all drafted tokens and u, token {token:d} comes out with probability {got:.3f}; "
    "the target gives it {want:.3f}."
)
_PAIRS = {
    "a draft that is flatter": ([0.6, 0.3, 0.1], [0.4, 0.35, 0.25]),
    "a draft that misses a token": ([0.5, 0.25, 0.25], [0.5, 0.5, 0.0]),
    "an exact draft": ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
}
_UNIFORM = [(i + 0.5) / 40 for i in range(40)]


def run_verify(verify):
    """The decision for each drafted token and each u."""
    return {
        (name, token, u): attempt(verify, torch.tensor(p), torch.tensor(q), token, u)
        for name, (p, q) in _PAIRS.items()
        for token in range(3)
        for u in _UNIFORM
        if q[token] > 0
    }


@check(run_verify)
def check_verify(answers):
    """What comes out has the target's distribution, and no draft is refused needlessly."""
    for name, (p, q) in _PAIRS.items():
        total, kept = torch.zeros(3, dtype=torch.float64), 0.0
        for token in range(3):
            for u in _UNIFORM if q[token] > 0 else ():
                call = f"verify({name}, token {token}, u = {u})"
                rest = answers[name, token, u]
                weight = q[token] / len(_UNIFORM)
                if rest is None:
                    total[token] += weight
                    kept += weight
                else:
                    total += weight * tensor(rest, call=call, shape=(3,)).double()
        # u has 40 values: a probability is off by up to 1/40 of a draft's share.
        for token in range(3):
            if not abs(total[token] - p[token]) <= 0.026:
                raise Mistake(
                    OTHER_SHARE, call=f"verify({name})", token=token, got=total[token].item(),
                    want=p[token],
                )  # fmt: skip
        want = sum(map(min, p, q))
        if not kept >= want - 0.026:
            raise Mistake(
                "verify({name}) accepts {got:.3f} of the drafts; {want:.3f} is possible.",
                name=name, got=kept, want=want,
            )  # fmt: skip


# One wrong value in a product

OTHER_PLACE = "{call} is {got}; {want} is wanted."
_FAULTS = {
    "no fault": None,
    "one value off by 3": (2, 4, 3.0),
    "one value off by 0.5": (5, 0, 0.5),
    "no fault, inputs near 1000": None,
    "inputs near 1000, one value off by a million": (0, 6, 1e6),
    "one value that is NaN": (3, 3, math.nan),
}


def _product(name):
    size = 1000.0 if "1000" in name else 1.0
    a, b = _values(81, 8, 256) * size, _values(82, 256, 7) * size
    c = a @ b
    if _FAULTS[name]:
        row, column, shift = _FAULTS[name]
        c[row, column] += shift
    return a, b, c


class _Products(TorchDispatchMode):
    """The most multiply-adds of one matmul."""

    def __init__(self):
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = str(func)
        if "mm." in name and isinstance(out, torch.Tensor):
            self.most = max(self.most, out.numel())
        return out


RECOMPUTED = (
    "Your find_fault computed {got} dot products in one matmul, as many as the product has "
    "values. Checksums need one for each row or column."
)


def run_find_fault(find_fault):
    """The place in each case, and the size of the largest product on the way."""
    seen = {}
    for name in _FAULTS:
        a, b, c = _product(name)
        with _Products() as products:
            got = attempt(find_fault, a, b, c)
        seen[name] = [got, products.most]
    return seen


@check(run_find_fault)
def check_find_fault(seen):
    """The place of one wrong value, from checksums, with a tolerance that follows the inputs."""
    for name, (got, most) in seen.items():
        call = f"find_fault ({name})"
        want = _FAULTS[name] and _FAULTS[name][:2]
        if got is None and want is None:
            continue
        if got is None:
            raise Mistake(OTHER_PLACE, call=call, got="None", want=want)
        place = tuple(int(number(x, call=call)) for x in several(got, 2, call=call))
        if place != want:
            raise Mistake(OTHER_PLACE, call=call, got=place, want=want or "None")
        if most >= 8 * 7:
            raise Mistake(RECOMPUTED, got=most)
