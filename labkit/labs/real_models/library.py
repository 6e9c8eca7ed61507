"""What transformers does with a checkpoint in BF16: the dtype it loads, and what then trains."""

import tempfile
from dataclasses import dataclass

import torch
from torch import nn

from labkit.base.home import import_optional
from labkit.emulation import emulate_gpu
from labkit.formats.dtypes import name_of
from labkit.training import cross_entropy

LEARNING_RATE, STEPS = 1e-5, 4


@dataclass(frozen=True, kw_only=True)
class LoadedRun:
    """Four steps of AdamW at 1e-5 on a model that was loaded from a checkpoint in BF16.

    Args:
        parameters, moments: their dtypes by name.
        matmul: the dtype of the head's output under autocast.
        moved: the share of weights that are no longer what the checkpoint says.
    """

    parameters: str
    moments: str
    matmul: str
    moved: float


def loaded_run(dtype: torch.dtype | None = None, *, seed: int = 0) -> LoadedRun:
    """Save a small GPT-2 in BF16, load it with ``from_pretrained``, and train it in BF16 autocast.

    The checkpoint lies in a temporary folder. Nothing is downloaded.

    Args:
        dtype: what ``from_pretrained`` is asked for; None asks for nothing.

    Raises:
        ImportError: transformers is not installed.
    """
    library = import_optional("transformers.models.gpt2.modeling_gpt2")
    torch.manual_seed(seed)
    asked = {} if dtype is None else {"dtype": dtype}
    config = library.GPT2Config(
        vocab_size=68, n_positions=32, n_embd=64, n_layer=2, n_head=4, bos_token_id=None,
        eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        library.GPT2LMHeadModel(config).to(torch.bfloat16).save_pretrained(folder)
        model = library.GPT2LMHeadModel.from_pretrained(folder, **asked).train()
    return _trained(model)


def _trained(model: nn.Module) -> LoadedRun:
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    for _ in range(STEPS):
        tokens = torch.randint(68, (8, 17))
        with emulate_gpu():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
                loss = cross_entropy(logits, tokens[:, 1:])
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    pairs = list(zip(before, model.parameters(), strict=True))
    moved = sum((old != new).sum().item() for old, new in pairs)
    first = next(model.parameters())
    return LoadedRun(
        parameters=name_of(first.dtype),
        moments=name_of(optimizer.state[first]["exp_avg"].dtype),
        matmul=name_of(logits.dtype),
        moved=moved / sum(old.numel() for old in before),
    )
