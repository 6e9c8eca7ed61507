"""What emulating a GPU costs: ``python -m tests.benchmarks.bench_emulation [--rounds 24]``.

One training step (forward, loss, scaled backward, optimizer) of a conv net with batch norm on 28x28
images, two small GPTs, a conv net on 8x8 digits and an MLP. Five ways take turns, step by step:
float32, float32 with a GradScaler, float16 autocast with a GradScaler under ``emulate_gpu()``, and
the CPU's own autocast with a GradScaler, in bfloat16 and in float16. float32 takes two turns: the
A/A column says how far equal work may differ. torch's GradScaler is written in Python, and a small
network's step is short beside it: the column "/ scaled" divides by the float32 step that calls the
scaler too. What is left there is the cost of the emulation and of autocast, and "plain bf16" says
what autocast and the scaler take where nothing is emulated. A shared machine stalls: the same step
then takes ten times as long, in as many as half of the turns. So each time is the lower quartile of
its turns, and ratios are those of quartiles. The first turn only warms up. Nothing is asserted.
Seconds are those that the one thread spent computing.

Memory is the peak of what torch holds during a step beyond what it held before, counted from the
profiler's allocation events.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.emulation import emulate_gpu

AUTOCAST = {
    "fp32": None,
    "fp32 again": None,
    "fp32 scaled": None,
    "emulated": torch.float16,
    "plain bf16": torch.bfloat16,
    "plain fp16": torch.float16,
}
"""Each way and the dtype of its autocast, None for none."""
UNSCALED = ("fp32", "fp32 again")


class Block(nn.Module):
    """A transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def gpt(vocabulary: int, width: int, blocks: int, heads: int) -> nn.Module:
    """Embedding, blocks, norm, a linear layer to the vocabulary, with one row a token."""
    return nn.Sequential(
        nn.Embedding(vocabulary, width),
        *[Block(width, heads) for _ in range(blocks)],
        nn.LayerNorm(width),
        nn.Linear(width, vocabulary),
        nn.Flatten(0, 1),
    )


def conv_net(channels: int, size: int, batch_norm: bool) -> nn.Module:
    """Two convolutions, each halving the image, and a linear layer."""

    def stage(into: int, out: int) -> list[nn.Module]:
        norm = [nn.BatchNorm2d(out)] if batch_norm else []
        return [nn.Conv2d(into, out, 3, padding=1), *norm, nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *stage(1, channels),
        *stage(channels, 2 * channels),
        nn.Flatten(),
        nn.Linear(2 * channels * (size // 4) ** 2, 10),
    )


def networks() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """Name -> network, inputs, labels."""
    torch.manual_seed(0)
    tokens = torch.randint(65, (8, 128))
    return {
        "conv net with batch norm, 28x28, batch 64": (
            conv_net(32, 28, True),
            torch.randn(64, 1, 28, 28),
            torch.randint(10, (64,)),
        ),
        "GPT, 4 blocks of width 256, 8 x 128 tokens": (
            gpt(65, 256, 4, 4),
            tokens,
            tokens.roll(-1, 1).flatten(),
        ),
        "GPT, 4 blocks of width 128, 8 x 128 tokens": (
            gpt(65, 128, 4, 4),
            tokens,
            tokens.roll(-1, 1).flatten(),
        ),
        "conv net, 8x8, batch 64": (
            conv_net(16, 8, False),
            torch.randn(64, 1, 8, 8),
            torch.randint(10, (64,)),
        ),
        "MLP 64-128-128-10, batch 64": (
            nn.Sequential(
                nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
            ),
            torch.randn(64, 64),
            torch.randint(10, (64,)),
        ),
    }


def stepper(network: nn.Module, x: Tensor, y: Tensor, way: str) -> Callable[[], None]:
    """One training step, one of the ways of ``AUTOCAST``."""
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=way not in UNSCALED, init_scale=1024.0)
    dtype = AUTOCAST[way]

    def step() -> None:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(network(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def context(way: str) -> emulate_gpu | nullcontext:
    """What surrounds the steps: a loop enters it once, so entering is not timed."""
    return emulate_gpu() if way == "emulated" else nullcontext()


def seconds(step: Callable[[], None], repeats: int) -> float:
    """Seconds a step, over some repeats."""
    start = time.thread_time()
    for _ in range(repeats):
        step()
    return (time.thread_time() - start) / repeats


def peak_bytes(step: Callable[[], None]) -> int:
    """The most that torch held at once during the step beyond what it held before."""
    step()
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        step()
    events = [e for e in profile.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def measure(network: nn.Module, x: Tensor, y: Tensor, rounds: int, slow: int) -> list[str]:
    """One row of the table. Plain float16 takes part in the first ``slow`` rounds only."""
    steps = {way: stepper(network, x, y, way) for way in AUTOCAST}
    steps["fp32"]()
    repeats = max(1, int(0.03 / seconds(steps["fp32"], 3)))
    times: dict[str, list[float]] = {way: [] for way in steps}
    for turn in range(rounds + 1):
        for way, step in steps.items():
            if way == "plain fp16" and turn > slow:
                continue
            with context(way):
                took = seconds(step, 1 if way == "plain fp16" else repeats)
            if turn:
                times[way].append(took)
    peaks = {}
    for way in ("fp32", "emulated"):
        with context(way):
            peaks[way] = peak_bytes(steps[way])

    fast = {way: statistics.quantiles(taken, n=4)[0] for way, taken in times.items()}
    return [
        f"{1e3 * fast['fp32']:9.2f}",
        f"{fast['fp32 again'] / fast['fp32']:6.2f}",
        f"{fast['emulated'] / fast['fp32']:9.2f}",
        f"{fast['emulated'] / fast['fp32 scaled']:9.2f}",
        f"{fast['plain bf16'] / fast['fp32']:11.2f}",
        f"{fast['plain fp16'] / fast['fp32']:11.1f}",
        f"{fast['plain fp16'] / fast['emulated']:12.1f}",
        f"{peaks['emulated'] / peaks['fp32']:7.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--slow-rounds", type=int, default=6, help="rounds of plain float16")
    arguments = parser.parse_args()
    if min(arguments.rounds, arguments.slow_rounds) < 2:
        parser.error("a quartile needs 2 rounds at least")
    torch.set_num_threads(1)
    print(f"Training steps, one thread, torch {torch.__version__}. Times relative to fp32's:")
    print(
        f"{'':44}{'fp32 ms':>9}{'A/A':>6}{'emulated':>9}{'/ scaled':>9}{'plain bf16':>11}"
        f"{'plain fp16':>11}{'plain/emul.':>12}{'memory':>7}"
    )
    for name, (network, x, y) in networks().items():
        row = measure(network, x, y, arguments.rounds, arguments.slow_rounds)
        print(f"{name:44}{''.join(row)}", flush=True)


if __name__ == "__main__":
    main()
