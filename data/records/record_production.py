"""Record what lab 15 says about tests of a precision change, checkpoints and flipped bits.

    nice -n 5 python data/records/record_production.py

Designs and pairing: an MLP (64, 32, 10) on the digits, 150 steps of SGD at 0.1 with momentum 0.9 on
batches of 32, 250 seeds; the broken arm keeps a tenth of each gradient. Scores: the same MLP, 12
seeds, 1,000 steps of SGD at 0.02 without momentum; FP16 under emulate_gpu() with a static loss
scale of 200,000 and no look at the gradients. Resumes: an MLP with dropout, AdamW, a cosine
schedule, emulated FP16 with GradScaler, 30 steps and 30 after a resume that leaves a part out, five
seeds. NaN batch: the MLP of the designs, SGD at 0.1, batch 60 of 120 is NaN, five seeds. Files: a
checkpoint of the MLP of the resumes, one random bit flipped in 300 copies, in 100 for
torch.distributed.checkpoint; 100 copies cut at a random place. Flips: one random bit of the trained
GPT's matrices, 8 for each bit, on 24 pieces of 64 characters, five seeds.

A part that the file holds is not computed again: delete it from the file to record it anew.
"""

import copy
import math
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from common import about, cpu, file_of, read, write
from safetensors.torch import load_file, save_file
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from labkit.emulation import emulate_gpu
from labkit.labs.production.flips import loss_changes
from labkit.training import evaluate, train, trained_gpt
from labkit.training.data import batches, characters, digits, shakespeare, shakespeare_split
from labkit.training.models import mlp

SEEDS = range(5)
RUNS, STEPS, BATCH, PAIRS = 250, 150, 32, 5

torch.set_num_threads(1)
data = digits()


# A/B designs: many small networks at once


class Reversed(nn.Linear):
    """A linear layer that adds up its input features from the last to the first."""

    def forward(self, x):
        return F.linear(x.flip(-1), self.weight.flip(-1), self.bias)


def starts(seeds):
    models = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(mlp(64, 32, 10))
    return stack_module_state(models)[0]


def orders(seeds):
    """Which images each step reads: steps x runs x batch."""
    found = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(1_000_000 + seed)
        count = -(-STEPS * BATCH // len(data.train_labels))
        epochs = [torch.randperm(len(data.train_labels), generator=generator) for _ in range(count)]
        found.append(torch.cat(epochs)[: STEPS * BATCH].view(STEPS, BATCH))
    return torch.stack(found, dim=1)


def many(start, order, *, arm="fp32", kept=lambda step: 1.0):
    """Losses, steps x runs, and the final test losses of runs that train side by side."""
    network = mlp(64, 32, 10)
    if arm == "reversed":
        for layer in network:
            if isinstance(layer, nn.Linear):
                layer.__class__ = Reversed

    def loss(parameters, x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=arm == "bf16"):
            logits = functional_call(network, parameters, (x,))
        return F.cross_entropy(logits.float(), y)

    each = vmap(loss)
    weights = {name: w.detach().clone().requires_grad_() for name, w in start.items()}
    speed = {name: torch.zeros_like(w) for name, w in weights.items()}
    losses = []
    for step, places in enumerate(order):
        found = each(weights, data.train_images[places], data.train_labels[places])
        gradients = torch.autograd.grad(found.sum(), list(weights.values()))
        with torch.no_grad():
            for (name, w), gradient in zip(weights.items(), gradients, strict=True):
                speed[name].mul_(0.9).add_(gradient, alpha=kept(step))
                w.sub_(speed[name], alpha=0.1)
        losses.append(found.detach())
    with torch.no_grad():
        runs = order.shape[1]
        x = data.test_images.expand(runs, *data.test_images.shape)
        final = each(weights, x, data.test_labels.expand(runs, -1))
    return torch.stack(losses).double().numpy(), final.double().numpy()


def t_limit(degrees):
    """The 97.5 % quantile of Student's t: Abramowitz and Stegun 26.7.5."""
    z = 1.959964
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def different(one, other):
    """Does Welch's t-test call two samples different at 5 %?"""
    shares = [values.var(ddof=1) / len(values) for values in (one, other)]
    if sum(shares) == 0:
        return bool(one.mean() != other.mean())
    degrees = sum(shares) ** 2 / sum(s * s / (len(one) - 1) for s in shares)
    return bool(abs(one.mean() - other.mean()) > t_limit(degrees) * sum(shares) ** 0.5)


def different_pairs(one, other):
    gap = one - other
    return bool(abs(gap.mean()) > t_limit(len(gap) - 1) * gap.std(ddof=1) / len(gap) ** 0.5)


def designs():
    """For each design, how often FP32 differs from FP32 and from an arm that is broken."""
    start, order = starts(range(RUNS)), orders(range(RUNS))
    other = range(RUNS, 2 * RUNS)
    own, own_order = starts(other), orders(other)
    plain, final = many(start, order)
    apart, final_apart = many(own, own_order)
    _, final_reversed = many(start, order, arm="reversed")
    half = STEPS // 2
    phases, _ = many(start, order, kept=lambda step: 0.1 if step >= half else 1.0)
    turns, _ = many(start, order, kept=lambda step: 0.1 if step % 2 else 1.0)
    _, final_broken = many(start, order, kept=lambda step: 0.1)
    apart_broken, final_apart_broken = many(own, own_order, kept=lambda step: 0.1)

    def count(test, one, two):
        return sum(test(a, b) for a, b in zip(one, two, strict=True))

    def groups(values):
        return values.reshape(-1, PAIRS)

    def row(test, alike, defect):
        return {
            "experiments": len(alike[0]),
            "alike": count(test, *alike),
            "broken": count(test, *defect),
        }

    def last(losses):
        return losses[half:].T

    found = {
        "phases of one run": row(
            different, (plain[:half].T, plain[half:].T), (phases[:half].T, phases[half:].T)
        ),
        "alternating steps of one run": row(
            different, (plain[::2].T, plain[1::2].T), (turns[::2].T, turns[1::2].T)
        ),
        "step losses of two runs": row(
            different, (last(plain), last(apart)), (last(plain), last(apart_broken))
        ),
        f"final losses of {PAIRS} runs each, own seeds": row(
            different,
            (groups(final), groups(final_apart)),
            (groups(final), groups(final_apart_broken)),
        ),
        f"final losses of {PAIRS} pairs": row(
            different_pairs,
            (groups(final), groups(final_reversed)),
            (groups(final), groups(final_broken)),
        ),
    }
    print("designs", found, flush=True)
    return found


def pairing():
    """Final test losses in FP32 and BF16, by what the two runs of a pair share."""
    start, order = starts(range(RUNS)), orders(range(RUNS))
    other = range(RUNS, 2 * RUNS)
    _, fp32 = many(start, order)
    shared = {
        "weights and order": (start, order),
        "order": (starts(other), order),
        "weights": (start, orders(other)),
        "nothing": (starts(other), orders(other)),
    }
    found = {"fp32": rounded(fp32)}
    for name, setting in shared.items():
        found[name] = rounded(many(*setting, arm="bf16")[1])
    gaps = {name: np.std(np.array(v) - found["fp32"], ddof=1) for name, v in found.items()}
    print("pairing", gaps, flush=True)
    return found


def rounded(values):
    return [round(float(value), 5) for value in values]


# Scores to decide on


def fitted(arm, seed, *, steps=1000):
    """A trained MLP: SGD at 0.02; a static loss scale of 200,000 where the arm says so."""
    torch.manual_seed(seed)
    model = mlp(64, 32, 10)
    if arm == "pure bf16":
        model.to(torch.bfloat16)
    sgd = torch.optim.SGD(model.parameters(), lr=0.02)
    loader = batches(data.train_images, data.train_labels, 32, seed=seed)
    scale = 200_000.0 if arm.startswith("fp16") else 1.0
    narrow = {"bf16": torch.bfloat16, "fp16, scale 200,000": torch.float16}.get(arm)
    dtype = next(model.parameters()).dtype
    step = 0
    with emulate_gpu():
        while step < steps:
            for x, y in loader:
                if step == steps:
                    break
                sgd.zero_grad()
                with torch.autocast("cpu", narrow, enabled=narrow is not None):
                    logits = model(x.to(dtype))
                (F.cross_entropy(logits.float(), y) * scale).backward()
                for p in model.parameters():
                    p.grad /= scale
                sgd.step()
                step += 1
    return model.float()


def score(model):
    if not all(p.isfinite().all() for p in model.parameters()):
        return None
    return round(evaluate(model, data.test_images, data.test_labels), 4)


def scores():
    found = {}
    for arm in ("fp32", "bf16", "fp16, scale 200,000", "pure bf16"):
        found[arm] = {seed: score(fitted(arm, seed)) for seed in range(12)}
        print("scores", arm, found[arm], flush=True)
    return found


# Resumes


class Images:
    """Batches of 48 images in an order that can be saved."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.shuffle()

    def shuffle(self):
        self.places = torch.randperm(len(data.train_labels), generator=self.generator)
        self.at = 0

    def next(self):
        if self.at + 48 > len(self.places):
            self.shuffle()
        places = self.places[self.at : self.at + 48]
        self.at += 48
        return data.train_images[places], data.train_labels[places]

    def state_dict(self):
        return {"generator": self.generator.get_state(), "places": self.places, "at": self.at}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])
        self.places, self.at = state["places"], state["at"]


class Run:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 60)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=16)
        self.data = Images(seed)
        self.losses, self.skips = [], 0

    def go(self, steps):
        self.model.train()
        with emulate_gpu(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a skipped first step comes before the schedule's
            for _ in range(steps):
                x, y = self.data.next()
                self.optimizer.zero_grad()
                with torch.autocast("cpu", torch.float16):
                    logits = self.model(x)
                loss = F.cross_entropy(logits.float(), y)
                self.scaler.scale(loss).backward()
                before = self.scaler.get_scale()
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.skips += self.scaler.get_scale() < before
                self.schedule.step()
                self.losses.append(loss.item())
        return self

    def parts(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
            "data order": self.data,
        }

    def state(self):
        return copy.deepcopy({name: part.state_dict() for name, part in self.parts().items()}) | {
            "RNG": torch.get_rng_state()
        }

    def load(self, state, missing):
        for name, part in self.parts().items():
            if name != missing:
                part.load_state_dict(copy.deepcopy(state[name]))
        if missing == "growth counter":
            self.scaler.load_state_dict(state["scaler"] | {"_growth_tracker": 0})
        if missing != "RNG":
            torch.set_rng_state(state["RNG"])
        return self

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def test_loss(self):
        self.model.eval()
        with torch.no_grad():
            return F.cross_entropy(self.model(data.test_images), data.test_labels).item()


MISSING = (
    *("nothing", "optimizer", "schedule", "scaler", "growth counter"),
    *("RNG", "data order"),
)


def resumed(missing, seed):
    whole = Run(seed)
    first = whole.weights()
    state = whole.go(30).state()
    skips = whole.skips
    whole.go(30)
    way = (whole.weights() - first).norm()
    again = Run(seed + 100)
    torch.manual_seed(seed + 500)
    again.load(state, missing).go(30)
    pairs = zip(whole.losses[30:], again.losses, strict=True)
    return {
        "off": float(f"{((again.weights() - whole.weights()).norm() / way).item():.4g}"),
        "first_other_loss": next((i for i, (a, b) in enumerate(pairs) if a != b), None),
        "skips": again.skips - (whole.skips - skips),
        "scale": again.scaler.get_scale() / whole.scaler.get_scale(),
        "test_loss": round(again.test_loss() - whole.test_loss(), 4),
    }


def resumes():
    found = {missing: [resumed(missing, seed) for seed in SEEDS] for missing in MISSING}
    print("resumes", found, flush=True)
    return found


# A NaN batch


def nan_batch():
    """Steps taken after the NaN batch that leave finite weights, and the test accuracy."""
    found = {}
    for precision in ("fp16", "bf16"):
        rows = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            model = mlp(64, 32, 10)
            sgd = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = batches(data.train_images, data.train_labels, 32, seed=seed)
            stream = [batch for _ in range(3) for batch in loader][:120]
            stream[60] = (stream[60][0] * math.nan, stream[60][1])
            if precision == "fp16":
                run = train(model, stream, optimizer=sgd, precision="fp16", progress=False)
                skips, dead = sum(step.skipped for step in run), not math.isfinite(run[-1].loss)
            else:
                skips, dead = 0, not math.isfinite(unguarded(model, sgd, stream))
            accuracy = evaluate(model, data.test_images, data.test_labels)
            rows.append({"skips": skips, "dead": dead, "accuracy": round(accuracy, 4)})
        found[precision] = rows
    print("NaN batch", found, flush=True)
    return found


def unguarded(model, sgd, stream):
    """The last loss of BF16 autocast as it is usually written: no scaler, no look at anything."""
    with emulate_gpu():
        for x, y in stream:
            sgd.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(x)
            loss = F.cross_entropy(logits.float(), y)
            loss.backward()
            sgd.step()
    return loss.item()


# Flipped bits


def tensors(state):
    """Its tensors in one order, whatever holds them."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for key in sorted(state, key=str):
            yield from tensors(state[key])


def same(one, other):
    pairs = list(tensors(one)), list(tensors(other))
    return len(pairs[0]) == len(pairs[1]) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(*pairs, strict=True)
    )


def files():
    """What readers say of a file in which one random bit has flipped, or that is cut."""
    run = Run(0).go(5)
    state = {"model": run.model.state_dict(), "optimizer": run.optimizer.state_dict()}
    weights = dict(run.model.state_dict())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pt, st, many_files = Path(folder, "c.pt"), Path(folder, "c.st"), Path(folder, "dcp")
        torch.save(state, pt)
        save_file(weights, st)
        dcp.save({"model": weights}, checkpoint_id=many_files)
        (shard,) = many_files.glob("*.distcp")

        def from_dcp():
            target = {"model": {name: torch.zeros_like(w) for name, w in weights.items()}}
            dcp.load(target, checkpoint_id=many_files)
            return target

        def from_zip():
            if bad := zipfile.ZipFile(pt).testzip():
                raise ValueError(bad)
            return torch.load(pt, weights_only=True)

        readers = {
            "torch.load": (pt, state, lambda: torch.load(pt, weights_only=True), 300),
            "torch.load, mmap": (pt, state, lambda: torch.load(pt, mmap=True), 300),
            "zipfile.testzip, torch.load": (pt, state, from_zip, 300),
            "safetensors": (st, weights, lambda: load_file(st), 300),
            "torch.distributed.checkpoint": (shard, {"model": weights}, from_dcp, 100),
        }
        found = {}
        for name, (path, want, read, count) in readers.items():
            whole, source = path.read_bytes(), np.random.default_rng(0)
            spoiled = []
            for _ in range(count):
                spoilt = bytearray(whole)
                spoilt[source.integers(len(whole))] ^= 1 << int(source.integers(8))
                spoiled.append(bytes(spoilt))
            cut = [whole[: source.integers(1, len(whole))] for _ in range(100)]
            found[name] = {
                "flipped": outcomes(path, spoiled, want, read),
                "cut": outcomes(path, cut, want, read),
                "bytes": len(whole),
            }
            path.write_bytes(whole)
            print("files", name, found[name], flush=True)
    return found


def outcomes(path, contents, want, read):
    found = {"raised": 0, "other values": 0, "same values": 0}
    for content in contents:
        path.unlink()  # a mapped file must not change under who reads it
        path.write_bytes(content)
        try:
            kind = "same values" if same(read(), want) else "other values"
        except KeyboardInterrupt:
            raise
        except BaseException:  # torch.distributed.checkpoint raises one that is no Exception
            kind = "raised"
        found[kind] += 1
    return found


def flips():
    model, tokens = trained_gpt(), pieces()[:24]
    found = {}
    for name, dtype in (("FP32", torch.float32), ("BF16", torch.bfloat16)):
        found[name] = [
            {bit: [float(f"{c:.3g}") for c in of] for bit, of in changes.items()}
            for changes in (loss_changes(model, tokens, seed=seed, dtype=dtype) for seed in SEEDS)
        ]
        shown = np.array([c for one in found[name] for of in one.values() for c in of])
        print("flips", name, (shown > 0.01).mean(), (shown < 1e-4).mean(), flush=True)
    return {name: [finite(one) for one in of] for name, of in found.items()}


def finite(changes):
    """JSON has no inf: null."""
    return {b: [None if math.isinf(c) else c for c in of] for b, of in changes.items()}


def pieces():
    """The test text in pieces of 65 tokens, of which 64 are predicted."""
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    return tokens.unfold(0, 65, 64)


PARTS = {
    "designs": designs,
    "pairing": pairing,
    "scores": scores,
    "resumes": resumes,
    "nan_batch": nan_batch,
    "files": files,
    "flips": flips,
}


def main(file):
    record = read(file)
    for name, measure in PARTS.items():
        if name not in record:
            record |= about(__file__, __doc__, cpu(), torch=torch.__version__) | {name: measure()}
            write(file, record, '},"', '],"')


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/production.json"))
