"""No function changes a model unless its docstring says so, whatever kind of model it is given.

Each is compared with a twin on which only the learner's own code ran: parameters, buffers,
gradients, their dtypes and the objects they are, modes, hooks, and torch's random and other states.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import init_device_mesh
from torch.nn.parameter import is_lazy
from torch.utils.checkpoint import checkpoint

from labkit.base.home import import_optional
from labkit.labs.monitoring_and_debugging.layer_report import (
    findings,
    first_nonfinite,
    layer_report,
)
from labkit.measuring import accuracy_impact, benchmark, count_casts, misaligned, work_and_memory
from labkit.measuring.live_bytes import LiveBytes
from labkit.training import evaluate, in_eval_mode, train
from labkit.training.batches import logits_of, takes_labels

X, Y = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4


# Kinds of models; each takes 8 features, or 8 tokens, and gives 4 classes


def network():
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 4)
    )


class Then(nn.Module):
    """A function of the inputs and of a tensor, and a linear layer."""

    def __init__(self, function, tensor, *, buffer=False):
        super().__init__()
        self.function = function
        if buffer:
            self.register_buffer("tensor", tensor)
        else:
            self.tensor = nn.Parameter(tensor)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.function(x, self.tensor))


def tied():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    model[1].weight = model[0].weight
    return model


def partly_frozen():
    model = network()
    model[0].requires_grad_(False)
    model[1].eval()
    return model


def hooked():
    model = network()
    model.register_forward_hook(lambda *_: None)
    model[0].register_full_backward_hook(lambda *_: None)
    model[4].weight.register_hook(lambda gradient: gradient * 2)
    return model


def sharded():
    model, mesh = network(), init_device_mesh("cpu", (1,))
    for module in (model[0], model[4], model):
        fully_shard(module, mesh=mesh)
    F.cross_entropy(model(X), Y).backward()  # the first forward adds hooks
    model.zero_grad()
    return model


def quantized_by_torchao():
    quantization = import_optional("torchao.quantization")
    model = network()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = network()

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.cell(x[:, None])[0][:, 0])


class Rows(nn.Module):
    """Sparse gradients."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8, sparse=True), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.table(x.sign().long() + 1).mean(1))


class OfTokens(nn.Module):
    """Hugging Face's classifier, whose tokens are signs."""

    def __init__(self):
        super().__init__()
        gpt2 = import_optional("transformers.models.gpt2")
        sizes = {"vocab_size": 8, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}
        config = gpt2.GPT2Config(**sizes, num_labels=4, pad_token_id=7)
        self.classifier = gpt2.GPT2ForSequenceClassification(config)

    def forward(self, x):
        return self.classifier(input_ids=x.sign().long() + 1)


COMPLEX = torch.randn(8, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
parametrizations = nn.utils.parametrizations
KINDS = {
    "plain": network,
    "in eval mode": lambda: network().eval(),
    "tied": tied,
    "partly frozen": partly_frozen,
    "hooked": hooked,
    "sharded": sharded,
    "data parallel": lambda: nn.parallel.DistributedDataParallel(network()),
    "complex": lambda: Then(lambda x, w: (x * w).abs(), COMPLEX.clone()),
    "complex buffer": lambda: Then(lambda x, w: (x * w).abs(), COMPLEX.clone(), buffer=True),
    "float64 buffer": lambda: Then(lambda x, w: x * w.to(x), torch.rand(8).double(), buffer=True),
    "lazy": lambda: nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.LazyLinear(4)),
    "scripted": lambda: torch.jit.script(network()),
    "traced": lambda: torch.jit.trace(network().eval(), X),
    "quantized": lambda: torch.ao.quantization.quantize_dynamic(network(), {nn.Linear}),
    "torchao": quantized_by_torchao,
    "Hugging Face": OfTokens,
    "float64": lambda: network().double(),
    "bfloat16": lambda: network().bfloat16(),
    "normalised weights": lambda: nn.Sequential(
        parametrizations.spectral_norm(nn.Linear(8, 16)),
        parametrizations.weight_norm(nn.Linear(16, 4)),
    ),
    "on meta": lambda: network().to("meta"),
    "compiled": lambda: torch.compile(network(), backend="eager"),
    "checkpointed": Checkpointed,
    "recurrent": Recurrent,
    "sparse gradients": Rows,
    "without parameters": lambda: nn.Sequential(nn.Flatten()),
}


# What is called; beside it what the learner's own code does in it, and what may change


def inputs_of(model):
    dtypes = [p.dtype for p in model.parameters() if p.dtype.is_floating_point]
    return X.to(dtypes[0]) if dtypes else X


def loss(model):
    return F.cross_entropy(logits_of(model(inputs_of(model))), Y)


def step(model):
    value = loss(model)
    if value.requires_grad:
        value.backward()


def sgd(model):
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.SGD(trained or [torch.zeros(1)], lr=0.01)


def counted(model):
    with LiveBytes().hold(model):
        step(model)


def trained(model, precision="fp32"):
    train(model, [(X, Y)] * 2, optimizer=sgd(model), precision=precision, progress=False)


def evaluated(model):
    with in_eval_mode(model):
        pass
    pure = inputs_of(model).dtype is torch.bfloat16
    evaluate(model, X, Y, precision="pure_bf16" if pure else "fp32")


def nothing(model):
    pass


TRAINING = {"value", "gradient", "training"}
FUNCTIONS = {
    "misaligned": (misaligned, nothing, set()),
    "layer_report": (lambda m: layer_report((step(m), m)[1]), step, set()),
    "first_nonfinite": (lambda m: first_nonfinite(lambda: step(m)), step, set()),
    "count_casts": (lambda m: count_casts(lambda: step(m)), step, set()),
    "LiveBytes": (counted, step, set()),
    "findings": (lambda m: findings((step(m), m)[1], sgd(m)), step, set()),
    "findings of a loss": (
        lambda m: findings((step(m), m)[1], sgd(m), loss=lambda: loss(m)),
        step,
        set(),
    ),
    "evaluate": (evaluated, nothing, set()),
    "work_and_memory": (lambda m: work_and_memory(m, (X, Y)), nothing, TRAINING | {"random"}),
    "train": (trained, nothing, TRAINING | {"random"}),
    "train in fp16": (lambda m: trained(m, "fp16"), nothing, TRAINING | {"random"}),
    "train in pure bf16": (
        lambda m: trained(m, "pure_bf16"),
        nothing,
        TRAINING | {"random", "dtype"},
    ),
}
# Which are refused, all others run.
STEPS = {"work_and_memory", "train", "train in fp16", "train in pure bf16"}
REFUSED = {
    "sharded": STEPS | {"findings of a loss"},
    "complex": STEPS,
    "complex buffer": {"train in pure bf16"},
    "lazy": {"LiveBytes", "evaluate", "work_and_memory"},
    "scripted": {"misaligned", "train in fp16"},
    "traced": {"misaligned", "train in fp16"},
    "float64": {"evaluate", "work_and_memory", "train", "train in fp16"},
    "bfloat16": {"work_and_memory", "train", "train in fp16"},
    "on meta": STEPS | {"evaluate", "LiveBytes"},
    "quantized": {"train", "train in fp16"},
    "without parameters": STEPS,
}
# Where torch itself, without labkit, cannot take such a step.
IMPOSSIBLE = {
    "on meta": set(FUNCTIONS) - STEPS - {"misaligned", "evaluate", "LiveBytes"},
    "quantized": {"train in pure bf16"},
    "without parameters": {"findings of a loss"},
}


@pytest.fixture(scope="module", autouse=True)
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def values_of(tensor):
    """Copied, to be compared with torch.equal."""
    if tensor is None or is_lazy(tensor) or tensor.is_meta:
        return None
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.to_local()
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        tensor = tensor.dequantize()
    return tensor.to_dense().clone() if tensor.is_sparse else tensor.clone()


def state(model):
    """All that must stay, by what it is and whose."""
    found = {("torch", "random"): torch.get_rng_state()}
    found["torch", "modes"] = (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
        len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
    )
    global_hooks = [v for k, v in vars(nn.modules.module).items() if k.startswith("_global_")]
    found["torch", "hooks"] = [len(hooks) for hooks in global_hooks if hasattr(hooks, "values")]
    for name, module in model.named_modules():
        hooks = [v for k, v in vars(module).items() if k.endswith("_hooks") and v is not None]
        found[name, "hooks"] = [len(each) for each in hooks if hasattr(each, "values")]
        found[name, "training"] = module.training
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found[name, "kind"] = type(tensor), tensor.requires_grad, tensor.device
        found[name, "dtype"] = tensor.dtype
        found[name, "value"] = values_of(tensor)
        found[name, "gradient"] = values_of(None if is_lazy(tensor) else tensor.grad)
    return found


def same(one, other):
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype is other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def refused(call):
    """Whether it raises our ValueError or TypeError; errors of torch's come through."""
    try:
        call()
    except (TypeError, ValueError) as error:
        place = error.__traceback__
        while place.tb_next:
            place = place.tb_next
        if "/labkit/" not in place.tb_frame.f_code.co_filename.replace("\\", "/"):
            raise
        return True
    return False


def made(kind):
    torch.manual_seed(0)
    return KINDS[kind]()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_stays_as_the_learners_own_code_leaves_it(kind):
    for function, (call, own, may) in FUNCTIONS.items():
        if function in IMPOSSIBLE.get(kind, ()):
            continue
        print(kind, function)  # shown where it fails
        if kind == "lazy" and function in STEPS - REFUSED[kind]:
            own = step  # gives it its parameters
        model = made(kind)
        objects = [*map(id, model.parameters())]
        no = refused(lambda: call(model))  # noqa: B023
        assert no == (function in REFUSED.get(kind, ())), "refused" if no else "not refused"
        assert objects == [*map(id, model.parameters())]
        after, twin = state(model), made(kind)
        if not no or (own is step and function != "LiveBytes"):
            own(twin)
        wanted = state(twin)
        assert after.keys() == wanted.keys()
        changed = {key for key in after if not same(after[key], wanted[key])}
        assert not {key for key in changed if key[1] not in may}


def test_a_hugging_face_model_trains_by_its_own_loss_and_is_judged_by_its_logits():
    gpt2 = import_optional("transformers.models.gpt2")
    sizes = {"vocab_size": 16, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2}

    def make():
        torch.manual_seed(0)
        return gpt2.GPT2LMHeadModel(gpt2.GPT2Config(**sizes, pad_token_id=15))

    inputs = {"input_ids": torch.arange(32).view(4, 8) * 3 % 16, "attention_mask": torch.ones(4, 8)}
    labels = inputs["input_ids"].clone()
    labels[0, 5:] = -100
    batch, model, by_hand, losses = inputs | {"labels": labels}, make(), make(), []
    records = train(model, [batch] * 3, optimizer=sgd(model), progress=False)
    torch.manual_seed(0), make()  # dropout draws the same again
    optimizer = sgd(by_hand)
    for _ in range(3):
        optimizer.zero_grad()
        value = by_hand(**batch).loss
        value.backward()
        optimizer.step()
        losses.append(value.item())
    assert [record.loss for record in records] == losses
    assert all(map(torch.equal, model.parameters(), by_hand.parameters()))
    right = model.eval()(**inputs).logits.argmax(-1) == labels
    assert evaluate(model, inputs, labels) == right.double().mean().item()
    with pytest.raises(ValueError, match=r"computes its own loss.*weigh="):
        train(model, [batch], optimizer=sgd(model), accumulate=2)


class Wrapping(nn.Module):
    """Takes no labels, so nobody knows whether those of a batch are shifted."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def test_a_model_that_takes_labels_is_known_inside_a_wrapper_and_another_is_asked_for_a_loss():
    class WithLabels(Wrapping):
        def forward(self, x, labels=None):
            return SimpleNamespace(logits=self.inner(x), loss=None)

    model = WithLabels(network())
    assert takes_labels(model) and not takes_labels(Wrapping(model))
    assert takes_labels(torch.compile(model, backend="eager"))
    assert takes_labels(nn.parallel.DistributedDataParallel(model))
    for each in (model, Wrapping(model)):
        with pytest.raises(ValueError, match="pass loss_fn"):
            train(each, [{"x": X, "labels": Y}], optimizer=sgd(each), progress=False)
        train(each, [(X, Y)], optimizer=sgd(each), progress=False)  # by its logits
        with pytest.raises(ValueError, match=r"no \.logits"):
            evaluate(Wrapping(lambda x: [x]), X, Y)


@pytest.mark.parametrize("kind", ["plain", "lazy", "sharded", "complex", "on meta"])
def test_functions_that_make_models_run_or_refuse_and_leave_the_random_state(kind):
    def make():
        model = KINDS[kind]()
        return model, sgd(model)

    before = torch.get_rng_state()
    small = {"make": make, "progress": False}
    sizes = {"steps": 1, "rounds": 1, "warm_up": 0}
    calls = (
        lambda: benchmark(("fp32",), batches=[(X, Y)], **sizes, **small),
        lambda: accuracy_impact(
            train_data=(X, Y), test_data=(X, Y), epochs=1, seeds=(0, 1), **small
        ),
    )
    for call in calls:
        assert refused(call) == (kind != "plain")
        assert torch.equal(torch.get_rng_state(), before)
