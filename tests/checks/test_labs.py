"""Each lab's checks: known wrong answers fail with their idea, other right answers pass."""

import importlib
import json
import math
import pkgutil
import re
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch

import labkit.checks
from labkit.checks import Check
from labkit.checks.number_formats import (
    check_decode,
    check_e2m1_value,
    check_eight_bits,
    check_snap,
    check_tf32,
    check_ulp,
    check_window,
)
from labkit.checks.start_here import check_fp16_bytes
from labkit.formats import FP16, spacing
from labkit.misconceptions import misconceptions
from labkit.paths import NOTEBOOKS

MODULES = [
    importlib.import_module(f"labkit.checks.{module.name}")
    for module in pkgutil.iter_modules(labkit.checks.__path__)
]
CHECKS = [
    value
    for module in MODULES
    if hasattr(module, "LAB")
    for value in vars(module).values()
    if isinstance(value, Check)
]
WRONG = [(check, wrong) for check in CHECKS for wrong in check.known_wrong]


def named(value):
    return value.exercise if isinstance(value, Check) else value.misconception


@pytest.mark.parametrize(("check", "wrong"), WRONG, ids=named)
def test_a_known_wrong_answer_fails_with_its_idea_and_question(check, wrong):
    result = check.result(wrong.answer)
    assert result.status == "failed"
    assert result.misconceptions == (wrong.misconception,)
    assert result.message.endswith(" ".join(wrong.question.split()))


@pytest.mark.parametrize(("check", "wrong"), WRONG, ids=named)
def test_a_known_wrong_answer_points_to_a_misconception_of_the_list(check, wrong):
    assert wrong.misconception in misconceptions()


@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_every_exercise_ships_four_known_wrong_answers(check):
    assert len(check.known_wrong) >= 4


@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_the_stub_is_not_attempted(check):
    def stub(*arguments):
        raise NotImplementedError("your code here")

    is_function = callable(check.known_wrong[0].answer)
    for answer in (stub, ...) if is_function else (..., {"key": ...}):
        assert check.result(answer).status == "not attempted"


def test_the_manifest_and_the_checks_name_the_same_exercises():
    manifest = json.loads((NOTEBOOKS / "manifest.json").read_text(encoding="utf-8"))
    promised = {
        (lab["lab"], entry["exercise"]) for lab in manifest["labs"] for entry in lab["exercises"]
    }
    assert promised == {(check.lab, check.exercise) for check in CHECKS}


def test_every_cure_is_a_section_of_a_lab():
    for idea in misconceptions().values():
        lab, section = idea.cure.split("#")
        source = (NOTEBOOKS / "source" / f"{lab}.py").read_text(encoding="utf-8")
        headings = re.findall(r"(?m)^# #+ (.+)$", source)
        # JupyterLab makes a heading's anchor by putting hyphens for its spaces.
        assert section in [heading.replace(" ", "-") for heading in headings], idea.id


def test_misconceptions_are_written_in_both_languages():
    for idea in misconceptions().values():
        assert idea.en.endswith(".") and idea.zh.endswith("。"), idea.id
        assert re.search(r"[\u4e00-\u9fff]", idea.zh), idea.id


# Right answers, written in other ways than the solution.


def table_of_strings(code):
    magnitude = float("0 .5 1 1.5 2 3 4 6".split()[code % 8])  # noqa: SIM905
    return -magnitude if code > 7 else magnitude


def e2m1_in_halves(code):
    exponent, mantissa = divmod(code % 8, 2)
    halves = mantissa if exponent == 0 else (2 + mantissa) << (exponent - 1)
    return math.copysign(halves / 2, -(code // 8) or 1)


def decode_by_ldexp(code, exponent_bits, mantissa_bits, bias):
    text = f"{code:0{1 + exponent_bits + mantissa_bits}b}"
    sign, exponent = int(text[0]), int(text[1 : 1 + exponent_bits], 2)
    mantissa = int(text[1 + exponent_bits :] or "0", 2)
    if exponent:
        mantissa += 1 << mantissa_bits
    value = math.ldexp(mantissa, max(exponent, 1) - bias - mantissa_bits)
    return -value if sign else value


def decode_by_fractions(code, e, m, bias):
    field, low = (code >> m) % 2**e, Fraction(code % 2**m, 2**m)
    value = (low if field == 0 else 1 + low) * Fraction(2) ** (max(field, 1) - bias)
    return np.float64(float(value)) * (1 - 2 * (code >> (e + m)))


def ulp_by_nextafter(x):
    x = torch.tensor(abs(x), dtype=torch.float16)
    return (torch.nextafter(x, torch.tensor(math.inf, dtype=torch.float16)) - x).item()


def ulp_by_codes(x):
    code = struct.unpack("<H", struct.pack("<e", abs(x)))[0]
    above = struct.unpack("<e", struct.pack("<H", code + 1))[0]
    return np.float32(above - abs(x))


def snap_by_numpy(x):
    with np.errstate(over="ignore"):
        return np.float16(x)


def snap_by_struct(x):
    try:
        return struct.unpack("<e", struct.pack("<e", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def window_by_numpy(x, dtype):
    x = x[x != 0].double()
    after = x.float().to(dtype).double()
    survivors = after != 0
    error = np.abs(after[survivors].numpy() / x[survivors].numpy() - 1)
    return [1 - survivors.sum().item() / len(x), float(np.median(error))]


def window_by_loops(x, dtype):
    lost, errors = 0, []
    values = [value for value in x.tolist() if value]
    for value in values:
        after = torch.tensor(value, dtype=torch.float32).to(dtype).item()
        if after == 0:
            lost += 1
        else:
            errors.append(abs(after - value) / abs(value))
    return torch.tensor(lost / len(values), dtype=torch.float64), sorted(errors)[len(errors) // 2]


def window_by_ratio(x, dtype):
    x = x[x != 0]
    ratio = x.to(dtype).float() / x
    return torch.stack([(ratio == 0).float().mean(), (ratio[ratio != 0] - 1).abs().median()])


def tf32_by_structs(x):
    def one(value):
        code = struct.unpack("<I", struct.pack("<f", value))[0]
        return struct.unpack("<f", struct.pack("<I", (code + 0x1000) >> 13 << 13))[0]

    return torch.tensor([one(value) for value in x.tolist()])


def tf32_by_division(x):
    exponent = torch.frexp(x.double()).exponent
    exponent = exponent.clamp(
        min=-125
    )  # subnormals share the exponent of the smallest normal value
    scaled = torch.ldexp(x.double(), 11 - exponent)
    rounded = torch.copysign((scaled.abs() + 0.5).floor(), scaled)
    return torch.where(x.isfinite(), torch.ldexp(rounded, exponent - 11), x.double()).float()


@pytest.mark.parametrize(
    ("check", "right"),
    [
        (check_fp16_bytes, lambda count: count << 1),
        (check_fp16_bytes, lambda count: count * torch.finfo(torch.float16).bits / 8),
        (check_e2m1_value, table_of_strings),
        (check_e2m1_value, e2m1_in_halves),
        (check_decode, decode_by_ldexp),
        (check_decode, decode_by_fractions),
        (check_ulp, ulp_by_nextafter),
        (check_ulp, ulp_by_codes),
        (check_snap, snap_by_numpy),
        (check_snap, snap_by_struct),
        (check_window, window_by_numpy),
        (check_window, window_by_loops),
        (check_window, window_by_ratio),
        (check_eight_bits, {"exponent_bits": 5, "mantissa_bits": 2, "bias": 40}),
        (check_eight_bits, {"bias": 36, "mantissa_bits": 2, "exponent_bits": 5}),
        (check_tf32, tf32_by_structs),
        (check_tf32, tf32_by_division),
    ],
    ids=lambda value: getattr(value, "exercise", getattr(value, "__name__", "design")),
)
def test_differently_written_right_answers_pass(check, right):
    result = check.result(right)
    assert (result.status, result.misconceptions) == ("passed", ()), result.message


@pytest.mark.parametrize(
    ("design", "idea"),
    [
        ({"exponent_bits": 3, "mantissa_bits": 4, "bias": 14}, "precision-is-all-that-counts"),
        ({"exponent_bits": 6, "mantissa_bits": 1, "bias": 45}, "range-is-all-that-counts"),
        ({"exponent_bits": 4, "mantissa_bits": 4, "bias": 20}, "sign-bit-is-free"),
    ],
)
def test_designs_that_were_not_shipped_are_told_their_idea_too(design, idea):
    assert check_eight_bits.result(design).misconceptions == (idea,)


def test_a_design_in_which_two_things_are_wrong_is_told_no_idea():
    for bias in (7, 24):
        design = {"exponent_bits": 4, "mantissa_bits": 3, "bias": bias}
        result = check_eight_bits.result(design)
        assert (result.status, result.misconceptions) == ("failed", ())


def window_in_float32(x, dtype, *, gone=lambda x, after: after == 0, median=torch.median):
    x = x[x != 0]
    after = x.to(dtype).float()
    kept = after != 0
    return gone(x, after).float().mean().item(), median(((after - x) / x).abs()[kept]).item()


def below_normal(x, dtype):
    return window_in_float32(x, dtype, gone=lambda x, after: x.abs() < torch.finfo(dtype).tiny)


def rounded_by_int(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = int(x / gap) * gap
    return value if abs(value) <= 65504 else math.copysign(65504.0, x)


def clamped(x):
    return max(-65504.0, min(65504.0, snap_by_numpy(x))) if math.isfinite(x) else x


def halves_go_up(x):
    if not math.isfinite(x):
        return x
    gap = spacing(x, FP16)
    value = math.floor(abs(x) / gap + 0.5) * gap
    return (value if value <= 65504 else math.inf) * (-1 if x < 0 else 1)


@pytest.mark.parametrize(
    ("check", "wrong", "idea"),
    [
        (check_snap, rounded_by_int, "casts-truncate"),
        (check_snap, clamped, "overflow-saturates"),
        (check_snap, halves_go_up, "ties-go-up"),
        (check_snap, lambda x: torch.tensor(x, dtype=torch.float64).half().item(),
         "rounding-twice-is-rounding-once"),
        (check_snap, lambda x: snap_by_numpy(x) + 0, "zero-has-no-sign"),
        (check_window, below_normal, "lost-means-below-normal"),
        (check_window, lambda x, dtype: window_in_float32(x, torch.float16),
         "fp16-and-bf16-lose-alike"),
        (check_ulp, lambda x: 2.0 ** (max(math.frexp(x)[1], -14) - 10), "frexp-starts-at-one"),
        (check_ulp, lambda x: 2.0 ** (math.frexp(x)[1] - 11), "gap-shrinks-below-normal"),
        (check_ulp, lambda x: abs(x) * torch.finfo(torch.float16).eps, "ulp-is-relative"),
    ],
)  # fmt: skip
def test_wrong_answers_written_in_another_way_are_told_their_idea_too(check, wrong, idea):
    assert check.result(wrong).misconceptions == (idea,)


def in_place(x):
    codes = x.view(torch.int32)
    codes += 0x1000
    return (codes & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (check_window, lambda x, dtype: window_in_float32(x, dtype, median=torch.mean)),
        (check_window, lambda x, dtype: window_in_float32(x, torch.float32)),
        (check_window, lambda x, dtype: 0.5),
        (check_window, lambda x, dtype: (0.5, 0.5, 0.5)),
        (check_snap, lambda x: x),
        (check_snap, lambda x: 0.0 if 4096 < abs(x) < 65000 else snap_by_numpy(x)),
        (check_tf32, in_place),
        (check_tf32, lambda x: x.tolist()),
        (check_tf32, lambda x: x.sum()),
        (check_tf32, lambda x: x.int().float()),
        (check_tf32, lambda x: x.half()),
        (check_tf32, lambda x: None),
        (check_ulp, lambda x: 0.0),
        (check_decode, lambda code, e, m, bias: float(code)),
    ],
)
def test_other_wrong_answers_fail_and_are_told_no_idea(check, wrong):
    result = check.result(wrong)
    assert (result.status, result.misconceptions) == ("failed", ()), result.message


@pytest.mark.parametrize(
    "design",
    [
        5,
        [5, 2, 38],
        {},
        {"exponent_bits": 5, "mantissa_bits": 2},
        {"exponent_bits": 5.0, "mantissa_bits": 2, "bias": 38},
        {"exponent_bits": 7, "mantissa_bits": 0, "bias": 60},
        {"exponent_bits": 9, "mantissa_bits": -2, "bias": 38},
        {"exponent_bits": 5, "mantissa_bits": 2, "bias": 10**9},
        {"exponent_bits": True, "mantissa_bits": 6, "bias": 1},
    ],
)
def test_designs_that_make_no_sense_fail_with_a_sentence(design):
    result = check_eight_bits.result(design)
    assert result.status == "failed" and result.message
