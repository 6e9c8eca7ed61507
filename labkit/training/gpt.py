"""The course's one checkpoint, and the number it is judged by: bits a character.

``data/gpt/gpt.npz`` holds a ``SmallGPT(68, 64)`` that was trained once, in float32, on the first
90 % of ``shakespeare()``; ``data/records/record_gpt.py`` trained it. Labs 05 to 17 start from it.
"""

import json
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.base.home import DATA
from labkit.training.data import characters, shakespeare
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
    arrays, about = _read(path)
    model = SmallGPT(len(about["vocabulary"]), about["context"])
    try:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays})
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path} holds another network ({why}) {_RESTORE}") from None
    return model.eval()


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
    modes = {m: m.training for m in model.modules()} if isinstance(model, nn.Module) else {}
    first = next(model.parameters(), tokens) if isinstance(model, nn.Module) else tokens
    nats = 0.0
    try:
        for module in modes:
            module.training = False
        with torch.no_grad():
            for x, y in zip(inputs.split(128), targets.split(128), strict=True):
                logits = model(x.to(first.device)).float()
                y = y.to(first.device)
                nats += F.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="sum").item()
    finally:
        for module, training in modes.items():
            module.training = training
    return nats / targets.numel() / math.log(2)


_RESTORE = (
    "Restore it: `git checkout -- data/gpt/gpt.npz` in a clone, or install labkit again; "
    "`python data/records/record_gpt.py` trains it anew."
)

_DAMAGES = (zipfile.BadZipFile, zlib.error, OSError, EOFError, LookupError, TypeError, ValueError)
"""What numpy, zipfile, zlib and json raise on bytes that are not such a file."""


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The weights, and what the file says of them: at least the vocabulary and the context."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. {_RESTORE}")
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file}
        about = json.loads(str(arrays.pop("about")))
        about["vocabulary"], about["context"]
    except _DAMAGES as error:
        raise ValueError(f"{path} is damaged ({error}). {_RESTORE}") from None
    return arrays, about
