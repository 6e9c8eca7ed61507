"""What the checks of lab 05's loops share: a small network, its batches, words for dtypes."""

import torch
from torch import nn

from labkit.labs.engine.loop_ends import filled, labels, seeded
from labkit.labs.engine.messages import fill

OUTSIDE = "outputs of {who} are {met}; under {asked} autocast they are {want}. {question}"
NOT_IN_BLOCK = "Which call stands outside of the autocast block?"
OTHER_DTYPE = "Which dtype does your `autocast` get?"

_CLASSES = torch.tensor(
    [[2.0, 0, 0, 0, 0, 0], [0, 2, 0, 0, 0, 0], [0, 0, 2, 0, 0, 0], [0, 0, 0, 2, 0, 0]]
)


def samples(seed, count=16, scale=1.0):
    """Inputs (count, 6) that carry their class, and targets (count,)."""
    targets = labels(seed, count)
    return scale * (_CLASSES[targets] + seeded(seed, count, 6)), targets


def small_network(seed):
    """From 6 features to 4 classes, along the last dimension, with weights of the seed."""
    return filled(nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 4)), 2 + 100 * seed)


def dtype_words(dtypes):
    """Dtypes as text: "float16 and float32"."""
    return " and ".join(dtypes).replace("torch.", "")


def outside(who, met, want="float16"):
    """That outputs of a network are not what autocast gives."""
    asked = {"float16": "FP16", "bfloat16": "BF16"}[want]
    question = NOT_IN_BLOCK if "torch.float32" in met or not met else OTHER_DTYPE
    met = dtype_words(met) or "no dtype"
    return fill(OUTSIDE, who=who, met=met, asked=asked, want=want, question=question)
