"""The labs' predictions: what they say of guesses, and that their cells and notebooks agree."""

import ast
import importlib
import json
import math

import pytest
import torch

from labkit.base.home import NOTEBOOKS, read_manifest
from labkit.devices.roofline import matmul_work
from labkit.emulation import emulate_gpu
from labkit.formats import BF16, E4M3, E5M2, FP16, TF32, nvfp4, quantize, spacing
from labkit.labs.engine import ChoiceGuess, NumberGuess, Prediction, TickGuess
from labkit.labs.engine.misconceptions import misconceptions
from labkit.labs.engine.predictions import explanation_of, split_reasons
from labkit.labs.fp8_and_fp4.layer_tensors import layer_tensors, sqnr
from labkit.labs.interview.handmade import HandmadeGPT
from labkit.training.data import digits_mlp
from labkit.training.scaling import LossScale

LABS = [lab for lab in read_manifest().labs if lab.predictions]
GUESSES = {
    lab.lab: importlib.import_module(f"labkit.labs.{lab.lab.partition('_')[2]}.predictions")
    for lab in LABS
}
PREDICTIONS = {
    (module.LAB, name): value
    for module in GUESSES.values()
    for name, value in vars(module).items()
    if isinstance(value, Prediction)
}
each = pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=lambda one: one.id)


INPUTS = {"step-at-2048", "zero-gradients"}
"""Their answer is one of the numbers that go in: 2048, and the 100 of percent."""


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


SOLVED = {
    (lab.lab, cell["metadata"]["labkit"]["predict"]): cell
    for lab in LABS
    for cell in cells_of(NOTEBOOKS / "solutions" / f"{lab.lab}.ipynb")
    if "predict" in cell["metadata"].get("labkit", {})
}


def shown(prediction):
    """What the solved notebook shows below the cell."""
    cell = SOLVED[prediction.lab, prediction.id]
    return "".join(cell["outputs"][-1]["data"]["text/plain"])


def truth_of(prediction):
    """What the solved notebook gives as the answer."""
    first = shown(prediction).partition("\n")[0]
    return prediction.read(first.removeprefix("The answer is ").removesuffix("."))


def test_every_prediction_is_asked_by_its_lab_and_by_its_name():
    declared = {(lab, one.id) for (lab, _), one in PREDICTIONS.items()}
    assert declared == {(lab.lab, slug) for lab in LABS for slug in lab.predictions}
    for (lab, name), one in PREDICTIONS.items():
        assert (one.lab, one.id) == (lab, name.replace("_", "-"))


def test_the_solved_notebook_alone_shows_what_stands_behind_an_answer():
    learners = {
        lab: ["".join(cell["source"]) for cell in cells_of(NOTEBOOKS / f"{lab}.ipynb")]
        for lab in GUESSES
    }
    for prediction in PREDICTIONS.values():
        explanation = explanation_of(prediction)
        assert explanation and shown(prediction).endswith(explanation), prediction.id
        assert not [s for s in learners[prediction.lab] if explanation in s], prediction.id


def wrong_guesses(prediction, truth):
    match prediction:
        case ChoiceGuess():
            return [choice for choice in prediction.choices if choice != truth]
        case TickGuess():
            flipped = range(len(truth))
            return [tuple(t != (i == k) for i, t in enumerate(truth)) for k in flipped]
        case NumberGuess():
            near = [0.0, 1.0, 2.0, truth / 2, truth * 2, truth + 1, truth - 1, truth * 0.9, 1e6]
            near += [10.0, 25.0, 33.0, 40.0, 49.0, 60.0, 75.0, 100.0, math.inf, math.nan]
            return [guess for guess in near if not prediction.is_right(guess, truth)]


@each
def test_every_plausible_wrong_guess_has_its_reason(prediction):
    truth = truth_of(prediction)
    for guess in wrong_guesses(prediction, truth):
        said, ideas = split_reasons(prediction.reasons(guess, truth))
        assert said and all(sentence.endswith((".", "?")) for sentence in said), guess
        assert set(ideas) <= set(misconceptions())


@each
def test_no_reason_belongs_to_the_answer_itself(prediction):
    truth = truth_of(prediction)
    if isinstance(prediction, ChoiceGuess):
        assert prediction.by_choice[truth] == "", "nobody would ever read it"
    if isinstance(prediction, NumberGuess):
        reasons = [prediction.reasons(truth, truth)[0]]
        named = [r for k, r in prediction.by_number.items() if not isinstance(k, tuple)]
        assert not [reason for reason in reasons if reason in named]
    if isinstance(prediction, TickGuess):
        assert truth not in prediction.by_pattern


@pytest.mark.parametrize(
    "prediction",
    [one for one in PREDICTIONS.values() if isinstance(one, NumberGuess) and one.id not in INPUTS],
    ids=lambda one: one.id,
)
def test_no_number_in_the_cell_is_its_answer(prediction):
    tree = ast.parse("".join(SOLVED[prediction.lab, prediction.id]["source"]))
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    assert truth_of(prediction) not in [value for value in values if type(value) in (int, float)]


# What reasons and explanations state


def test_numbers_of_lab_02():
    values = torch.arange(1, 0x7C00, dtype=torch.int16).view(torch.float16)
    assert (int((values < 1).sum()), len(values)) == (15_359, 31_743)
    codes = [torch.tensor(0.1).to(t).view(torch.int16).item() for t in (torch.half, torch.bfloat16)]
    assert codes == [0x2E66, 0x3DCD]
    octaves = [round(math.log2(f.max / f.smallest_subnormal)) for f in (FP16, E5M2, BF16)]
    assert octaves == [40, 32, 261]
    normal = [round(math.log2(f.max / f.smallest_normal)) for f in (FP16, E5M2)]
    assert normal == [30, 30]
    assert math.isinf(quantize(3.4e38, BF16)) and math.isfinite(torch.tensor(3.4e38).item())
    tensors = digits_mlp()
    lost = {name: (x[x != 0].half() == 0).float().mean().item() for name, x in tensors.items()}
    assert lost["gradients"] > 0.25 and lost["weights"] == lost["activations"] == 0
    weights = tensors["weights"].abs()
    assert round(math.log2(weights[weights != 0].min())) == -16


def test_numbers_of_lab_03():
    assert round(math.exp(12)) == 162_755
    assert quantize(math.exp(100), TF32) == math.inf
    assert (201**2, 200 * 202) == (40_401, 40_400)
    assert torch.tensor(1e5).half().isinf()
    for value, gap in ((3.0, 2.0**-9), (40_400.0, 32.0)):
        x = torch.tensor(value).half()
        assert (torch.nextafter(x, torch.tensor(65504.0).half()) - x).item() == gap


def test_numbers_of_lab_04():
    largest = 1e-3 * 2 / (1438 * 64)
    assert f"{largest:.1e}" == "2.2e-08" and quantize(largest, FP16) == 0

    def error(x, scale):
        return f"{abs(quantize(x * scale, FP16) / scale - x) / x:.0e}"

    table = {x: (error(x, 1), error(x, 2.0**12)) for x in (1e-2, 1e-4, 1e-6, 1e-8)}
    assert table[1e-2] == table[1e-4] == ("2e-04", "2e-04")
    assert (table[1e-6], table[1e-8]) == (("1e-02", "2e-04"), ("1e+00", "3e-04"))
    state, skipped = LossScale(scale=2.0**20, growth_interval=2000), 0
    for _ in range(10_000):
        skipped += state.scale > 2.0**20
        state = state.updated(state.scale > 2.0**20)
    assert skipped == 4


def test_numbers_of_labs_05_and_06():
    flop, moved = matmul_work(512, 512, 512, "fp16")
    assert (flop, moved) == (2 * 512**3, 3 * 512**2 * 2) and round(flop / moved) == 171
    assert round(989 / 3.35) == 295
    assert round(1 / 0.65, 2) == 1.54 and 0.45 < 0.3 / 0.65 < 0.5


def test_numbers_of_lab_08():
    _, gradient = layer_tensors()
    right = 57344 / gradient.abs().max()
    for scale in (right, right / 100):
        stored = (gradient * scale).to(torch.float8_e5m2).float() / scale
        assert f"{sqnr(gradient, stored):.1f}" == "25.6"
    assert 20 * math.log10(100) == 40  # dB of equal steps that are 100 times as large
    assert f"{sqnr(gradient, nvfp4(gradient, overflow='saturate').dequantize()):.1f}" == "21.3"
    assert math.log2(448 / E4M3.smallest_normal) < 15 and math.log2(100) < 7


def test_numbers_of_lab_13():
    kept = {n: torch.arange(n).bfloat16().unique().numel() for n in (257, 512, 2048, 4096)}
    assert kept == {257: 257, 512: 257 + 128, 2048: 641, 4096: 257 + 4 * 128}
    assert quantize(4095.0, BF16) == 4096 and spacing(256.0, BF16) == 2
    assert spacing(200.0, BF16) == 1 and round(math.exp(0.5), 1) == 1.6


@pytest.mark.parametrize(("cached", "summed"), [(True, 2048), (False, 2056)])
def test_what_lab_05_says_of_the_weight_cache(cached, summed):
    w = torch.ones(1, 1, requires_grad=True)
    with emulate_gpu(), torch.autocast("cpu", torch.float16, cache_enabled=cached):
        uses = [torch.full((1, 1), x) @ w for x in [1.0] * 8 + [2048.0]]
        total = sum(use.float().sum() for use in uses)
    total.backward()
    assert w.grad.item() == summed


def test_what_lab_16_says_of_masked_fill():
    scores = torch.zeros(1).half()
    with pytest.raises(RuntimeError, match="overflow"):
        scores.masked_fill(torch.ones(1, dtype=torch.bool), -1e9)
    assert torch.where(torch.zeros(1, dtype=torch.bool), scores, -1e9).isinf().all()
    assert "masked_fill" in HandmadeGPT.attend.__code__.co_names
