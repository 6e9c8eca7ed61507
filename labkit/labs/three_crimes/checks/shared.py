"""What several checks of lab 01 need: short names of dtypes, a scene in which an answer raised."""

import torch

from labkit.labs.engine import AnswerError
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.reading import failure

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def refuse_raised(got, scene):
    """Raise the answer's own exception, after the scene in which it came."""
    if type(got) is Raised:
        raise AnswerError("{scene}: {error}.", scene=scene, error=failure(got))
