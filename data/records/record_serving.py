"""Record how far the course's GPT is from itself when it is served in another way.

    pip install -e ".[serving,low_bit]"
    python data/records/record_serving.py

The course's GPT (data/gpt), float32, beside exports of it: the same 4,096 characters of the last
10 % of the text for both, and five such parts. In bits a character: how much worse, and the mean
KL; the share of positions whose most probable character is another; the largest difference of a
logit; the share of positions whose two largest logits are equal. An export that its runtime refuses
has the reason instead.
"""

import copy
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import onnxruntime
import torch
import torch.nn.functional as F
from common import about, cpu, file_of, write
from onnxruntime.quantization import quantize_dynamic

from labkit.base.home import import_optional
from labkit.labs.production.serving import exports
from labkit.training import trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split

PARTS, ROWS, CONTEXT = 5, 64, 64


def texts():
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    size = ROWS * (CONTEXT + 1)
    return [tokens[n * size : (n + 1) * size].view(ROWS, CONTEXT + 1) for n in range(PARTS)]


@torch.no_grad()
def parity(reference, served, tokens):
    """What ``served`` gives beside ``reference``: both take tokens, N x T, and give logits."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    true, given = (model(inputs).double().flatten(0, -2) for model in (reference, served))
    assert true.isfinite().all() and given.isfinite().all()
    p, q = true.log_softmax(dim=-1), given.log_softmax(dim=-1)
    first, second = given.topk(2).values.unbind(dim=-1)
    return {
        "bits": (F.nll_loss(q, targets) - F.nll_loss(p, targets)).item() / math.log(2),
        "kl": F.kl_div(q, p, log_target=True, reduction="batchmean").item() / math.log(2),
        "flips": (true.argmax(dim=-1) != given.argmax(dim=-1)).double().mean().item(),
        "max_error": (true - given).abs().max().item(),
        "ties": (first == second).double().mean().item(),
    }


def onnx_served(model, tokens, *, int8=False):
    """The model as ONNX Runtime computes it on the CPU: tokens, int64, N x T -> logits."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(model, (tokens,), path, dynamic_shapes=shapes, verbose=False)
        if int8:
            path = Path(folder, "int8.onnx")
            quantize_dynamic(path.with_stem("model"), path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = (wanted.name for wanted in session.get_inputs())
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


def torchao_served(config):
    model = trained_gpt()
    import_optional("torchao.quantization").quantize_(model, config)
    return model


def ways(example):
    """Name -> what makes the export."""
    gpt, ao = trained_gpt(), import_optional("torchao.quantization")
    own = exports(gpt)
    found = {name: lambda model=model: model for name, model in own.items()}
    found["torchao, INT8 weights"] = lambda: torchao_served(ao.Int8WeightOnlyConfig())
    found["torchao, INT8 weights and activations"] = lambda: torchao_served(
        ao.Int8DynamicActivationInt8WeightConfig()
    )
    found["ONNX Runtime, FP32"] = lambda: onnx_served(gpt, example)
    found["ONNX Runtime, FP16"] = lambda: onnx_served(copy.deepcopy(own["FP16"]), example)
    found["ONNX Runtime, BF16"] = lambda: onnx_served(copy.deepcopy(own["BF16"]), example)
    found["ONNX Runtime, dynamic INT8"] = lambda: onnx_served(gpt, example, int8=True)
    return found


def main(file):
    torch.set_num_threads(1)
    gpt, parts = trained_gpt(), texts()
    measured, refused = {}, {}
    for name, make in ways(parts[0][:2, :-1]).items():
        try:
            served = make()
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            print(name, refused[name])
            continue
        measured[name] = [parity(gpt, served, tokens) for tokens in parts]
        print(name, measured[name][0])
    record = about(
        __file__,
        __doc__,
        cpu(f"{torch.backends.cpu.get_cpu_capability()}, one thread"),
        torch=torch.__version__,
        onnxruntime=onnxruntime.__version__,
        torchao=import_optional("torchao").__version__,
    )
    write(file, record | {"exports": measured, "refused": refused}, indent=1)


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/serving.json"))
