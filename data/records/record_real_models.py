"""Record what lab 13 says about real models in 16 bits.

    nice -n 5 python data/records/record_real_models.py

Crash: a character GPT of two blocks with eager attention, AdamW at 0.1 (and FP16 at 0.03), 150
steps or until a loss is not finite, ten seeds. Accuracies: ten seeds, trained from the same weights
on the same batches in each precision; a ResNet on the digits, four epochs of AdamW at 3e-3, and a
text classifier on the speeches, two epochs of AdamW at 1e-3; the control is FP32 from weights that
were rounded once to BF16. Ring: a GAN on eight blobs, 600 steps, ten seeds. Loaded: four
steps on a GPT-2 that transformers loaded from a BF16 checkpoint, five seeds.

A part that the file holds is not computed again: delete it from the file to record it anew.
"""

from collections.abc import Callable
from dataclasses import asdict

import torch
from common import about, cpu, file_of, read, write

from labkit.base.home import import_optional
from labkit.labs.real_models.attention import crash_run, small_gpt
from labkit.labs.real_models.gan import blobs_found, ring_run
from labkit.labs.real_models.library import loaded_run
from labkit.labs.real_models.resnet import SmallResNet
from labkit.labs.real_models.text import (
    TextClassifier,
    WordTokenizer,
    collate,
    speeches,
)
from labkit.measuring import accuracy_impact
from labkit.training.data import digits

SEEDS = range(10)
PRECISIONS = ("fp32", "fp16", "bf16")

torch.set_num_threads(1)


def crash(precision, qk_norm, lr=0.1):
    def one(seed):
        model = small_gpt(qk_norm=qk_norm, seed=seed)
        run = asdict(crash_run(model, precision=precision, seed=seed, lr=lr))
        losses = [round(loss, 3) for loss in run["losses"]]
        return run | {"losses": losses, "largest_score": float(f"{run['largest_score']:.4g}")}

    return [one(seed) for seed in SEEDS]


def impact(make, train_data, test_data, epochs, batch_size):
    found = accuracy_impact(
        PRECISIONS, make=make, train_data=train_data, test_data=test_data, epochs=epochs,
        batch_size=batch_size, seeds=SEEDS, progress=False,
    )  # fmt: skip
    return {
        "by_precision": {name: rounded(each) for name, each in found.accuracies.items()},
        "control": rounded(found.comparisons[PRECISIONS[0]].pairs),
        "samples": len(test_data[1]),
    }


def resnets():
    data = digits()

    def make():
        model = SmallResNet()
        return model, torch.optim.AdamW(model.parameters(), lr=3e-3)

    train_data = (data.train_images, data.train_labels)
    return impact(make, train_data, (data.test_images, data.test_labels), 4, 64)


def classifiers():
    texts, test_texts = speeches()
    tokenizer = WordTokenizer.of(texts)

    def make():
        model = TextClassifier(tokenizer.size)
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3)

    batches = (collate(each, tokenizer) for each in (texts, test_texts))
    train_data, test_data = ((batch["tokens"], batch["labels"]) for batch in batches)
    return impact(make, train_data, test_data, 2, 32)


def ring(precision):
    def one(seed):
        run = ring_run(precision=precision, seed=seed)
        kept = run.samples["float32"]
        return {
            "accuracy": rounded(run.accuracy),
            "blobs": {name: blobs_found(points) for name, points in run.samples.items()},
            "mean": rounded(kept.mean(dim=0).tolist()),
            "std": rounded(kept.std(dim=0).tolist()),
        }

    return [one(seed) for seed in SEEDS]


def loaded(dtype):
    runs = [asdict(loaded_run(dtype, seed=seed)) for seed in range(5)]
    return [run | {"moved": round(run["moved"], 4)} for run in runs]


def rounded(numbers):
    return [round(number, 4) for number in numbers]


PARTS: dict[tuple[str, ...], Callable] = {
    ("crash", "fp16"): lambda: crash("fp16", False),
    ("crash", "fp16 QK-norm"): lambda: crash("fp16", True),
    ("crash", "fp32"): lambda: crash("fp32", False),
    ("crash", "fp32 QK-norm"): lambda: crash("fp32", True),
    ("crash", "fp16 at 0.03"): lambda: crash("fp16", False, lr=0.03),
    ("loaded", "default"): lambda: loaded(None),
    ("loaded", "float32"): lambda: loaded(torch.float32),
    ("accuracies", "digits"): resnets,
    ("accuracies", "speeches"): classifiers,
    **{("ring", name): lambda precision=name: ring(precision) for name in PRECISIONS},
}


def main(file):
    record = read(file)
    for (*folder, name), make in PARTS.items():
        part = record
        for key in folder:
            part = part.setdefault(key, {})
        if name not in part:
            part[name] = make()
            print(*folder, name, flush=True)
            versions = {
                "torch": torch.__version__,
                "transformers": import_optional("transformers").__version__,
            }
            device = cpu("one thread, emulated by labkit")
            write(file, record | about(__file__, __doc__, device, **versions))


if __name__ == "__main__":
    main(file_of(__doc__, "emulated/real_models.json"))
