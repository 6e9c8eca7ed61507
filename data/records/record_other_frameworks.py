"""Record what lab 14 shows where Keras or JAX is missing, and what it says of training, on a CPU.

    python data/records/record_other_frameworks.py

Results: what each function returned that a cell of the lab's source gives to ``live``, by its name.
Seeds: for each of five, digits in Keras on torch (see fit_digits): the last loss with logits and
with softmax twice, by policy; the loss scale at the end by head, with pixels from 0 to 16; the
share of weights that an epoch under the policy bfloat16 moves, by beta_2, and that 20 steps on BF16
weights move with PyTorch's and optax's Adam.
"""

import jupytext
import torch
from common import about, cpu, file_of, write

from labkit.base.home import NOTEBOOKS
from labkit.labs.other_frameworks import frameworks
from labkit.labs.other_frameworks.frameworks import jnp, optax
from labkit.labs.other_frameworks.keras_runs import HEADS, fit_digits

SEEDS = range(5)
FURNITURE = ("warm_up(", "say_it(", "progress_panel(", "checks.")

torch.set_num_threads(1)


def results():
    """Run the lab's cells with a ``live`` that keeps what it gives."""
    kept = {}

    def live(function):
        kept[function.__name__] = function()
        return kept[function.__name__]

    frameworks.live = live
    names = {}
    for cell in jupytext.read(NOTEBOOKS / "source" / "14_other_frameworks.py").cells:
        if cell.cell_type != "code" or cell.source.startswith(FURNITURE):
            continue
        if any(f"\n{word}" in cell.source for word in FURNITURE):
            continue
        exec(compile(cell.source, "cell", "exec"), names)
        names["predict"] = lambda guess: lambda body: body()
    return kept


def losses(seed):
    found = {}
    for name in ("float32", "mixed_float16"):
        found[f"logits, {name}"] = fit_digits(name, seed=seed).losses[-1]
        twice = fit_digits(name, head="softmax in float32", from_logits=True, seed=seed)
        found[f"softmax twice, {name}"] = twice.losses[-1]
    return {name: round(loss, 4) for name, loss in found.items()}


def scales(seed):
    return {
        head: fit_digits("mixed_float16", head=head, brightest=16, seed=seed).loss_scale
        for head in HEADS
    }


def moved(seed):
    return {
        "Keras, beta_2 0.999": fit_digits("bfloat16", epochs=1, seed=seed).moved,
        "Keras, beta_2 0.99": fit_digits("bfloat16", epochs=1, beta_2=0.99, seed=seed).moved,
        "PyTorch": moved_by_torch(seed),
        "optax": moved_by_optax(seed),
    }


def moved_by_torch(seed):
    weight, gradients = bf16(seed)
    before = weight.clone()
    adam = torch.optim.Adam([weight], lr=1e-3)
    for gradient in gradients:
        weight.grad = gradient
        adam.step()
    return (weight != before).float().mean().item()


def moved_by_optax(seed):
    start, gradients = bf16(seed)
    weight = before = jnp.asarray(start.float().numpy(), jnp.bfloat16)
    adam = optax.adam(1e-3)
    state = adam.init(weight)
    for gradient in gradients:
        gradient = jnp.asarray(gradient.float().numpy(), jnp.bfloat16)
        updates, state = adam.update(gradient, state, weight)
        weight = optax.apply_updates(weight, updates)
    return float((weight != before).mean())


def bf16(seed):
    """A weight 64 x 32 of standard deviation 0.1, and 20 gradients of standard deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    weight = 0.1 * torch.randn(64, 32, generator=generator)
    return weight.bfloat16(), torch.randn(20, 64, 32, generator=generator).bfloat16()


def main(file):
    versions = {"torch": torch.__version__, "libraries": frameworks.installed()}
    record = about(__file__, __doc__, cpu(), **versions) | {
        "results": results(),
        "seeds": [
            {"seed": s, "losses": losses(s), "scales": scales(s), "moved": moved(s)} for s in SEEDS
        ],
    }
    write(file, record, '},"', '],"')


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/other_frameworks.json"))
