"""The course's one checkpoint, and the number it is judged by: bits a character.

``data/gpt/gpt.npz`` holds a ``SmallGPT(68, 64)`` that was trained once, in float32, on the first
90 % of ``shakespeare()``; ``data/records/record_gpt.py`` trained it. Labs 05 to 17 start from it.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.base.home import DATA
from labkit.training.data import characters, shakespeare
from labkit.training.loop import in_eval_mode
from labkit.training.models import SmallGPT

GPT_FILE = DATA / "gpt" / "gpt.npz"


def trained_gpt(path: Path = GPT_FILE) -> SmallGPT:
    """The course's trained GPT: 112,964 float32 parameters on the CPU, in eval mode.

    Each call reads the file again, so that one model can be spoiled and another compared with it.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file is damaged, or holds other tensors than this SmallGPT has.

    >>> model = trained_gpt()
    >>> sum(p.numel() for p in model.parameters()), model.training
    (112964, False)
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. {_RESTORE}")
    try:
        with np.load(path) as arrays:
            tensors = {name: torch.from_numpy(arrays[name]) for name in arrays if name != "about"}
            about = json.loads(str(arrays["about"]))
        model = SmallGPT(len(about["vocabulary"]), about["context"])
        model.load_state_dict(tensors)
    except Exception as error:  # numpy, zipfile, zlib, json and torch raise a dozen kinds
        why = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged, or of another network ({why}). {_RESTORE}") from None
    return model.eval()


_RESTORE = (
    "Restore it: `git checkout -- data/gpt/gpt.npz` in a clone, or install labkit again; "
    "`python data/records/record_gpt.py` trains it anew."
)


def bits_per_character(model: Callable[[Tensor], Tensor], text: str, *, context: int = 64) -> float:
    """The mean cross-entropy of the next character, in bits; lower is better.

    The text is cut into pieces of ``context`` characters that do not overlap. The model sees each
    piece alone, so the first characters of a piece are guessed from little. What is left behind the
    last whole piece does not count. The mode of a module is set to eval and put back.

    Args:
        model: tokens, int64, N x context -> logits, N x context x 68, of any floating dtype; the
            softmax is computed in float32. The tokens go where its parameters are.
        text: characters of ``shakespeare()``; the course measures on the last 10 %,
            ``shakespeare_split()[1]``.

    Raises:
        ValueError: the text is not longer than the context, or has another character.
    """
    tokens = characters(shakespeare()).encode(text)
    pieces = (len(tokens) - 1) // context
    if pieces < 1:
        raise ValueError(f"a text of {len(text)} characters has no {context} and one to predict")
    inputs = tokens[: pieces * context].view(pieces, context)
    targets = tokens[1 : pieces * context + 1].view(pieces, context)
    network = model if isinstance(model, nn.Module) else nn.Module()
    device, nats = next(network.parameters(), tokens).device, 0.0
    with in_eval_mode(network), torch.no_grad():
        for x, y in zip(inputs.to(device).split(128), targets.to(device).split(128), strict=True):
            logits = model(x).float()
            nats += F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="sum").item()
    return nats / targets.numel() / math.log(2)
