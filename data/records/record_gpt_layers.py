"""Record a gradient and an activation of the trained GPT, as labs 08 and 09 show them.

    python data/records/record_gpt_layers.py

One forward and backward pass of ``trained_gpt()`` in float32, over 16 pieces of 64 characters from
the start of the test text. Kept are the gradient of the mean loss with respect to what the first
block's feed-forward layer puts out, for the 64 characters of the first piece (64 x 64: a row is a
character), and 4,093 evenly spaced values of what enters the last linear layer of the second block,
after GELU (a prime count, so that the values come from all channels).
"""

import json

import numpy as np
import torch
from common import about, cpu, file_of

from labkit.training import cross_entropy, trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split

PIECES, CONTEXT, KEPT = 16, 64, 4093


def main(file):
    torch.set_num_threads(1)
    model = trained_gpt()
    text = shakespeare_split()[1][: PIECES * CONTEXT + 1]
    tokens = characters(shakespeare()).encode(text)
    seen = {}

    def keep_output(module, inputs, output):
        output.retain_grad()
        seen["output"] = output

    def keep_input(module, inputs):
        seen["input"] = inputs[0]

    first, second = model.blocks
    first.feed_forward.register_forward_hook(keep_output)
    second.feed_forward[-1].register_forward_pre_hook(keep_input)
    loss = cross_entropy(model(tokens[:-1].view(PIECES, CONTEXT)), tokens[1:].view(PIECES, CONTEXT))
    loss.backward()
    print(f"loss {loss.item():.4f} nats")

    flat = seen["input"].detach().flatten()
    np.savez_compressed(
        file,
        about=json.dumps(about(__file__, __doc__, cpu(), torch=torch.__version__)),
        gradient=seen["output"].grad[0].numpy(),
        activation=flat[torch.linspace(0, flat.numel() - 1, KEPT).long()].numpy(),
    )


if __name__ == "__main__":
    main(file_of(__doc__, "tensors/gpt_layers.npz"))
