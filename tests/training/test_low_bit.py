"""Low-bit linear layers: each operand of the three matmuls has the recipe's format and scales.

The oracle quantises with ml_dtypes and numpy, one line at a time, and multiplies in float64.
"""

import copy
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from labkit.formats import BF16, E2M1, E4M3, E5M2, E8M0, FP32, mx, nvfp4, scaled
from labkit.training.low_bit import RECIPES, LowBitLinear, LowBitRecipe, Operand, convert, hadamard
from labkit.training.models import SmallGPT

DTYPES = {
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
    E2M1: ml_dtypes.float4_e2m1fn,
    BF16: ml_dtypes.bfloat16,
}
TOKENS, IN, OUT = 96, 64, 32

THREE = LowBitRecipe(  # no two alike
    Operand(E4M3, "mx"), grad=Operand(E5M2, "tensorwise"), weight=Operand(E2M1, "nvfp4")
)


def oracle(x, operand, axis):
    """What the operand stands for, in float64; x is a float32 tensor of two axes."""
    x = np.moveaxis(x.numpy(), axis, -1)
    if operand.format == FP32:
        return np.moveaxis(x.astype(np.float64), -1, axis)
    dtype = DTYPES[operand.format]
    top = np.float32(ml_dtypes.finfo(dtype).max)
    lines = x.reshape(len(x), -1, operand.block) if operand.block > 1 else x
    amax = np.abs(lines).max(-1, keepdims=True)
    if operand.scaling is None:
        scale = np.float32(1)
    elif operand.scaling == "tensorwise":
        scale = np.abs(x).max() / top
    elif operand.scaling == "rowwise":
        scale = amax / top
    elif operand.scaling == "mx":
        scale = np.exp2(np.floor(np.log2(amax)) - np.floor(np.log2(top)))
    else:
        whole = np.abs(x).max() / np.float32(448 * 6)
        stored = (amax / 6 / whole).clip(2**-6, 448).astype(ml_dtypes.float8_e4m3fn)
        scale = stored.astype(np.float32) * whole
    codes = (lines / scale).clip(-top, top).astype(dtype).astype(np.float64)
    return np.moveaxis((codes * scale).reshape(x.shape), -1, axis)


def tensors():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(TOKENS, IN, generator=generator)
    w = torch.randn(OUT, IN, generator=generator) / 8
    grad = 1e-3 * torch.randn(TOKENS, OUT, generator=generator)
    return x, w, grad


def low_bit(recipe, w, bias=None):
    linear = nn.Linear(w.shape[1], w.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(w.clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.clone())
    return convert(nn.Sequential(linear), recipe)[0]


def three_results(recipe):
    """y, dX and dW."""
    x, w, grad = tensors()
    layer, x = low_bit(recipe, w), x.requires_grad_()
    y = layer(x)
    y.backward(grad)
    return y.detach(), x.grad, layer.weight.grad


def three_references(recipe):
    """Each result in float64, and the bound of float32's additions, gamma_K sum |a||b|. NVFP4's
    two scales are multiplied in another order: two roundings more an operand."""
    x, w, grad = tensors()
    of_x, of_w, of_grad = recipe.operands
    pairs = [
        (oracle(x, of_x, 1), oracle(w, of_w, 1).T),
        (oracle(grad, of_grad, 1), oracle(w, of_w, 0)),
        (oracle(grad, of_grad, 0).T, oracle(x, of_x, 0)),
    ]
    return [(a @ b, (a.shape[1] + 6) * 2.0**-24 * (np.abs(a) @ np.abs(b))) for a, b in pairs]


def inside(result, reference):
    exact, bound = reference
    return bool((np.abs(result.double().numpy() - exact) <= bound).all())


class TestOperands:
    @pytest.mark.parametrize(
        "recipe", [THREE, *(r for n, r in RECIPES.items() if "sr" not in n and "square" not in n)]
    )
    def test_results_equal_float64_references(self, recipe):
        results, references = three_results(recipe), three_references(recipe)
        assert [inside(*pair) for pair in zip(results, references, strict=True)] == [True] * 3

    @pytest.mark.parametrize(
        ("name", "same"), [("values", 1), ("weight", 2), ("grad", 0)], ids=lambda given: given
    )
    def test_each_operand_reaches_its_two_matmuls_and_not_the_third(self, name, same):
        results = three_results(replace(THREE, **{name: Operand(E2M1, "tensorwise")}))
        agree = [inside(*pair) for pair in zip(results, three_references(THREE), strict=True)]
        assert agree == [place == same for place in range(3)]

    @pytest.mark.parametrize("shape", [(48,), (3, 16)], ids=["matrix", "batch of sequences"])
    @pytest.mark.parametrize("bias", [True, False])
    def test_the_fp32_recipe_is_nn_linear_bit_for_bit(self, shape, bias):
        torch.manual_seed(0)
        plain = nn.Linear(IN, OUT, bias=bias)
        low = convert(nn.Sequential(copy.deepcopy(plain)), RECIPES["fp32"])[0]
        values, found = torch.randn(*shape, IN), []
        for layer in (plain, low):
            x = values.clone().requires_grad_()
            y = layer(x)
            y.pow(2).sum().backward()
            found.append([y, x.grad, *(p.grad for p in layer.parameters())])
        assert len(found[0]) == len(found[1]) == 3 + bias
        assert all(torch.equal(*pair) for pair in zip(*found, strict=True))

    def test_unscaled_e4m3_erases_small_gradients_and_a_scale_keeps_them(self):
        """E4M3's smallest value is 2**-9: half of it and less becomes 0."""
        x, w, _ = tensors()
        for value, name, survives in [
            (2.0**-10, "e4m3_unscaled", False),
            (2.0**-9, "e4m3_unscaled", True),
            (2.0**-17, "hybrid_unscaled", False),
            (2.0**-16, "hybrid_unscaled", True),
            (1e-30, "e4m3_tensorwise", True),
        ]:
            layer = low_bit(RECIPES[name], w)
            layer(x).backward(torch.full((TOKENS, OUT), value))
            assert bool(layer.weight.grad.any()) is survives, (value, name)

    @pytest.mark.parametrize(("format", "largest"), [(E4M3, 448.0), (E5M2, 57344.0), (E2M1, 6.0)])
    def test_unscaled_overflow_saturates(self, format, largest):
        cast = Operand(format).cast(torch.tensor([[1e5, -1e6, 1.0]]), 1)
        assert cast.tolist() == [[largest, -largest, 1.0]]

    def test_the_two_copies_of_a_weight(self):
        """Blocks run along the summed axis, so w has other scales forward than for dX."""
        _, w, _ = tensors()
        for name in ("mxfp4", "nvfp4"):
            operand = RECIPES[name].operands[1]
            assert not torch.equal(operand.cast(w, 1), operand.cast(w, 0))
        for name in ("nvfp4_square", "fp8_tensorwise"):
            operand = RECIPES[name].operands[1]
            assert torch.equal(operand.cast(w, 1), operand.cast(w, 0))
            assert torch.equal(operand.cast(w.T.contiguous(), 1), operand.cast(w, 1).T)

    @pytest.mark.parametrize("name", RECIPES)
    def test_bits_count_the_block_scales(self, name):
        _, w, _ = tensors()
        for operand in (RECIPES[name].operands[1], RECIPES[name].values):
            how = {"overflow": "saturate"}
            if operand.scaling == "mx":
                q = mx(w, operand.format, **how)
            elif operand.block > 1:
                q = nvfp4(w, square=operand.scaling == "nvfp4_square", **how)
            elif operand.scaling:
                q = scaled(w, operand.format, **how)
            else:
                assert operand.bits == operand.format.bits
                continue
            for_the_whole = 32 if operand.block == 16 or operand.block == 1 else 0
            assert operand.bits == q.bits_per_value - for_the_whole / w.numel()


class TestRandomness:
    def test_a_seed_gives_the_same_gradients_and_another_one_others(self):
        sr = RECIPES["nvfp4_sr"]
        first, again, other = (three_results(replace(sr, seed=seed)) for seed in (1, 1, 2))
        assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
        assert [torch.equal(*pair) for pair in zip(first, other, strict=True)] == [
            True,  # forward rounds to nearest
            False,
            False,
        ]

    def test_layers_draw_numbers_of_their_own(self):
        x, w, grad = tensors()
        linear = nn.Linear(IN, OUT, bias=False)
        linear.weight = nn.Parameter(w)
        model = nn.ModuleList([linear, copy.deepcopy(linear)])
        one, other = convert(model, RECIPES["nvfp4_sr"])
        for layer in (one, other):
            layer(x).backward(grad)
        assert not torch.equal(one.weight.grad, other.weight.grad)

    def test_the_mean_of_many_draws_nears_the_gradient_and_nearest_does_not(self):
        """64 draws: sixfold closer at least, where independent errors would be eightfold."""
        x, w, grad = tensors()
        recipe = LowBitRecipe(Operand(FP32), grad=Operand(E2M1, "nvfp4", "stochastic"))
        exact = grad.double().T @ x.double()

        def error(dw):
            return ((dw - exact).norm() / exact.norm()).item()

        layer, draws = low_bit(recipe, w), []
        for _ in range(64):
            layer.weight.grad = None
            layer(x).backward(grad)
            draws.append(layer.weight.grad.double())
        nearest = low_bit(LowBitRecipe(Operand(FP32), grad=Operand(E2M1, "nvfp4")), w)
        nearest(x).backward(grad)
        one, mean = error(draws[0]), error(torch.stack(draws).mean(0))
        assert mean < one / 6
        assert mean < error(nearest.weight.grad.double()) / 2 < one / 2

    def test_rotation_cancels_in_the_weight_gradient_and_touches_nothing_else(self):
        plain = three_results(RECIPES["fp32"])
        rotated = three_results(replace(RECIPES["fp32"], rotate_wgrad=True, seed=3))
        assert torch.equal(plain[0], rotated[0])
        assert torch.equal(plain[1], rotated[1])
        assert not torch.equal(plain[2], rotated[2])
        x, _, grad = tensors()
        # 16 more additions an operand; a rotation makes sums of magnitudes at most 16 times larger.
        bound = 16 * (TOKENS + 32) * 2.0**-24 * (grad.double().abs().T @ x.double().abs())
        assert ((plain[2] - rotated[2]).double().abs() <= bound).all()

    def test_the_signs_of_a_rotation_follow_the_seed(self):
        recipe = replace(RECIPES["nvfp4"], rotate_wgrad=True)
        first, again, other = (three_results(replace(recipe, seed=seed))[2] for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)

    def test_rotation_spreads_outliers_before_the_cast(self):
        """One gradient of a hundred is 30 times larger, and sets the scale of all others."""
        x, w, grad = tensors()
        outliers = torch.rand(grad.shape, generator=torch.Generator().manual_seed(1)) < 0.01
        grad = torch.where(outliers, 30 * grad, grad)
        recipe = LowBitRecipe(Operand(FP32), grad=Operand(E2M1, "tensorwise"))
        exact, errors = grad.double().T @ x.double(), []
        for rotate in (False, True):
            layer = low_bit(replace(recipe, rotate_wgrad=rotate), w)
            layer(x).backward(grad)
            errors.append((layer.weight.grad.double() - exact).norm().item())
        assert errors[1] < 0.8 * errors[0]

    def test_hadamard(self):
        for size in (1, 2, 16, 64):
            h = hadamard(size).double()
            assert torch.allclose(h @ h.T, torch.eye(size).double(), atol=1e-6)
            assert (h[0] > 0).all()
        signed = hadamard(16, seed=0)
        assert torch.equal(signed, hadamard(16, seed=0))
        assert not torch.equal(signed, hadamard(16, seed=1))
        assert torch.equal(signed.abs(), hadamard(16).abs())
        assert torch.equal((signed * hadamard(16)).sign()[0], (signed * hadamard(16)).sign()[7])
        for size in (0, 12, -4):
            with pytest.raises(ValueError, match="power of two"):
                hadamard(size)


class TestConvert:
    def test_a_gpt_keeps_its_parameters_and_its_head(self):
        torch.manual_seed(0)
        model = SmallGPT(68, 64)
        before = dict(model.named_parameters())
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        assert convert(model, RECIPES["mxfp4"]) is model
        low = [name for name, m in model.named_modules() if isinstance(m, LowBitLinear)]
        assert len(low) == 8
        assert type(model.head) is nn.Linear
        after = dict(model.named_parameters())
        assert all(after[name] is before[name] for name in before)
        assert after.keys() == before.keys()
        tokens = torch.randint(0, 68, (2, 64))
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        weight = model.blocks[0].qkv.weight
        expected = weight.detach() - 1e-3 * weight.grad
        optimizer.step()
        assert torch.equal(weight, expected)  # float32 masters, no rounding to E2M1
        assert weight.dtype is torch.float32

    def test_updates_below_the_formats_spacing_add_up(self):
        """E2M1 under one scale has a spacing of 1/12 here; 40 steps of 1/100 cross it."""
        layer = low_bit(RECIPES["e2m1_tensorwise"], torch.full((16, 16), 0.5))
        with torch.no_grad():
            layer.weight[0, 0] = 1.0
        x, seen = torch.eye(16), set()
        for _ in range(40):
            with torch.no_grad():
                layer.weight[1, 1] -= 0.01
            seen.add(layer(x)[1, 1].item())
        assert len(seen) == 5  # 0.5, 1/3, 1/4, 1/6, 1/12

    def test_skip_names_a_module_or_a_part_of_names(self):
        def converted(skip):
            model = convert(SmallGPT(68, 64), RECIPES["bf16"], skip=skip)
            return {name for name, m in model.named_modules() if isinstance(m, LowBitLinear)}

        every = converted(())
        assert len(every) == 9
        assert every - converted("head") == {"head"}
        assert every - converted(["blocks.0.qkv"]) == {"blocks.0.qkv"}
        assert {name.split(".")[1] for name in converted(["1", "head"])} == {"0"}
        assert every - converted(["he"]) == set()

    def test_again_gives_the_new_recipe_and_a_shared_layer_stays_shared(self):
        layer = nn.Linear(32, 32)
        model = nn.ModuleList([layer, nn.ReLU(), layer]).eval()
        convert(convert(model, RECIPES["mxfp8"]), RECIPES["nvfp4"])
        assert model[0] is model[2]
        assert model[0].recipe is RECIPES["nvfp4"]
        assert model[0].weight is layer.weight
        assert not model[0].training

    def test_what_reads_a_weight_without_a_call_stays(self):
        attention = nn.MultiheadAttention(32, 2)
        convert(nn.ModuleList([attention, nn.Linear(32, 32)]), RECIPES["mxfp8"])
        assert not isinstance(attention.out_proj, LowBitLinear)

    def test_a_copy_trains_on_alone(self):
        x, w, grad = tensors()
        layer = low_bit(RECIPES["nvfp4_sr"], w)
        twin = copy.deepcopy(layer)
        for each in (layer, twin):
            each(x).backward(grad)
        assert torch.equal(layer.weight.grad, twin.weight.grad)  # the generator was copied too
        assert twin.generator is not layer.generator

    def test_frozen_inputs_and_weights_get_no_gradient(self):
        x, w, grad = tensors()
        layer = low_bit(RECIPES["mxfp4"], w, bias=torch.zeros(OUT))
        layer.weight.requires_grad_(False)
        layer(x).backward(grad)
        assert layer.weight.grad is None
        assert torch.equal(layer.bias.grad, grad.sum(0))

    def test_errors(self):
        with pytest.raises(ValueError, match=r"no nn\.Linear left to convert, skip=\['head'\]"):
            convert(nn.ModuleDict({"head": nn.Linear(32, 32)}), RECIPES["bf16"])
        with pytest.raises(TypeError, match="pass a LowBitRecipe"):
            convert(SmallGPT(68, 64), "mxfp8")
        model = SmallGPT(68, 64)
        with pytest.raises(ValueError, match=r"head: out_features=68 is no multiple .* of 16"):
            convert(model, RECIPES["nvfp4"], skip=())
        assert type(model.blocks[0].qkv) is nn.Linear  # nothing was changed before the error
        with pytest.raises(ValueError, match=r"0: in_features=48 .* of 32"):
            convert(nn.Sequential(nn.Linear(48, 64)), RECIPES["mxfp4"])

    def test_errors_of_a_call(self):
        layer = low_bit(RECIPES["nvfp4_sr_rht"], tensors()[1])
        with pytest.raises(TypeError, match=r"takes float32, got torch\.float64"):
            layer(torch.ones(16, IN, dtype=torch.float64))
        with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match="autocast"):
            layer(torch.ones(16, IN))
        with pytest.raises(ValueError, match="24 tokens are no whole number of groups of 16"):
            layer(torch.ones(24, IN)).sum().backward()
        unrotated = low_bit(RECIPES["mxfp8"], tensors()[1])
        with pytest.raises(ValueError, match="24 zeros"):
            unrotated(torch.ones(40, IN)).sum().backward()


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("e4m3",), TypeError, "pass a FloatFormat"),
        ((E4M3, "blockwise"), ValueError, "scaling must be one of"),
        ((E4M3, None, "random"), ValueError, "rounding must be one of"),
        ((E4M3, "nvfp4"), ValueError, "codes in e2m1, not in e4m3"),
        ((BF16, "tensorwise"), ValueError, "8 bits or less, not for bf16"),
        ((E8M0,), ValueError, "e8m0 has no sign"),
    ],
)
def test_operands_are_checked(arguments, error, match):
    with pytest.raises(error, match=match):
        Operand(*arguments)
