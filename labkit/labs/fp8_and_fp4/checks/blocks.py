"""Checks of lab 08: a scale for each block, MXFP8 and NVFP4."""

import torch

from labkit.labs.engine import Mistake, calls, check, number, several, tensor
from labkit.labs.engine.messages import fill
from labkit.labs.fp8_and_fp4.checks.shared import (
    E2M1_VALUES,
    E4M3,
    SLACK,
    close,
    first,
    nearest_of,
    off,
    values_of,
)

LAB = "08_fp8_and_fp4"

OTHER_SCALE = (
    "With {case}: block {j} of row {i} has the largest magnitude {amax:.9g}. Its scale is "
    "{got:exact}; {want:exact} is wanted. {why}"
)
OTHER_CODE = (
    "With {case}: the scales are right. In row {i}, x[{j}] is {x}; divided by its scale it is "
    "{quotient}, and the nearest value of {name} is {want}. Your {what} is {got}. {why}"
)
OTHER_TENSOR_SCALE = (
    "With {case}: the tensor scale is {got}; {amax} / (448 * 6) = {want} is wanted. {why}"
)
NO_SCALAR = "With {case}: the tensor scale has shape {shape}; a tensor with one value is asked for."
BLOCKS_OF = "`{call}`: your scales have shape {got}, one for {size} values; a block has {want}."
OF_ZEROS = (
    "With {case}: block {j} of row {i} holds only zeros, and a {what} of yours there is NaN. "
    "0 / 0 is NaN: by what do you divide a block of zeros?"
)
MULTIPLIED_BACK = (
    "All your {what}s are multiplied by the scales already. Who reads them multiplies once more: "
    "which step is one too many?"
)
IN_ALL = "This holds for all blocks: your scale is {rule}."
IN_CODES = "All your {what}s are those of {rule}."
NOT_ROUNDED = "{name} has no such value: which call rounds to its values?"
THESE = "{wrong} of {count} {what}s are wrong."


def _explained(got, rules, wrong, what):
    """The rules that give all of ``got`` as a sentence, and the idea behind the only one."""
    fit = {rule: idea for rule, (idea, value) in rules.items() if bool((got == value).all())}
    if not fit:
        return fill(THESE, wrong=int(wrong.sum()), count=wrong.numel(), what=what), None
    template = IN_ALL if what == "scale" else IN_CODES
    (idea, *others) = fit.values()
    return fill(template, rule=", or ".join(fit), what=what), None if others else idea


def _two(got, size, dtypes, shape, call):
    """The codes and scales of an answer, of the right shapes and dtypes."""
    codes, scales = got
    codes = tensor(codes, call=f"{call}[0]", shape=shape)
    scales = tensor(scales, call=f"{call}[1]")
    rows, columns = shape
    if scales.numel() * size != codes.numel():
        each = codes.numel() // max(scales.numel(), 1)
        idea = "all-fp4-blocks-are-alike" if (size, each) == (16, 32) else None
        raise Mistake(
            BLOCKS_OF, call=call, got=tuple(scales.shape), size=each, want=size, misconception=idea
        )
    if dtypes[0] is not None:
        tensor(codes, call=f"{call}[0]", dtype=dtypes[0])
    tensor(scales, call=f"{call}[1]", shape=(rows, columns // size), dtype=dtypes[1])
    return codes.float().double(), scales.float().double()


def _judge_scales(scales, want, wrong, rules, amax, case):
    if not wrong.any():
        return
    why, idea = _explained(scales, rules, wrong, "scale")
    i, j = first(wrong)
    raise Mistake(
        OTHER_SCALE,
        case=case, i=i, j=j, amax=amax[i, j], got=scales[i, j], want=want[i, j], why=why,
        misconception=idea, search=idea is None,
    )  # fmt: skip


def _judge_codes(codes, x, scale, values, name, rules, case):
    """Codes of ``x`` (rows, blocks, values) for a right ``scale`` (rows, blocks)."""
    codes, quotient = codes.reshape(x.shape), x / scale[..., None]
    wrong = off(codes, quotient, values)
    if not wrong.any():
        return
    what = "code" if name == "E4M3" else "value"
    at = first(wrong)
    if codes[at].isnan() and not x[at[:2]].any():
        raise Mistake(OF_ZEROS, case=case, i=at[0], j=at[1], what=what)
    images = {rule: (idea, nearest_of(y, values)) for rule, (idea, y) in rules.items()}
    why, idea = _explained(codes, images, wrong, what)
    back = nearest_of(quotient, values) * scale[..., None]
    if bool(((codes - back).abs() <= SLACK * back.abs()).all()):
        why = fill(MULTIPLIED_BACK, what=what)
    elif codes[at].isfinite() and codes[at].abs() not in values:
        why = fill(NOT_ROUNDED, name=name)
    raise Mistake(
        OTHER_CODE,
        case=case, i=at[0], j=at[1] * x.shape[2] + at[2], x=x[at], quotient=quotient[at],
        name=name, want=nearest_of(quotient, values)[at], what=what, got=codes[at].item(),
        why=why, misconception=idea, search=idea is None,
    )  # fmt: skip


# MXFP8: blocks of 32, scales that are powers of two


def _mx_cases(seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(4, 64, generator=generator)
    drawn[0, 5] = 4.0
    sizes = 2.0 ** torch.randint(-20, 20, (4, 64), generator=generator)
    edges = torch.zeros(4, 64)
    edges[0, 0], edges[0, 33] = -3.5, 2.0
    edges[1, 0], edges[1, 1] = torch.tensor(1024.0).nextafter(torch.tensor(0.0)), 1.0
    edges[2, 1], edges[2, 2], edges[2, 40] = 500.0, 464.0, 1e30
    edges[3, 7], edges[3, 8] = 3.9, -0.003
    return {
        "4 x 64 values near 1": drawn,
        "4 x 64 values of many sizes": drawn * sizes,
        "blocks with one or two values": edges,
    }


@check(calls(lambda seed: _mx_cases(seed).values()), own_work=("labkit.formats.mx",))
def check_mx_block(answers, seed):
    """Blocks of 32 with a power of two each, by the floor rule."""
    for got, (case, x) in zip(answers, _mx_cases(seed).items(), strict=True):
        several(got, 2, call="to_mx(x)")
        codes, scales = _two(got, 32, (E4M3, torch.float8_e8m0fnu), x.shape, "to_mx(x)")
        blocks = x.double().unflatten(1, (-1, 32))
        amax = blocks.abs().amax(-1)
        full = torch.where(amax > 0, amax, 1.0)
        # A block of zeros may have any scale.
        free = scales.nan_to_num(nan=1.0)
        want = torch.where(amax > 0, _power(full.frexp().exponent - 9), free)
        rules = {rule: (idea, torch.where(amax > 0, _power(k), free))
                 for rule, (idea, k) in _mx_rules(blocks, full).items()}  # fmt: skip
        wrong = ~(scales == want)
        _judge_scales(scales, want, wrong, rules, amax, case)
        wide = want[..., None]
        rules = {
            "x times the scale": ("scale-is-its-inverse", blocks * wide),
            "x / (amax / 448)": ("mx-scale-is-any-number", blocks / (full / 448)[..., None]),
            "x itself": (None, blocks),
        }
        _judge_codes(codes, blocks, want, values_of(E4M3), "E4M3", rules, case)


def _power(exponent):
    return torch.exp2(exponent.double().clamp(-127, 127))


def _cast_to_e8m0(x):
    return x.float().to(torch.float8_e8m0fnu).double()


def _mx_rules(blocks, amax):
    """Other rules for the exponent of a scale, and their ideas."""
    signed = blocks.amax(-1).clamp(min=2.0**-100)
    log2 = amax.float().log2().double()
    exact, share = amax.frexp().exponent - 1, (amax / 448).log2()
    # To the nearest of 16 mantissas; 1.9375, a tie, becomes 2.
    even = exact + (amax.frexp().mantissa >= 1 - 2.0**-5)
    everywhere = blocks.abs().amax().frexp().exponent - 9
    return {
        "2**(floor(log2(amax)) - 8) with a float32 logarithm": ("log2-is-exact", log2.floor() - 8),
        "2**(ceil(log2(amax)) - 8)": ("mx-scale-rounds-up-by-rule", log2.ceil() - 8),
        "the power of two above amax / 448": (None, share.ceil()),
        "the power of two below amax / 448": (None, share.floor()),
        "amax / 448, cast to E8M0": (None, _cast_to_e8m0(amax / 448).log2()),
        "2**(e - 9)": ("e4m3-reaches-the-next-power", exact - 9),
        "2**(e - 7)": (None, exact - 7),
        "2**e": (None, exact),
        "that of the even rule": (None, even - 8),
        "the power of two nearest to amax, times 2**-8": (None, amax.log2().round() - 8),
        "that of the largest magnitude of x, not of the block": (
            None, everywhere.expand_as(exact),
        ),
        "that of the largest value, not of the largest magnitude": (
            "amax-is-the-maximum", signed.frexp().exponent - 9,
        ),
    }  # fmt: skip


# NVFP4: blocks of 16, scales in E4M3, and one scale for the tensor


def _nvfp4_cases(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 64, generator=generator) * torch.randn(4, 1, generator=generator).exp()
    edges = torch.zeros(2, 48)
    edges[0, :4] = torch.tensor([-1.0, 0.3, 0.2, 0.01])
    edges[0, 16:20] = torch.tensor([3.0, -2.0, 1.1, 0.7]) * 2.0**-20
    edges[1, 5:9] = torch.tensor([-0.02, 0.003, 0.011, 0.0])
    return {
        "4 x 64 values near 1": x,
        "4 x 64 values near 1e-5": x * 1e-5,
        "4 x 64 values near 1e4": x * 1e4,
        "blocks of zeros and of values below 1e-5": edges,
    }


@check(
    calls(lambda seed: _nvfp4_cases(seed).values()),
    own_work=("labkit.formats.nvfp4", "labkit.formats.scaled"),
)
def check_nvfp4_block(answers, seed):
    """Blocks of 16 with E4M3 scales, which a tensor scale moves into their range."""
    for got, (case, x) in zip(answers, _nvfp4_cases(seed).items(), strict=True):
        *two, scale = several(got, 3, call="to_nvfp4(x)")
        codes, scales = _two(two, 16, (None, E4M3), x.shape, "to_nvfp4(x)")
        blocks = x.double().unflatten(1, (-1, 16))
        top = _judge_tensor_scale(scale, blocks, case)
        amax = blocks.abs().amax(-1)
        share = amax / 6 / top
        want = share.clamp(2.0**-6, 448)
        stored, e4m3 = nearest_of(want, values_of(E4M3)), values_of(E4M3)
        rules = {
            rule: (idea, nearest_of(y.clamp(least, 448), e4m3))
            for rule, (idea, y, least) in _nvfp4_rules(blocks, amax, top).items()
        }
        _judge_scales(scales, stored, off(scales, want, e4m3), rules, amax, case)
        _judge_codes(codes, blocks, scales * top, E2M1_VALUES, "E2M1", {
            "x / (the unrounded block scale * the tensor scale)": (
                "the-scale-is-what-was-computed", blocks / (want * top)[..., None]),
            "x / the block scale": (None, blocks / scales[..., None]),
            "x / the tensor scale": (None, blocks / top),
            "x * the scales": ("scale-is-its-inverse", blocks * (scales * top)[..., None]),
        }, case)  # fmt: skip


def _judge_tensor_scale(scale, blocks, case):
    made = tensor(scale, call="to_nvfp4(x)[2]", dtype=torch.float32)
    if made.numel() != 1:
        raise Mistake(NO_SCALAR, case=case, shape=tuple(made.shape))
    got, amax = number(made, call="to_nvfp4(x)[2]"), blocks.abs().max().item()
    want = amax / 2688
    if close(got, want):
        return want
    rules = {
        "1": ("block-scales-need-no-tensor-scale", 1.0),
        "amax / 448": (None, amax / 448),
        "amax / 6": (None, amax / 6),
        "448 * 6 / amax": ("scale-is-its-inverse", 1 / want),
        "the largest value / (448 * 6)": ("amax-is-the-maximum", blocks.max().item() / 2688),
    }
    fit = [(f"Yours is {rule}.", idea) for rule, (idea, x) in rules.items() if close(got, x)]
    why, idea = fit[0] if fit else ("", None)
    raise Mistake(
        OTHER_TENSOR_SCALE, case=case, got=got, amax=amax, want=want, why=why, misconception=idea,
        search=idea is None,
    )  # fmt: skip


def _nvfp4_rules(blocks, amax, top):
    """Other rules for a block's scale: the idea, the scale, and the least that it may be."""
    share = amax / 6 / top
    power = torch.where(share > 0, share, 1.0).log2()
    alike, least = "mxfp4-is-nvfp4", 2.0**-6
    return {
        "not kept at 2**-6 or above": ("block-scales-cannot-underflow", share, 0.0),
        "kept at 2**-9 or above, not at 2**-6 or above": (None, share, 2.0**-9),
        "1 for a block of zeros, and elsewhere not kept at 2**-6 or above": (
            None, torch.where(amax > 0, share, 1.0), 0.0,
        ),
        "amax / tensor scale": (None, amax / top, least),
        "amax / 448 / tensor scale": (None, amax / 448 / top, least),
        "amax / 6": (None, amax / 6, least),
        "a power of two": (alike, torch.exp2(power.ceil()), least),
        "a power of two, rounded down": (alike, torch.exp2(power.floor()), least),
        "that of the largest value, not of the largest magnitude": (
            "amax-is-the-maximum", blocks.amax(-1) / 6 / top, least,
        ),
    }  # fmt: skip


check_mx_block.slip(
    "log2-is-exact",
    "float32's log2 of the number just below 1024 is 10. Which function reads the exponent from "
    "the bits?",
    swap=("torch.frexp(amax).exponent - 1 - 8", "torch.log2(amax).floor().int() - 8"),
)
check_mx_block.slip(
    "mx-scale-rounds-up-by-rule",
    "The floor rule lets the largest value exceed 448, and saturates it. Which way does yours "
    "round the exponent?",
    swap=("torch.frexp(amax).exponent - 1 - 8", "torch.log2(amax).ceil().int() - 8"),
)
check_mx_block.slip(
    "e4m3-reaches-the-next-power",
    "448 = 1.75 * 2**8. Which power of two is the exponent of E4M3's largest value?",
    swap=("- 1 - 8", "- 1 - 9"),
)
check_mx_block.slip(
    "mx-scale-is-any-number",
    "The codes must be divided by the scale that is stored. Which of your two numbers is stored?",
    swap=("blocks / scales[..., None]", "blocks / (amax / 448)[..., None].clamp(min=1e-38)"),
)
check_mx_block.slip(
    "amax-is-the-maximum",
    "Of which tensor do you take the maximum?",
    swap=("blocks.abs().amax(-1)", "blocks.amax(-1)"),
)
check_mx_block.slip(
    "scale-is-its-inverse",
    "A code times its scale gives x back. What must be done to x to get the code?",
    swap=("blocks / scales", "blocks * scales"),
)
check_nvfp4_block.slip(
    "block-scales-need-no-tensor-scale",
    "An E4M3 scale lies between 2**-9 and 448. What becomes of a tensor near 1e-5?",
    swap=("x.abs().amax() / (448 * 6)", "torch.tensor(1.0)"),
)
check_nvfp4_block.slip(
    "the-scale-is-what-was-computed",
    "Who reads the tensor has the stored scale only. By which of the two must x be divided?",
    swap=("block_scales.float() * tensor_scale", "wanted * tensor_scale"),
)
check_nvfp4_block.slip(
    "mxfp4-is-nvfp4",
    "MX scales are powers of two. Which values has a scale of NVFP4?",
    swap=("wanted.clamp(2**-6, 448)", "torch.exp2(wanted.log2().ceil()).clamp(2**-6, 448)"),
)
check_nvfp4_block.slip(
    "block-scales-cannot-underflow",
    "Dividing by a scale of 0 gives NaN or inf. What is the smallest scale that the exercise "
    "allows?",
    swap=("wanted.clamp(2**-6, 448)", "wanted.clamp(max=448)"),
)
check_nvfp4_block.slip(
    "amax-is-the-maximum",
    "Of which tensor do you take the maximum?",
    swap=("blocks.abs().amax(-1)", "blocks.amax(-1)"),
)
check_nvfp4_block.slip(
    "scale-is-its-inverse",
    "The scales multiply the values back to x. Which number does yours multiply by?",
    swap=("block_scales, tensor_scale", "block_scales, 1 / tensor_scale"),
)
check_nvfp4_block.slip(
    "all-fp4-blocks-are-alike",
    "How many values share a scale in MX, and how many in NVFP4?",
    swap=("(-1, 16)", "(-1, 32)"),
)
