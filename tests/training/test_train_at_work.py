"""What a training loop needs at work: padding, bad batches, schedules, resuming, few waits."""

import functools
import io
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.emulation import emulate_gpu
from labkit.training import cross_entropy, train
from labkit.training.data import batches as shuffled
from labkit.training.scaling import LossScale, NumericalInstability

AUTOCAST = {"fp16": torch.float16, "fp16_unscaled": torch.float16, "bf16": torch.bfloat16}
TOKENS, CLASSES = 6, 5


def network(dropout=0.0):
    """Tokens, N x 6 -> logits, N x 6 x 5."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(CLASSES, 8), nn.Dropout(dropout), nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)
    )


def sgd(model, lr=0.5):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def padded(ignored=-100, lengths=(6, 1, 3, 2, 5, 1, 6)):
    """Batches of 2 texts each, all but so many tokens of both padded; they differ in count."""
    generator, loader = torch.Generator().manual_seed(1), []
    for length in lengths:
        tokens = torch.randint(1, CLASSES, (2, TOKENS), generator=generator)
        targets = (tokens * 2) % CLASSES
        targets[:, length:] = ignored
        targets[0, 0] = ignored
        loader.append((tokens, targets))
    return loader


def run(model=None, loader=None, *, optimizer=None, **settings):
    model = network() if model is None else model
    records = train(
        model,
        padded() if loader is None else loader,
        optimizer=optimizer or sgd(model),
        progress=False,
        **settings,
    )
    return model, records


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# The bits of a loop by hand


def by_hand(name, *, scaler, max_grad_norm, accumulate, epochs):
    """torch's example of accumulation, weighed by tokens; the model and what a record holds."""
    model, rows = network(), []
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    loader = padded()
    with emulate_gpu():
        for _ in range(epochs):
            for first in range(0, len(loader), accumulate):
                group = loader[first : first + accumulate]
                total = sum((targets != -100).sum().item() for _, targets in group)
                optimizer.zero_grad()
                losses = []
                for tokens, targets in group:
                    count = (targets != -100).sum().item()
                    dtype = AUTOCAST.get(name)
                    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
                        logits = model(tokens)
                        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
                        loss = loss * (count / total)
                    scaler.scale(loss).backward()
                    losses.append(loss.item())
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm or math.inf)
                scale = scaler.get_scale()
                scaler.step(optimizer)
                scaler.update()
                if taken := scaler.get_scale() >= scale:
                    schedule.step()
                rows.append((losses, norm.item(), scale, not taken))
    return model, rows


@pytest.mark.parametrize("max_grad_norm", [None, 0.05])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_the_bits_of_accumulation_by_hand(name, accumulate, max_grad_norm):
    def scaler():
        made = torch.amp.GradScaler("cpu", enabled=name == "fp16")
        made.load_state_dict(LossScale(2.0**24, growth_interval=4).to_state_dict())
        return made if name == "fp16" else torch.amp.GradScaler("cpu", enabled=False)

    asked = {"max_grad_norm": max_grad_norm, "accumulate": accumulate, "epochs": 5}
    wanted, rows = by_hand(name, scaler=scaler(), **asked)
    model = network()
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    given = scaler() if name == "fp16" else None
    _, records = run(
        model, optimizer=optimizer, precision=name, schedule=schedule, scaler=given, **asked
    )
    assert same(model.parameters(), wanted.parameters())
    assert not same(model.parameters(), network().parameters())
    assert [(r.loss_scale, r.skipped) for r in records] == [row[2:] for row in rows]
    for record, (losses, norm, *_) in zip(records, rows, strict=True):
        # Of the sum of up to three losses every addition rounds to float32.
        assert record.loss == pytest.approx(sum(losses), rel=2**-22)
        # An overflow is named by clip_grad_norm_ as by train, inf or NaN.
        assert record.grad_norm == norm or not math.isfinite(norm)
    if name == "fp16":
        assert {True, False} == {r.skipped for r in records}, "both kinds of steps"


# What the mean is over


class ClassesLast(nn.CrossEntropyLoss):
    """torch's module, for logits whose classes are last."""

    def forward(self, logits, targets):
        return super().forward(logits.flatten(0, -2), targets.flatten())


def last(logits, targets, **settings):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), **settings)


@pytest.mark.parametrize(
    ("loss_fn", "ignored"),
    [
        (cross_entropy, -100),
        (lambda output, targets: last(output, targets), -100),
        (ClassesLast(ignore_index=0), 0),
        (functools.partial(last, ignore_index=0), 0),
    ],
    ids=["default", "a function", "a module", "a partial"],
)
def test_a_padded_step_is_that_of_its_batches_in_one(loss_fn, ignored):
    """The case that showed it: shares by samples gave a gradient 1.6 times as long."""
    loader = padded(ignored)
    whole = [tuple(torch.cat(parts) for parts in zip(*loader, strict=True))]
    model, (record,) = run(None, loader, loss_fn=loss_fn, accumulate=len(loader))
    other, (wanted,) = run(None, whole, loss_fn=loss_fn)
    assert record.loss == pytest.approx(wanted.loss, rel=1e-6)
    assert record.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-5)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    _, (by_samples,) = run(None, loader, loss_fn=loss_fn, accumulate=len(loader), weigh=len)
    assert abs(by_samples.grad_norm / wanted.grad_norm - 1) > 0.01, "the control"


def test_classes_that_weigh_need_a_weigh_and_get_it_right():
    weight = torch.tensor([1.0, 5.0, 0.2, 1.0, 3.0])
    loss_fn = ClassesLast(weight=weight)
    loader = padded()
    whole = [tuple(torch.cat(parts) for parts in zip(*loader, strict=True))]
    with pytest.raises(ValueError, match=r"not a plain mean.*pass weigh="):
        run(None, loader, loss_fn=loss_fn, accumulate=2)

    def weigh(targets):
        return weight[targets[targets != -100]].sum()

    _, (record,) = run(None, loader, loss_fn=loss_fn, accumulate=len(loader), weigh=weigh)
    _, (wanted,) = run(None, whole, loss_fn=loss_fn)
    assert record.loss == pytest.approx(wanted.loss, rel=1e-6)
    assert record.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-5)


@pytest.mark.parametrize(
    "loss_fn",
    [
        ClassesLast(reduction="sum"),
        functools.partial(last, reduction="sum"),
        functools.partial(last, weight=torch.ones(CLASSES)),
    ],
)
def test_a_loss_that_is_no_plain_mean_is_refused_for_accumulation_only(loss_fn):
    with pytest.raises(ValueError, match="pass weigh="):
        run(loss_fn=loss_fn, accumulate=2)
    assert len(run(loss_fn=loss_fn)[1]) == 7


def test_float_targets_share_by_their_number():
    model = nn.Linear(3, 3)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, generator=generator)
    start = {name: values.clone() for name, values in model.state_dict().items()}
    parts = list(zip(x.split([7, 4, 1]), (x**2).split([7, 4, 1]), strict=True))
    _, (record,) = run(model, parts, loss_fn=F.mse_loss, accumulate=3)
    model.load_state_dict(start)
    _, (wanted,) = run(model, [(x, x**2)], loss_fn=F.mse_loss)
    assert record.grad_norm == pytest.approx(wanted.grad_norm, rel=1e-6)


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_a_batch_of_padding_alone_changes_nothing_among_others(name):
    loader = padded()
    nothing = (loader[0][0], torch.full_like(loader[0][1], -100))
    model, records = run(None, [loader[0], nothing, loader[1]], precision=name, accumulate=3)
    other, wanted = run(None, loader[:2], precision=name, accumulate=2)
    assert records == wanted and same(model.parameters(), other.parameters())
    kept, records = run(None, [nothing, nothing], precision=name, accumulate=2)
    assert [r.skipped for r in records] == [name != "fp16"], "no scaler: a mean over nothing"
    assert same(kept.parameters(), network().parameters())


# Steps that must not be taken


def broken(at=2):
    """The loss of batch ``at`` is inf, by its gradients too."""
    calls = iter(range(1000))

    def loss_fn(output, targets):
        return cross_entropy(output, targets) / (0 if next(calls) == at else 1)

    return loss_fn


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16_unscaled", "pure_bf16", "fp16"])
def test_a_step_that_is_not_finite_is_not_taken_and_is_recorded(name):
    model = network()
    optimizer = sgd(model)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    before, moved, rates = [weights(model)], [], []

    def look(record):
        moved.append(not same(before[0], model.parameters()))
        before[0] = weights(model)
        rates.append(optimizer.param_groups[0]["lr"])

    _, records = run(
        model,
        optimizer=optimizer,
        schedule=schedule,
        precision=name,
        loss_fn=broken(),
        on_step=look,
        scaler=LossScale(2.0**8) if name == "fp16" else None,
    )
    assert [r.skipped for r in records] == [step == 2 for step in range(7)]
    assert moved == [step != 2 for step in range(7)]
    assert math.isinf(records[2].loss) and not math.isfinite(records[2].grad_norm)
    assert rates == [0.5 ** (1 + step - (step >= 2)) * 0.5 for step in range(7)]
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16_unscaled"])
def test_it_raises_instead_on_request(name):
    model, seen, states = network(), [], []

    def look(record):
        seen.append(record)
        states.append(weights(model))

    with pytest.raises(NumericalInstability, match=r"step 2: the loss is inf and the norm .* nan"):
        run(model, precision=name, max_skips=1, loss_fn=broken(), on_step=look)
    assert [r.skipped for r in seen] == [False, False, True]
    assert same(states[1], states[2]) and same(states[2], model.parameters())


def test_a_scaler_skips_by_gradients_alone_and_a_good_step_ends_a_streak():
    """As GradScaler does; its skips are how it finds its scale."""

    def loss_fn(output, targets):
        return cross_entropy(output, targets) + math.inf  # of finite gradients

    _, records = run(precision="fp16", scaler=LossScale(2.0**8), loss_fn=loss_fn, max_skips=1)
    assert not any(r.skipped for r in records)
    _, records = run(precision="fp16_unscaled", loss_fn=loss_fn)
    assert all(r.skipped for r in records)
    start = LossScale(2.0**10, growth_factor=2.0**30, backoff_factor=2.0**-30, growth_interval=2)
    _, records = run(precision="fp16", scaler=start, max_skips=2)
    assert [r.skipped for r in records] == [False, False, True] * 2 + [False]


@pytest.mark.parametrize("max_skips", [0, -1, 2.5])
def test_max_skips_that_are_no_count_are_refused(max_skips):
    with pytest.raises(ValueError, match=f"max_skips={max_skips}: pass a whole number from 1 on"):
        run(max_skips=max_skips)


def test_a_foreign_schedule_is_refused():
    foreign = torch.optim.lr_scheduler.ExponentialLR(sgd(network()), 0.9)
    with pytest.raises(ValueError, match="learning rate of another optimizer"):
        run(schedule=foreign)


# The scaler, and a run that is taken up again


def test_the_scaler_is_the_one_given_or_the_one_made():
    given = torch.amp.GradScaler("cpu")
    assert run(precision="fp16", scaler=given)[1].scaler is given
    records = run(precision="fp16", epochs=3)[1]
    assert records.scaler.get_scale() == records[-1].loss_scale, "as the last step left it"
    assert not run(precision="bf16")[1].scaler.is_enabled()
    assert run(precision="bf16", scaler=LossScale(2.0**8))[1][0].loss_scale == 2.0**8


class Parts:
    """All that a run consists of, made anew."""

    def __init__(self):
        self.model = network(dropout=0.3)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=40)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=3)
        tokens = torch.cat([tokens for tokens, _ in padded()])
        targets = torch.cat([targets for _, targets in padded()])
        self.loader = shuffled(tokens, targets, 3, seed=5)

    def train(self, epochs):
        return train(
            self.model,
            self.loader,
            optimizer=self.optimizer,
            schedule=self.schedule,
            scaler=self.scaler,
            precision="fp16",
            epochs=epochs,
            max_grad_norm=1.0,
            accumulate=2,
            progress=False,
        )

    @property
    def stateful(self):
        return (self.model, self.optimizer, self.schedule, self.scaler)


def test_a_run_that_is_taken_up_again_ends_at_the_same_bits():
    torch.manual_seed(3)
    unbroken = Parts()
    torch.manual_seed(3)
    wanted = unbroken.train(epochs=6)
    assert {r.skipped for r in wanted} == {True, False}

    first = Parts()
    torch.manual_seed(3)
    records = first.train(epochs=2)
    file = io.BytesIO()
    state = [part.state_dict() for part in first.stateful]
    state += [torch.get_rng_state(), first.loader.generator.get_state()]
    torch.save(state, file)

    file.seek(0)
    torch.manual_seed(99)
    second = Parts()
    *states, random, order = torch.load(file)
    for part, saved in zip(second.stateful, states, strict=True):
        part.load_state_dict(saved)
    torch.set_rng_state(random)
    second.loader.generator.set_state(order)
    records += second.train(epochs=4)
    # As text, in which a NaN is a NaN; steps count from 0 again.
    assert [repr(replace(r, step=0)) for r in records] == [repr(replace(r, step=0)) for r in wanted]
    assert same(second.model.parameters(), unbroken.model.parameters())
    assert second.scaler.state_dict() == unbroken.scaler.state_dict()

    forgotten = Parts()
    for part, saved in zip(forgotten.stateful[:3], states, strict=False):
        part.load_state_dict(saved)
    torch.set_rng_state(random)
    forgotten.loader.generator.set_state(order)
    forgotten.train(epochs=4)
    assert not same(forgotten.model.parameters(), unbroken.model.parameters()), "the control"


# Batches by name


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = network()

    def forward(self, input_ids, attention_mask):
        return self.network(input_ids) * attention_mask.unsqueeze(-1)


def test_a_dict_is_taken_by_its_names():
    named = [
        {"labels": y, "attention_mask": (y != -100).double(), "input_ids": x} for x, y in padded()
    ]
    model, records = run(Named(), named, accumulate=2)
    other, wanted = run(accumulate=2)
    assert same(model.parameters(), other.parameters()) and records == wanted


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"input_ids": torch.ones(2, 3)}, 'it needs "labels", which go to the loss'),
        ({"labels": torch.ones(2, 3)}, "at least one other name"),
        ({"input_ids": torch.ones(3, 3), "labels": torch.ones(2)}, "(batch['input_ids'], batch["),
        ({"input_ids": ["to be"], "labels": torch.ones(2)}, "['list', 'Tensor']"),
    ],
)
def test_dicts_that_are_refused(batch, said):
    with pytest.raises(ValueError) as error:
        run(None, [batch])
    assert said in str(error.value)


# Gradients of embeddings


@pytest.mark.parametrize("name", ["fp32", "fp16"])
def test_sparse_gradients_are_clipped_as_dense_ones(name):
    def trained(sparse):
        model = network()
        model[0] = nn.Embedding.from_pretrained(
            model[0].weight.detach().clone(), freeze=False, sparse=sparse
        )
        scaler = LossScale(2.0**8) if name == "fp16" else None
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        return run(model, optimizer=optimizer, precision=name, scaler=scaler, max_grad_norm=0.05)

    model, records = trained(sparse=True)
    other, wanted = trained(sparse=False)
    assert model[0].weight.grad.is_sparse
    assert min(r.grad_norm for r in wanted) > 0.05, "every step is clipped"
    # A row that occurs twice is added up in another order: a rounding of float32 a step.
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
    for record, want in zip(records, wanted, strict=True):
        assert record.grad_norm == pytest.approx(want.grad_norm, rel=1e-5)


def test_a_loss_of_one_element_is_a_loss():
    _, records = run(loss_fn=lambda output, targets: cross_entropy(output, targets).reshape(1))
    assert records == run()[1]


# How often the host waits for the device


class Waits(TorchDispatchMode):
    """Counts what reads a value off the device, wherever it is called from."""

    READS = frozenset({"_local_scalar_dense", "nonzero", "equal", "masked_select", "is_nonzero"})

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in self.READS
        return func(*args, **(kwargs or {}))


class Lists(TorchFunctionMode):
    """Counts tolist and numpy, which on a CPU read memory without an operator."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.waits.count += getattr(func, "__name__", "") in ("tolist", "numpy")
        return func(*args, **(kwargs or {}))


def waits_of_each_step(**settings):
    counts = []
    with Waits() as waits, Lists(waits):

        def look(record):
            counts.append(waits.count)
            waits.count = 0

        run(on_step=look, epochs=2, **settings)
    # Before the first step comes the product that precision.active tries.
    return counts[1:]


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16", "pure_bf16"])
def test_a_step_waits_for_the_device_once(name):
    """SGD, because the step counters of Adam are on the CPU also for a model on a GPU."""
    asked = {"precision": name, "max_grad_norm": 1.0, "accumulate": 3}
    assert set(waits_of_each_step(**asked)) == {1}
