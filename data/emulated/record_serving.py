"""Record how far the course's GPT is from itself when it is served in another way.

    python data/emulated/record_serving.py

The course's GPT (data/gpt), float32, beside exports of it: the same 4,096 characters of the last
10 % of the text for both, and five such parts. In bits a character: how much worse, and the mean
KL; the share of positions whose most probable character is another; the largest difference of a
logit; the share of positions whose two largest logits are equal. An export that its runtime refuses
has the reason instead.
"""

import copy
import json
from dataclasses import asdict
from datetime import date
from pathlib import Path

import torch

from labkit.base.onnxruntime import import_onnxruntime
from labkit.base.torchao import import_torchao
from labkit.devices.probe import processor
from labkit.labs.production.onnx_export import onnx_served
from labkit.labs.production.serving import exports, parity
from labkit.training import trained_gpt
from labkit.training.data import characters, shakespeare, shakespeare_split

FILE = Path(__file__).with_name("serving.json")
PARTS, ROWS, CONTEXT = 5, 64, 64


def texts():
    tokens = characters(shakespeare()).encode(shakespeare_split()[1])
    size = ROWS * (CONTEXT + 1)
    return [tokens[n * size : (n + 1) * size].view(ROWS, CONTEXT + 1) for n in range(PARTS)]


def torchao_served(config):
    model = trained_gpt()
    import_torchao("torchao.quantization").quantize_(model, config)
    return model


def ways(example):
    """Name -> what makes the export."""
    gpt, ao = trained_gpt(), import_torchao("torchao.quantization")
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


def main():
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
        measured[name] = [asdict(parity(gpt, served, tokens)) for tokens in parts]
        print(name, measured[name][0])
    record = {
        "what": " ".join(__doc__.split("\n\n")[2].split()),
        "device": f"CPU, {processor().name}, {torch.backends.cpu.get_cpu_capability()}, one thread",
        "torch": torch.__version__,
        "onnxruntime": import_onnxruntime().__version__,
        "torchao": import_torchao().__version__,
        "date": date.today().isoformat(),
        "by": "data/emulated/record_serving.py",
        "exports": measured,
        "refused": refused,
    }
    FILE.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
