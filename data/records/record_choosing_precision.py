"""Record what lab 12 says about the course's GPT in other formats.

    nice -n 5 python data/records/record_choosing_precision.py

Training: SmallGPT(68, 64) from five seeds, 300 steps of AdamW at 2e-3 on batches of 16 x 64
characters, in each precision from the same weights on the same batches; the control is FP32 from
weights that were rounded once to BF16. Bits a character on the last 10 % of the text. Rollouts: 128
prompts of 8 characters of that text and 24 more that the trained GPT draws, five seeds; the bias of
the policy gradient on 32 pieces of 64 characters. Bits: KL of each matrix and of all of them, on 16
pieces of that text, five seeds of the pieces, for the trained GPT and for one with two channels
planted.

A part that the file holds is not computed again: delete it from the file to record it anew.
"""

from dataclasses import asdict

import torch
from common import about, cpu, file_of, read, write

from labkit.labs.choosing_precision.allocation import memory, optimum, total, uniform
from labkit.labs.choosing_precision.rollouts import (
    PAIRS,
    mismatch,
    policies,
)
from labkit.labs.choosing_precision.sensitivity import (
    joint_kl,
    kl_by_bits,
    sizes,
    text_pieces,
)
from labkit.labs.choosing_precision.solutions import allocate
from labkit.labs.quantization.weights import plant_outliers
from labkit.training import bits_per_character, train, trained_gpt
from labkit.training.data import character_batches, characters, shakespeare, shakespeare_split
from labkit.training.models import SmallGPT

SEEDS = range(5)
PRECISIONS = ("fp32", "bf16", "fp16", "pure_bf16")
BUDGETS = (0.02, 0.1)

torch.set_num_threads(1)
vocabulary = characters(shakespeare())
training_text, test_text = shakespeare_split()


def trained(seed: int, precision: str, *, rounded: bool = False) -> float:
    torch.manual_seed(seed)
    model = SmallGPT(vocabulary.size, 64)
    if rounded:
        model.to(torch.bfloat16).float()
    if precision.startswith("pure"):
        model.to(torch.bfloat16)
    train(
        model,
        character_batches(training_text, 64, 16, steps=300, seed=seed, vocabulary=vocabulary),
        optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
        precision=precision,
        progress=False,
    )
    bits = round(bits_per_character(model.float(), test_text), 4)
    print("training", precision, seed, bits, flush=True)
    return bits


def training():
    return {
        "bits": {name: [trained(seed, name) for seed in SEEDS] for name in PRECISIONS},
        "control": [trained(seed, "fp32", rounded=True) for seed in SEEDS],
    }


def gradient_bias(trainer, rollout, seed, cap=0.0):
    """The error of the expected policy gradient by the trainer's logits, over the gradient's norm.

    The expectation is over all tokens, drawn by the engine; a cap of 0 means no weight.
    """
    policy, drawn = trainer.exp(), rollout.exp()
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randn(policy.shape, generator=generator, dtype=torch.float64)
    gain = rewards - (policy * rewards).sum(-1, keepdim=True)
    weight = (trainer - rollout).exp().clamp(max=cap) if cap else 1.0

    def gradient(chances):
        # The gradient of log p[a] by the logits is onehot(a) - p.
        return chances * gain - (chances * gain).sum(-1, keepdim=True) * policy

    true = gradient(policy)
    return ((gradient(drawn * weight) - true).norm() / true.norm()).item()


def rollout(engine: str, seed: int) -> dict[str, float]:
    both = policies(engine, seed=seed)
    found = asdict(mismatch(engine, seed=seed)) | {
        "bias": gradient_bias(*both, seed),
        "bias_capped_at_2": gradient_bias(*both, seed, cap=2),
    }
    print("rollout", engine, seed, found, flush=True)
    return {name: digits(value) for name, value in found.items()}


def allocations(planted: bool, seed: int) -> dict[str, object]:
    gpt, x = trained_gpt(), text_pieces(16, seed=seed)
    if planted:
        first, second = gpt.blocks
        plant_outliers(first.feed_forward_norm, first.feed_forward[0], [3], 2.0**-5)
        plant_outliers(second.attention_norm, second.qkv, [7], 2.0**-5)
    size, cost = sizes(gpt), kl_by_bits(gpt, x)
    row: dict[str, object] = {
        "costs": {name: {b: digits(c) for b, c in of.items()} for name, of in cost.items()},
    }
    for budget in BUDGETS:
        row[f"{budget:g}"] = {
            name: {
                "bits_per_weight": digits(memory(bits, size) / sum(size.values())),
                "sum": digits(total(bits, cost)),
                "measured": digits(joint_kl(gpt, x, bits)),
                "bits": list(bits.values()),
            }
            for name, bits in (
                ("uniform", uniform(cost, budget)),
                ("greedy", allocate(cost, size, budget)),
                ("optimum", optimum(cost, size, budget)),
            )
        }
    print("bits", planted, seed, row, flush=True)
    return row


def digits(value: float) -> float:
    return float(f"{value:.4g}")


PARTS = {
    "rollouts": lambda: {engine: [rollout(engine, seed) for seed in SEEDS] for engine in PAIRS},
    "bits": lambda: {
        name: [allocations(name == "planted", seed) for seed in SEEDS]
        for name in ("natural", "planted")
    },
    "training": training,
}


def main(file) -> None:
    record = read(file)
    for name, measure in PARTS.items():
        if name not in record:
            record |= about(__file__, __doc__, cpu(), torch=torch.__version__) | {name: measure()}
            write(file, record, '],"')


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/choosing_precision.json"))
