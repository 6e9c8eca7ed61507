"""Record what FSDP2 stores and adds up: a step under four mixed precision policies.

    python data/records/record_fsdp2.py

Two linear layers, each sharded by fully_shard over two processes that talk over gloo; each
process has half of a batch of digits. After a step of Adam: the dtypes of what a layer reads and
writes, of shards, gradients and moments, and the share of gradient values that BF16 holds exactly,
for each seed.
"""

import torch
from common import about, cpu, file_of, write
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

from labkit.labs.memory_and_many_gpus.ranks import torchrun
from labkit.training.data import digits

SEEDS = 5


def policies():
    bf16, fp32 = torch.bfloat16, torch.float32
    return {
        "none": MixedPrecisionPolicy(),
        "param_dtype=bf16": MixedPrecisionPolicy(param_dtype=bf16),
        "param_dtype=bf16, reduce_dtype=fp32": MixedPrecisionPolicy(
            param_dtype=bf16, reduce_dtype=fp32
        ),
        "param_dtype=bf16, reduce_dtype=fp32, output_dtype=fp32": MixedPrecisionPolicy(
            param_dtype=bf16, reduce_dtype=fp32, output_dtype=fp32
        ),
    }


def name(dtype):
    return str(dtype).removeprefix("torch.")


def stepped(policy, mesh, rank, seed):
    """One step of Adam: dtypes by what has them, and the share of gradients on BF16's grid."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    optimizer, seen = torch.optim.Adam(model.parameters()), {}

    def note(_, inputs, output):
        seen.update({"layer_input": name(inputs[0].dtype), "layer_output": name(output.dtype)})

    model[0].register_forward_hook(note)
    data = digits(seed)
    mine = slice(64 * rank, 64 * rank + 64)
    y = model(data.train_images[mine].flatten(1))
    F.cross_entropy(y.float(), data.train_labels[mine]).backward()
    optimizer.step()
    gradients = [p.grad.full_tensor() for p in model.parameters()]
    values = torch.cat([g.flatten() for g in gradients])
    values = values[values != 0]  # of pixels that are always blank
    return seen | {
        "model_output": name(y.dtype),
        "shard": name(next(model.parameters()).dtype),
        "gradient": name(gradients[0].dtype),
        "moments": name(next(iter(optimizer.state.values()))["exp_avg"].dtype),
        "gradients_in_bf16": (values == values.bfloat16().float()).float().mean().item(),
    }


def measured(group, seeds):
    """By policy: what each seed gave."""
    mesh = init_device_mesh("cpu", (group.size(),))
    return {
        words: [stepped(policy, mesh, group.rank(), seed) for seed in range(seeds)]
        for words, policy in policies().items()
    }


def main(file):
    rows = []
    for words, runs in torchrun(measured, 2, SEEDS)[0].items():
        shares = [round(run.pop("gradients_in_bf16"), 4) for run in runs]
        assert all(run == runs[0] for run in runs), runs
        rows.append({"policy": words, **runs[0], "gradients_in_bf16": shares})
        print(rows[-1])
    record = about(__file__, __doc__, cpu("one thread a process"), torch=torch.__version__)
    write(file, record | {"processes": 2, "policies": rows}, indent=1)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/fsdp2.json"))
