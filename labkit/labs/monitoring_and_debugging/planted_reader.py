"""A digit reader of twelve linear layers, two pairs of which leave FP16's range."""

from collections import OrderedDict
from collections.abc import Collection
from itertools import chain, pairwise

import torch
from torch import Tensor, nn

from labkit.emulation import emulate_gpu
from labkit.training import train
from labkit.training.data import batches, digits

WIDTHS = (64, *[48] * 11, 10)
PAIRS = (("layer4", "layer5", 16), ("layer9", "layer10", 15))
"""A layer multiplied by 2**k, the next one, divided by it, and k."""


def planted_reader(*, seed: int = 0) -> tuple[nn.Sequential, Tensor]:
    """A trained reader, and test images as vectors, float32 (N, 64).

    Layers are called layer1 to layer12. The first layer of each of PAIRS and its bias are
    multiplied by a power of two and the weight of the second is divided by it. Between them stands
    a ReLU, so in FP32 every output keeps its bits.
    """
    data = digits()
    torch.manual_seed(seed)
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (inputs, outputs) in enumerate(pairwise(WIDTHS), start=1):
        layer = modules[f"layer{number}"] = nn.Linear(inputs, outputs)
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
        if number < len(WIDTHS) - 1:
            modules[f"relu{number}"] = nn.ReLU()
    reader = nn.Sequential(modules)
    images, labels = data.train_images.flatten(1), data.train_labels
    epochs = (batches(images, labels, 64, seed=epoch) for epoch in range(6))
    adam = torch.optim.Adam(reader.parameters(), lr=1e-3)
    train(reader, chain.from_iterable(epochs), optimizer=adam, progress=False)
    with torch.no_grad():
        for first, second, k in PAIRS:
            for parameter in reader.get_submodule(first).parameters():
                parameter *= 2.0**k
            reader.get_submodule(second).weight *= 2.0**-k
    return reader.eval(), data.test_images.flatten(1)


@torch.no_grad()
def outputs(
    reader: nn.Sequential,
    images: Tensor,
    *,
    wide: Collection[str],
    dtype: torch.dtype = torch.float16,
) -> Tensor:
    """The logits in float32, (N, 10), with the layers in ``wide`` in FP32, the others in ``dtype``.

    A layer in 16 bits casts what it gets, as under autocast on a GPU.
    """
    x = images
    with emulate_gpu(), torch.autocast("cpu", dtype):
        for name, module in reader.named_children():
            with torch.autocast("cpu", dtype, enabled=name not in wide):
                x = module(x.float() if name in wide else x)
    return x.float()
