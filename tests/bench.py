"""Speeds, paired in one run: ``python -m tests.bench quantize``, ``emulation`` or ``grading``.

All candidates take turns inside each round (``labkit.measuring.timing``), so a busy machine slows
all of them. The first candidate is what the others are compared with, and it runs twice a round:
the A/A control says how far equal work may differ. Five rounds or more have an interval. Nothing is
asserted.

``quantize``: ``--size`` million float32 values on one thread; below 1,048,576 numba takes no part.
``emulation``: training steps of four small networks on one thread, ``--size`` steps to a turn.
``grading``: ``--size`` submissions of lab 02: solved, untouched, one exercise wrong, half done; the
start of each grader counts. Two rounds of sixty take a quarter of an hour.
"""

import argparse
import copy
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import ml_dtypes
import nbformat
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.base.home import NOTEBOOKS
from labkit.course.lab_source import Lab, read_lab
from labkit.devices.probe import described
from labkit.emulation import emulate_gpu
from labkit.formats import E4M3, quantize, rounding_kernel
from labkit.grading.nbgrader.exported_course import write_course
from labkit.labs.real_models.resnet import SmallResNet
from labkit.measuring.timing import Measurement, Timing, take_turns
from labkit.training.models import SmallCNN, SmallGPT, mlp

Run = Callable[[], float]
"""A turn of a candidate: it returns the seconds that count."""


def compare(title: str, runs: dict[str, Run], *, rounds: int, warm_up: bool = True) -> None:
    """Let the candidates take turns, the first one twice, and print what came of it."""
    arms = [*runs.values(), next(iter(runs.values()))]
    if warm_up:
        for arm in arms:
            arm()
    *columns, again = zip(*islice(take_turns(arms), rounds), strict=True)
    timings = [Timing("run", name, seconds=own) for name, own in zip(runs, columns, strict=True)]
    timings[0] = replace(timings[0], again=again)
    device, now = described("cpu").name, datetime.now(UTC).isoformat()
    found = Measurement(
        device=device, torch=torch.__version__, measured=now, timings=tuple(timings)
    )
    print(f"\n{title}\n{found.describe()}", flush=True)


def timed(run: Callable[[], object], repeats: int = 1) -> float:
    """Seconds of a run, of so many in a row."""
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


# quantize


def bench_quantize(rounds: int, millions: int) -> None:
    torch.set_num_threads(1)
    x = torch.randn(millions * 1_000_000, generator=torch.Generator().manual_seed(0))
    out, array = torch.empty_like(x), x.numpy()
    runs = {
        "copy_": lambda: out.copy_(x),
        "torch, cast and back": lambda: x.to(torch.float8_e4m3fn).float(),
        "ml_dtypes, one way": lambda: array.astype(ml_dtypes.float8_e4m3fn),
        "quantize": lambda: quantize(x, E4M3),
        "quantize, saturate": lambda: quantize(x, E4M3, saturate=True),
        "quantize, stochastic": lambda: quantize(x, E4M3, rounding="stochastic"),
        "quantize without numba": lambda: without_numba(x),
    }
    turns = {name: partial(timed, run) for name, run in runs.items()}
    compare(f"{len(x):,} float32 values to E4M3", turns, rounds=rounds)


def without_numba(x: Tensor) -> Tensor:
    large, rounding_kernel.LARGE = rounding_kernel.LARGE, math.inf
    try:
        return quantize(x, E4M3)
    finally:
        rounding_kernel.LARGE = large


# emulation

WAYS = {"fp32": None, "fp32, scaled": None, "emulated": torch.float16, "bf16": torch.bfloat16}
"""Each way and the dtype of its autocast; all but the first scale the loss."""


def networks() -> dict[str, tuple[nn.Module, Tensor, Tensor]]:
    """By name: a network, its inputs and its labels."""
    torch.manual_seed(0)
    tokens = torch.randint(65, (8, 129))
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(10, (64,))
    small = torch.randn(64, 1, 8, 8)
    gpt = SmallGPT(65, 128, width=128, blocks=4)
    return {
        "ResNet with batch norm, 28x28": (SmallResNet(), images, labels),
        "GPT, 4 blocks of width 128, 8 x 128 tokens": (gpt, tokens[:, :-1], tokens[:, 1:]),
        "conv net, 8x8": (SmallCNN(), small, labels),
        "MLP 64-128-128-10": (mlp(64, 128, 128, 10), small, labels),
    }


def bench_emulation(rounds: int, steps: int) -> None:
    torch.set_num_threads(1)
    for name, (network, x, y) in networks().items():
        turns = {way: partial(step_seconds, network, x, y, way, steps) for way in WAYS}
        compare(f"A training step: {name}", turns, rounds=rounds)


def step_seconds(network: nn.Module, x: Tensor, y: Tensor, way: str, steps: int) -> float:
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", enabled=way != "fp32", init_scale=1024.0)
    dtype = WAYS[way]

    def step() -> None:
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(network(x).flatten(0, -2), y.flatten())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    with emulate_gpu() if way == "emulated" else nullcontext():
        return timed(step, steps)


# grading

LAB = "02_number_formats"
WRONG = "def ulp(x):\n    return 2.0**-10 * abs(x)"


def bench_grading(rounds: int, count: int) -> None:
    lab = read_lab(NOTEBOOKS / "source" / f"{LAB}.py")
    turns = {
        "labkit grade, 1 job": partial(with_labkit, lab, count, 1),
        "labkit grade, 2 jobs": partial(with_labkit, lab, count, 2),
        "labkit grade, nothing left to do": partial(with_labkit, lab, count, 2, again=True),
        "nbgrader autograde": partial(with_nbgrader, lab, count),
    }
    title = f"{count} submissions of {LAB}, {os.cpu_count()} cores"
    compare(title, turns, rounds=rounds, warm_up=False)


def submissions(lab: Lab, count: int) -> Iterator[tuple[str, Any]]:
    """Students and their notebooks; a comment with the number makes each answer differ."""
    solved = {
        cell.metadata.nbgrader["grade_id"]: cell.source
        for cell in lab.solution.cells
        if cell.metadata.get("nbgrader", {}).get("solution")
    }
    kinds = [solved, {}, solved | {"ulp": WRONG}, dict(list(solved.items())[: len(solved) // 2])]
    for number in range(count):
        answers, notebook = kinds[number % len(kinds)], copy.deepcopy(lab.learner)
        for cell in notebook.cells:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
            if grade_id in answers:
                cell.source = f"{answers[grade_id]}\n# student {number}"
        yield f"student{number:04}", notebook


def with_labkit(lab: Lab, count: int, jobs: int, *, again: bool = False) -> float:
    with tempfile.TemporaryDirectory() as folder:
        handed_in, grades = Path(folder, "handed_in"), Path(folder, "grades.csv")
        handed_in.mkdir()
        for student, notebook in submissions(lab, count):
            nbformat.write(notebook, handed_in / f"{student}.ipynb")
        words = [handed_in, "-o", grades, "--lab", LAB, "--jobs", jobs]
        seconds = command_seconds("labkit", "grade", *words)
        assert all(student in grades.read_text() for student, _ in submissions(lab, count))
        return command_seconds("labkit", "grade", *words) if again else seconds


def with_nbgrader(lab: Lab, count: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        course = Path(folder, "course")
        write_course(course, [LAB])
        command_seconds("nbgrader", "generate_assignment", LAB, cwd=course)
        for student, notebook in submissions(lab, count):
            path = course / "submitted" / student / LAB / f"{LAB}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(notebook, path)
        return command_seconds("nbgrader", "autograde", LAB, cwd=course)


def command_seconds(*words: object, cwd: Path | None = None) -> float:
    # nbgrader starts alembic by name.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command, environment = [sys.executable, "-m", *map(str, words)], os.environ | {"PATH": path}
    return timed(
        partial(subprocess.run, command, cwd=cwd, env=environment, check=True, capture_output=True)
    )


SUBJECTS = {
    "quantize": (bench_quantize, 9, 10),
    "emulation": (bench_emulation, 9, 5),
    "grading": (bench_grading, 2, 60),
}
"""What each runs, its rounds and its size where the command line names none."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--size", type=int)
    asked = parser.parse_args()
    bench, rounds, size = SUBJECTS[asked.subject]
    bench(asked.rounds or rounds, asked.size or size)


if __name__ == "__main__":
    main()
