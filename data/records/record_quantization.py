"""Record what lab 09 says about quantizing the course's GPT and a digit reader.

    nice -n 5 python data/records/record_quantization.py

The course's GPT (data/gpt), in bits a character on the last 10 % of the text, as differences from
the float32 model; calibration reads the other 90 %. Weights: all matrices, embeddings and head too,
with FP16 scales; biases and norms stay float32; bytes count all of it. Activations: 8-bit weights,
and the inputs of all linear layers in 8, 6 or 4 bits. Cache: keys and values of each head. Digits:
five splits, each with its own network. Fine-tuning: rank 8, alpha 16, on the blocks' eight linear
layers, bits a character at some steps, five seeds.

A part that the file holds is not computed again: delete it from the file to record it anew.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from common import about, cpu, file_of, read, write
from torch import nn

from labkit.formats import choose, fake_quantize, quantize_affine
from labkit.labs.quantization.calibration import Observer
from labkit.labs.quantization.linear import (
    QuantLinear,
    integer_linear,
    quant_layers,
    replace_linears,
)
from labkit.labs.quantization.solutions import LoRALinear, smooth
from labkit.labs.quantization.weights import (
    QuantizedWeight,
    group_quantize,
    layer_inputs,
    matrices,
    plant_key_outliers,
    plant_outliers,
    scales_for,
    with_weights,
)
from labkit.training import bits_per_character, cross_entropy, train, trained_gpt
from labkit.training.data import (
    batches,
    character_batches,
    characters,
    digits,
    shakespeare,
    shakespeare_split,
)
from labkit.training.models import Block, mlp

SEEDS = range(5)
CONTEXT, BATCH = 64, 16

torch.set_num_threads(1)
vocabulary = characters(shakespeare())
training_text, test_text = shakespeare_split()
gpt = trained_gpt()
base = bits_per_character(gpt, test_text)
calibration = [
    tokens
    for tokens, _ in character_batches(
        training_text, CONTEXT, BATCH, steps=8, seed=7, vocabulary=vocabulary
    )
]
inputs = layer_inputs(gpt, calibration)
OUTER = ("token", "position", "head")


def gap(model) -> float:
    return round(bits_per_character(model, test_text) - base, 4)


# Weights


def rounded(name, bits, group, method, clip):
    w = matrices(gpt)[name].weight
    if method == "gptq" and name in inputs:  # embeddings read tokens, which have no Hessian
        return gptq(w, inputs[name], bits=bits, group=group, clip=clip)
    return group_quantize(w, bits=bits, group=group, clip=clip)


def gptq(w, x, *, bits, group, clip) -> QuantizedWeight:
    """Columns rounded one after another, each error pushed into the columns not yet rounded.

    What is made small is the error of ``x @ w.T`` (Frantar et al. 2022, arXiv:2210.17323), in
    float64. Scales are settled beforehand; a hundredth of the Hessian's mean diagonal damps it.
    """
    scales, last = scales_for(w, bits=bits, group=group, clip=clip), 2 ** (bits - 1) - 1
    ones = torch.ones_like(w, dtype=torch.int8)
    steps = QuantizedWeight(codes=ones, scales=scales, bits=bits).dequantize().double()
    hessian = x.detach().double().t() @ x.detach().double()
    ridge = (0.01 * hessian.diagonal().mean()).clamp(min=torch.finfo(torch.float32).tiny)
    inverse = torch.cholesky_inverse(
        torch.linalg.cholesky(hessian + ridge * torch.eye(len(hessian)))
    )
    factor = torch.linalg.cholesky(inverse).mT
    rest = w.detach().double().clone()
    codes = torch.empty_like(rest)
    for j in range(w.shape[1]):
        codes[:, j] = (rest[:, j] / steps[:, j]).round().clamp(-last, last)
        error = (rest[:, j] - codes[:, j] * steps[:, j]) / factor[j, j]
        rest[:, j + 1 :] -= error[:, None] * factor[j, j + 1 :]
    return QuantizedWeight(codes=codes.to(torch.int8), scales=scales, bits=bits)


def packed(plan: Callable[[str], tuple]) -> tuple[int, float]:
    """Bytes, where what is not in a matrix has 4 a parameter, and the gap."""
    weights = {name: rounded(name, *plan(name)) for name in matrices(gpt)}
    left = sum(p.numel() for p in gpt.parameters()) - sum(q.codes.numel() for q in weights.values())
    size = 4 * left + sum(q.nbytes for q in weights.values())
    return size, gap(with_weights(gpt, weights))


def weight_grid():
    rows = []
    for bits in (8, 4, 3, 2):
        for method, group in [
            ("nearest", "tensor"), ("nearest", "row"), ("nearest", 32), ("gptq", "row"),
            ("gptq", 32),
        ]:  # fmt: skip
            for clip in (False, True):
                settings = (bits, group, method, clip)
                size, loss = packed(lambda name, settings=settings: settings)
                row = {"bits": bits, "group": group, "method": method, "clip": clip}
                rows.append(row | {"bytes": size, "gap": loss})
                print(rows[-1], flush=True)
    return rows


def packings():
    """Bits of the blocks 4; of embeddings and head, ``outer``."""
    rows = []
    for outer in (8, 6, 5, 4):
        for method, clip in (
            ("nearest", False),
            ("nearest", True),
            ("gptq", False),
            ("gptq", True),
        ):
            for group in ("row", 64, 32):
                size, loss = packed(
                    lambda name, o=outer, g=group, m=method, c=clip: (
                        (o, "row", m, c) if name in OUTER else (4, g, m, c)
                    )
                )
                row = {"outer": outer, "group": group, "method": method, "clip": clip}
                rows.append(row | {"bytes": size, "gap": loss})
                print(rows[-1], flush=True)
    return rows


# Activations


def norms(model):
    """Each norm of the blocks with the layer that reads it, by that layer's name."""
    for i, block in enumerate(model.blocks):
        yield f"blocks.{i}.qkv", block.attention_norm, block.qkv
        yield f"blocks.{i}.feed_forward.0", block.feed_forward_norm, block.feed_forward[0]


class RoundedInputs:
    """While it is open, a model's linear layers read rounded inputs."""

    def __init__(self, model, round_input):
        self.hooks = [
            layer.register_forward_pre_hook(lambda _, x, name=name: (round_input(name, x[0]),))
            for name, layer in model.named_modules()
            if isinstance(layer, nn.Linear)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()


def with_inputs(model, bits, kind):
    """The gap with 8-bit weights and inputs on grids of this kind; "token" is one for each."""
    weights = {n: group_quantize(layer.weight, bits=8) for n, layer in matrices(model).items()}
    if kind != "token":
        grids = {}
        for name, x in layer_inputs(model, calibration).items():
            observer = Observer(kind, bits=bits)
            # A search reads its values 256 times: it gets every eighth token.
            observer.observe(x if kind == "minmax" else x[::8])
            grids[name] = observer.freeze()

    def round_input(name, x):
        if kind != "token":
            return fake_quantize(x, grids[name])
        lo, hi = x.aminmax(dim=-1)
        return fake_quantize(x, choose(lo, hi, bits=bits, symmetric=False, axis=(0, 1)))

    network = with_weights(model, weights)
    with RoundedInputs(network, round_input):
        return gap(network)


def activations():
    rows = []
    for factor in (1, 30, 100):
        for smoothed in (False, True):
            model = copy.deepcopy(gpt)
            generator = torch.Generator().manual_seed(3)
            for _, norm, linear in norms(model):
                plant_outliers(norm, linear, torch.randperm(64, generator=generator)[:2], factor)
            if smoothed:
                seen = layer_inputs(model, calibration)
                for name, norm, linear in norms(model):
                    smooth(norm, linear, seen[name].abs().amax(dim=0))
            row = {"planted": factor, "smoothed": smoothed, "float32": gap(model), "gaps": {}}
            kinds = ["minmax", "token"]
            kinds += ["percentile", "mse", "entropy"] if factor == 1 and not smoothed else []
            for kind in kinds:
                row["gaps"][kind] = {bits: with_inputs(model, bits, kind) for bits in (8, 6, 4)}
            rows.append(row)
            print(row, flush=True)
    return rows


def cache():
    """Keys or values of each head on a grid for each token, or for each channel of a piece."""

    def rounding(of: str, bits: int, dim: int):
        def attention(self, x):
            qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))
            parts = dict(zip("qkv", qkv.permute(2, 0, 3, 1, 4), strict=True))
            axes = tuple(axis for axis in range(4) if axis != dim)
            lo, hi = parts[of].aminmax(dim=dim)
            grid = choose(lo, hi, bits=bits, symmetric=False, axis=axes)
            parts[of] = fake_quantize(parts[of], grid)
            mixed = F.scaled_dot_product_attention(*parts.values(), is_causal=True)
            return self.attention_out(mixed.transpose(1, 2).flatten(2))

        return attention

    rows, attention = [], Block.attention
    for factor in (1, 16):
        model = copy.deepcopy(gpt)
        for block in model.blocks:
            plant_key_outliers(block, 3, factor)
        row = {"planted": factor, "float32": gap(model), "gaps": {}}
        for of in "kv":
            for name, dim in (("token", 3), ("channel", 2)):
                row["gaps"][f"{of} {name}"] = {}
                for bits in (8, 4, 3, 2):
                    Block.attention = rounding(of, bits, dim)
                    row["gaps"][f"{of} {name}"][bits] = gap(model)
        Block.attention = attention
        rows.append(row)
        print(row, flush=True)
    return rows


# Digits


class IntegerReader(nn.Module):
    """Linear layers and ReLUs in integers: codes in, codes out, sums in int32; ranges of images.

    Behind a ReLU the zero point is 0, and what is negative saturates there.
    """

    @torch.no_grad()
    def __init__(self, model, images):
        super().__init__()
        inputs = layer_inputs(model, [images])
        seen = [*inputs.values(), model(images)]
        self.grids = [choose(*x.aminmax(), bits=8, symmetric=False) for x in seen]
        for i, name in enumerate(inputs):
            linear = model.get_submodule(name)
            rows = choose(*linear.weight.aminmax(dim=1), bits=8, symmetric=True, axis=0)
            scale = self.grids[i].scale * rows.scale  # of the sums, so of the bias
            self.register_buffer(f"weight{i}", quantize_affine(linear.weight, rows))
            self.register_buffer(f"bias{i}", (linear.bias / scale).round().int())
            self.register_buffer(f"scale{i}", scale)

    def forward(self, images):
        codes = quantize_affine(images.flatten(1), self.grids[0])
        for i, (before, after) in enumerate(zip(self.grids, self.grids[1:], strict=False)):
            weight, bias, scale = (getattr(self, f"{n}{i}") for n in ("weight", "bias", "scale"))
            sums = integer_linear(codes, weight, int(before.zero_point)) + bias
            rescaled = (sums.double() * (scale.double() / after.scale)).round()
            codes = (rescaled + after.zero_point).clamp(after.low, after.high).to(after.dtype)
        return codes


class WithoutSTE(QuantLinear):
    """Rounds its weights as autograd sees it: with the derivative 0."""

    def forward(self, x):
        steps = self.weight_grid.scale[:, None]
        weight = (self.weight / steps).round() * steps
        return F.linear(fake_quantize(x, self.inputs.grid), weight, self.bias)


def digit_rows():
    rows = []
    for seed in SEEDS:
        torch.manual_seed(seed)
        data = digits(seed)
        images, labels = data.train_images, data.train_labels

        def answers(network, images=data.test_images):
            with torch.no_grad():
                return network.eval()(images).int().argmax(dim=1)

        def share(network, truth=data.test_labels):
            return round((answers(network) == truth).float().mean().item(), 4)

        network = mlp(64, 64, 64, 10)
        train(
            network, batches(images, labels, 64, seed=seed), epochs=20, progress=False,
            optimizer=torch.optim.Adam(network.parameters(), lr=3e-3),
        )  # fmt: skip
        integers = IntegerReader(network, images[:256])
        row = {
            "seed": seed,
            "float32": share(network),
            "integers": share(integers),
            "answers_changed": int((answers(network) != answers(integers)).sum()),
            "bytes": [
                sum(tensor.nbytes for tensor in model.state_dict().values())
                for model in (network, integers)
            ],
        }
        for bits in (3, 2):
            for name, kind in (("ste", QuantLinear), ("no_ste", WithoutSTE)):
                quantized = replace_linears(
                    copy.deepcopy(network), lambda _, x, k=kind, b=bits: k.from_linear(x, bits=b)
                )
                # Calibrated as a layer that rounds nothing yet sees its inputs.
                with torch.no_grad():
                    for layer, (_, x) in zip(
                        quant_layers(quantized),
                        layer_inputs(network, [images]).items(),
                        strict=True,
                    ):
                        layer.inputs.observe(x)
                        layer.freeze()
                row[f"after_{bits}"] = share(quantized)
                before = [layer.weight.clone() for layer in quant_layers(quantized)]
                train(
                    quantized, batches(images, labels, 64, seed=seed), epochs=5, progress=False,
                    optimizer=torch.optim.Adam(quantized.parameters(), lr=1e-3),
                )  # fmt: skip
                row[f"trained_{bits}_{name}"] = share(quantized)
                row[f"moved_{bits}_{name}"] = max(
                    (layer.weight - was).abs().max().item()
                    for layer, was in zip(quant_layers(quantized), before, strict=True)
                )
        rows.append(row)
        print(row, flush=True)
    return rows


# Fine-tuning

AT = (0, 25, 50, 100, 150, 200, 250, 300, 350, 400)


def on_float32(_, linear):
    """The same adapters and the same BF16 matmuls on weights that are not rounded to codes."""
    ones = torch.ones(linear.out_features, 1)
    return LoRALinear(linear.weight.detach(), ones, linear.bias.detach())


def on_codes(bits):
    def make(_, linear):
        q = group_quantize(linear.weight, bits=bits)
        return LoRALinear(q.codes, q.scales, linear.bias.detach())

    return make


def adapters(make):
    def prepare():
        gpt = trained_gpt().requires_grad_(False)
        return replace_linears(gpt, make, skip=("head",)), 3e-3

    return prepare


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


ARMS = {
    ("capitals", "all weights, FP32"): lambda: (trained_gpt(), 1e-3),
    ("capitals", "adapters on FP32"): adapters(on_float32),
    ("capitals", "adapters on 4 bits"): adapters(on_codes(4)),
    ("same text", "adapters on FP32"): adapters(on_float32),
    ("same text", "adapters on 4 bits"): adapters(on_codes(4)),
    ("same text", "adapters on 3 bits"): adapters(on_codes(3)),
}
"""By task and arm, in the order in which they are recorded."""


def fine_tuned(task, prepare, seed):
    """Bits a character at each step of AT."""
    change: Callable[[str], str] = str.upper if task == "capitals" else str
    torch.manual_seed(seed)
    model, lr = prepare()
    optimizer = torch.optim.AdamW(trained(model), lr=lr, weight_decay=0)
    text = change(test_text)
    bits = [round(bits_per_character(model, text), 4)]
    loader = character_batches(
        change(training_text), CONTEXT, BATCH, steps=AT[-1], seed=seed, vocabulary=vocabulary
    )
    for step, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        cross_entropy(model(x).float(), y).backward()
        optimizer.step()
        if step in AT:
            bits.append(round(bits_per_character(model, text), 4))
    print(task, seed, bits, flush=True)
    return bits


# The file


def main(file):
    record = read(file)
    record |= about(__file__, __doc__, cpu(), torch=torch.__version__)
    record |= {"bits_per_character": round(base, 4), "at": AT}
    parts = {
        "weights": weight_grid,
        "packings": packings,
        "activations": activations,
        "cache": cache,
        "digits": digit_rows,
    }
    for name, measure in parts.items():
        if name not in record:
            record[name] = measure()
            write(file, record, '],"')
    runs = record.setdefault("fine_tuning", {})
    for (task, arm), prepare in ARMS.items():
        done = runs.setdefault(task, {}).setdefault(arm, [])
        while len(done) < len(SEEDS):
            done.append(fine_tuned(task, prepare, len(done)))
            write(file, record, '],"')


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/quantization.json"))
