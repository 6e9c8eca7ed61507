"""The loop against loops written out by hand, and everything it refuses or says aloud."""

import math
import signal
import threading
import warnings
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from labkit.devices import Description
from labkit.devices.fp32_products import fp32_products_pinned
from labkit.emulation import emulate as emulation
from labkit.emulation import emulate_gpu
from labkit.formats import TF32, accumulators, quantize
from labkit.training import PRECISIONS, PrecisionWarning, StepRecord, evaluate, precision, train
from labkit.training.precision import precision_named
from labkit.training.scaling import LossScale, NumericalInstability

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
AUTOCAST = {"fp16": torch.float16, "fp16_unscaled": torch.float16, "bf16": torch.bfloat16}
PURE = {"pure_fp16": torch.float16, "pure_bf16": torch.bfloat16}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4))


def data(samples=52):
    inputs = torch.randn(samples, 12, generator=torch.Generator().manual_seed(1))
    return inputs, inputs[:, :4].argmax(1)


def batches(size=16, samples=52):
    """Three batches of 16 and one of 4, unless told otherwise."""
    inputs, targets = data(samples)
    return list(zip(inputs.split(size), targets.split(size), strict=True))


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def run(model=None, loader=None, *, optimizer=None, **settings):
    """train() without a bar on our network and batches; the model and its records."""
    model = model or network()
    optimizer = optimizer or sgd(model)
    records = train(
        model, loader or batches(), optimizer=optimizer, **({"progress": False} | settings)
    )
    return model, records


def parameters(model):
    return [p.detach().clone() for p in model.parameters()]


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def by_hand(name, *, epochs, scaler=None, max_grad_norm=None, device="cpu"):
    """The AMP loop as PyTorch's own examples write it; the model and the losses."""
    model = network().to(device, PURE.get(name, torch.float32))
    optimizer, losses = sgd(model), []
    with emulate_gpu() if device == "cpu" else fp32_products_pinned("ieee"):
        for _ in range(epochs):
            for x, labels in batches():
                x, labels = x.to(device, PURE.get(name, torch.float32)), labels.to(device)
                optimizer.zero_grad()
                dtype = AUTOCAST.get(name)
                with torch.autocast(device, dtype=dtype) if dtype else nullcontext():
                    loss = F.cross_entropy(model(x), labels)
                losses.append(loss.item())
                if scaler is None:
                    loss.backward()
                    if max_grad_norm:
                        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
                    optimizer.step()
                else:
                    scaler.scale(loss).backward()
                    if max_grad_norm:
                        scaler.unscale_(optimizer)
                        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
                    scaler.step(optimizer)
                    scaler.update()
    return model, losses


# The loop computes what the loop by hand computes


@pytest.mark.parametrize(
    ("name", "max_grad_norm"),
    [
        *((name, None) for name in PRECISIONS if name != "tf32"),
        # Not of 16-bit gradients: there clip_grad_norm_ computes a 16-bit norm, train a true one.
        *((name, 0.3) for name in ("fp32", "bf16", "fp16", "fp16_unscaled")),
    ],
)
def test_the_bits_of_a_loop_by_hand(name, max_grad_norm):
    model, records = run(precision=name, epochs=4, max_grad_norm=max_grad_norm)
    scaler = torch.amp.GradScaler("cpu") if name == "fp16" else None
    other, losses = by_hand(name, epochs=4, scaler=scaler, max_grad_norm=max_grad_norm)
    assert [record.loss for record in records] == losses
    assert same(model.parameters(), other.parameters())
    assert not same(model.parameters(), network().to(model[0].weight.dtype).parameters())


@pytest.mark.parametrize("fused", [False, True])
def test_a_run_starts_from_a_loss_scale_and_walks_through_skipped_steps(fused):
    def adam(model):
        return torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused)

    start = LossScale(2.0**24, growth_interval=4)
    changed, model = [], network()
    kept = [parameters(model)]

    def on_step(record):
        changed.append(not same(kept[0], model.parameters()))
        kept[0] = parameters(model)

    _, records = run(
        model, optimizer=adam(model), precision="fp16", epochs=6, scaler=start, on_step=on_step
    )
    assert [record.skipped for record in records] == [not moved for moved in changed]
    assert any(changed) and not all(changed), "both kinds of steps"
    wanted, scales = start, []
    for record in records:
        scales.append(wanted.scale)
        wanted = wanted.updated(record.skipped)
    assert [record.loss_scale for record in records] == scales
    assert records.scaler.state_dict() == wanted.to_state_dict()


def test_a_static_scale_skips_and_stays():
    _, records = run(precision="fp16", scaler=LossScale.static(2.0**40), epochs=2)
    assert {(record.loss_scale, record.skipped) for record in records} == {(2.0**40, True)}


def test_bits_of_a_loop_by_hand_with_skipped_steps():
    start = LossScale(2.0**24, growth_interval=4)
    grad_scaler = torch.amp.GradScaler("cpu")
    grad_scaler.load_state_dict(start.to_state_dict())
    model, records = run(precision="fp16", epochs=6, scaler=start, max_grad_norm=0.5)
    other, losses = by_hand("fp16", epochs=6, scaler=grad_scaler, max_grad_norm=0.5)
    assert same(model.parameters(), other.parameters())
    assert [record.loss for record in records] == losses
    assert any(record.skipped for record in records)


def test_what_a_record_says():
    seen = []
    _, records = run(precision="fp16", epochs=2, on_step=seen.append)
    assert records == seen and len(records) == 8
    assert [record.step for record in records] == list(range(8))
    assert all(record.loss < 3 for record in records), "not scaled: ln 4 = 1.39 at the start"
    assert {(record.loss_scale, record.skipped) for record in records} == {(65536.0, False)}
    kinds = (int, float, float, float, bool)
    assert all(tuple(map(type, vars(record).values())) == kinds for record in records)
    _, plain = run(precision="bf16")
    assert {record.loss_scale for record in plain} == {1.0}


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_gradient_norm_is_the_true_one(name):
    model, (x, labels) = network(), batches()[0]
    F.cross_entropy(model(x), labels).backward()
    true = math.sqrt(sum(p.grad.double().square().sum().item() for p in model.parameters()))
    with warnings.catch_warnings(action="ignore"):  # tf32 on a CPU
        _, records = run(precision=name, max_grad_norm=1e-3)
    assert records[0].grad_norm == pytest.approx(true, rel=1e-6 if name == "fp32" else 0.01)


def test_a_norm_beyond_fp16_is_not_inf():
    # Each of the 4 biases of the last layer has the gradient 16 * 2000, the 64 weights more in sum.
    _, (record, *_) = run(precision="pure_fp16", loss_fn=lambda output, _: 2000 * output.sum())
    assert 65504 < record.grad_norm < math.inf


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_clipping_shortens_the_step_to_the_limit(name):
    model = network()
    before = parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    _, (record,) = run(model, batches()[:1], optimizer=optimizer, precision=name, max_grad_norm=0.1)
    moved = [b - a for a, b in zip(before, model.parameters(), strict=True)]
    length = math.sqrt(sum(m.double().square().sum().item() for m in moved))
    # clip_grads_with_norm_ divides by norm + 1e-6; the subtraction above rounds at 2**-24 of w < 1.
    assert length == pytest.approx(0.1, rel=1e-5) and record.grad_norm > 0.2


def test_a_limit_above_the_norm_changes_no_bit():
    clipped, records = run(precision="fp16", max_grad_norm=100.0)
    plain, _ = run(precision="fp16")
    assert max(record.grad_norm for record in records) < 100
    assert same(clipped.parameters(), plain.parameters())


def test_gradients_are_not_clipped_where_one_is_not_finite():
    """They stay in .grad as they were, to be looked at; a norm of inf would make them 0 and NaN."""

    def one_inf(output, targets):
        return output[:, 0].sum() + output[:, 1].sum() * math.inf

    def left(**settings):
        model, (record,) = run(None, batches()[:1], loss_fn=one_inf, **settings)
        assert record.skipped and not math.isfinite(record.grad_norm)
        return [p.grad for p in model[2].parameters()]

    clipped, plain = left(max_grad_norm=0.1), left()
    for gradient, wanted in zip(clipped, plain, strict=True):
        assert gradient[0].all() and torch.equal(gradient[0], wanted[0])
        torch.testing.assert_close(gradient, wanted, rtol=0, atol=0, equal_nan=True)


def test_a_loss_that_is_not_finite_skips_the_step_and_is_reported():
    loader = batches()
    loader[1][0][0, 0] = math.nan
    model, records = run(None, loader, precision="fp16")
    assert [record.skipped for record in records] == [False, True, False, False]
    assert math.isnan(records[1].loss) and math.isnan(records[1].grad_norm)
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_streak_of_skips_ends_the_run_on_request():
    with pytest.raises(NumericalInstability, match="not taken: 3"):
        run(precision="fp16", max_skips=3, loss_fn=lambda output, targets: output.sum() / 0)
    assert emulation._installed is None


# Accumulation


@pytest.mark.parametrize("accumulate", [2, 3, 4, 9])
@pytest.mark.parametrize("name", ["fp32", "fp16"])
def test_accumulated_steps_are_those_of_the_whole_batch(name, accumulate):
    parts = batches()  # 16, 16, 16, 4
    groups = [parts[i : i + accumulate] for i in range(0, 4, accumulate)]
    whole = [(torch.cat([x for x, _ in g]), torch.cat([y for _, y in g])) for g in groups]
    model, records = run(None, parts, precision=name, accumulate=accumulate, epochs=2)
    other, wanted = run(None, whole, precision=name, epochs=2)
    assert len(records) == len(wanted) == 2 * len(groups), "the tail of an epoch is a step"
    # One rounding of the sum: fp32 2**-24, fp16 gradients 2**-11, over at most 8 steps of lr 0.1.
    tolerance = 1e-6 if name == "fp32" else 2e-3
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=tolerance)
    for record, want in zip(records, wanted, strict=True):
        assert record.loss == pytest.approx(want.loss, rel=tolerance)
        assert record.grad_norm == pytest.approx(want.grad_norm, rel=10 * tolerance)


def test_accumulation_by_batches_instead_of_samples_would_show():
    """The control of the test above: a tail of 4 samples does not weigh as much as 16."""
    (x, y), (tail_x, tail_y) = batches()[2:]
    model = network()
    halves = (F.cross_entropy(model(x), y) + F.cross_entropy(model(tail_x), tail_y)) / 2
    _, (record,) = run(model, [(x, y), (tail_x, tail_y)], accumulate=2)
    assert abs(halves.item() - record.loss) > 1e-3


def test_gradients_from_before_do_not_count():
    model, fresh = network(), network()
    for p in model.parameters():
        p.grad = torch.full_like(p, 1e6)
    run(model, epochs=1)
    run(fresh, epochs=1)
    assert same(model.parameters(), fresh.parameters())


# Loaders and modes


def test_a_dataloader_is_read_once_an_epoch():
    dataset = torch.utils.data.TensorDataset(*data())
    loader = torch.utils.data.DataLoader(dataset, batch_size=16)
    model, records = run(None, loader, epochs=3)
    other, wanted = run(epochs=3)
    assert records == wanted and same(model.parameters(), other.parameters())


def test_a_loader_without_length():
    class Endless:
        def __iter__(self):
            return iter(batches())

    assert len(run(None, Endless(), epochs=2)[1]) == 8
    assert len(run(None, iter(batches()))[1]) == 4


@pytest.mark.parametrize("name", ["fp32", "fp16", "pure_fp16"])
def test_float64_inputs_and_float_targets_are_cast(name):
    inputs = data()[0].double()
    loader = list(zip(inputs.split(16), inputs[:, :4].split(16), strict=True))
    _, records = run(None, loader, precision=name, loss_fn=F.mse_loss, epochs=6)
    assert records[-1].loss < records[0].loss


def test_train_mode_is_set_and_evaluate_restores_every_mode():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model.eval()
    run(model)
    assert all(module.training for module in model.modules())
    model[1].eval()  # frozen statistics, as in fine-tuning
    inputs, targets = data()
    share = evaluate(model, inputs, targets)
    with pytest.raises(RuntimeError):
        evaluate(model, inputs[:, :3], targets)
    assert [m.training for m in model.modules()] == [True, True, False, True]
    model.eval()
    assert share == (model(inputs).argmax(1) == targets).double().mean().item()


def test_evaluate_by_precision_and_in_pieces():
    model, inputs = nn.Flatten(), torch.tensor([[1.0, 1.0 + 2.0**-12, 0.0]] * 3000)
    targets = torch.tensor([1, 1, 2] * 1000)
    assert evaluate(model, inputs, targets) == 2 / 3
    # 1 + 2**-12 is 1 in fp16, and of equal outputs the first counts.
    linear = nn.Linear(3, 3, bias=False)
    nn.init.eye_(linear.weight)
    assert evaluate(linear, inputs, targets) == 2 / 3
    assert evaluate(linear, inputs, targets, precision="fp16") == 0.0
    assert evaluate(linear.half(), inputs, targets, precision="pure_fp16") == 0.0


# Pure 16-bit models


@pytest.mark.parametrize("name", PURE)
def test_a_pure_model_keeps_its_parameters_and_its_optimizer(name):
    model = network()
    held = list(model.parameters())
    optimizer = torch.optim.Adam(held, lr=1e-2, eps=1e-4)
    before = parameters(model)
    run(model, optimizer=optimizer, precision=name)
    assert all(a is b for a, b in zip(held, model.parameters(), strict=True))
    assert {p.dtype for p in held} == {PURE[name]}
    for p in held:
        assert optimizer.state[p]["exp_avg"].dtype == optimizer.state[p]["exp_avg_sq"].dtype
        assert optimizer.state[p]["exp_avg"].dtype == PURE[name]
    assert not same(before, [p.float() for p in held])


# An interrupt


@pytest.fixture
def interruptible():
    """Python's own handler, which a shell takes from what it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_from_on_step_leaves_a_usable_process():
    model, seen = network(), []

    def on_step(record):
        seen.append(record)
        if record.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, precision="fp16", epochs=10, on_step=on_step)
    assert emulation._installed is None and not accumulators.in_force
    assert not torch.is_autocast_enabled("cpu")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    _, wanted = run(precision="fp16", epochs=10)
    assert seen == wanted[:6]
    two_epochs, _ = run(network(), precision="fp16", epochs=2)
    other, _ = run(network(), precision="fp16", epochs=2)
    assert same(two_epochs.parameters(), other.parameters())


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("interrupts", [1, 2])
def test_a_signal_waits_for_the_end_of_its_step_and_a_second_one_does_not(interrupts):
    model, seen, calls = network(), [], []

    def loss_fn(output, targets):
        calls.append(None)
        if len(calls) == 3:
            for _ in range(interrupts):
                signal.raise_signal(signal.SIGINT)
        return F.cross_entropy(output, targets)

    with pytest.raises(KeyboardInterrupt):
        run(model, epochs=5, loss_fn=loss_fn, on_step=seen.append)
    whole = 3 if interrupts == 1 else 2
    assert [record.step for record in seen] == list(range(whole))
    other, _ = run(None, batches()[:whole])
    assert same(model.parameters(), other.parameters())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert emulation._installed is None


def test_a_run_in_a_thread_and_under_a_handler_of_its_own():
    done = []
    thread = threading.Thread(target=lambda: done.append(run(precision="fp16")[1]))
    thread.start()
    thread.join()
    assert done == [run(precision="fp16")[1]]
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append("heard"))
    try:
        run(on_step=lambda record: signal.raise_signal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == ["heard"] * 4


# Progress


def test_the_bar_counts_steps_and_can_be_left_out(capsys):
    run(epochs=3, accumulate=3, progress=True)
    assert "/6 [" in capsys.readouterr().err
    run(epochs=3)
    assert capsys.readouterr() == ("", "")


# What is refused


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"precision": "fp8"}, "precision='fp8': pass one of 'fp32', 'tf32', 'bf16', 'fp16'"),
        ({"epochs": -1}, "epochs=-1: pass a whole number from 0 on"),
        ({"epochs": 1.5}, "epochs=1.5: pass a whole number"),
        ({"accumulate": 0}, "accumulate=0: pass a whole number from 1 on"),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0: pass a number above 0"),
        ({"max_grad_norm": math.nan}, "max_grad_norm=nan"),
        ({"device": "gpu"}, "device='gpu': "),
        ({"device": "meta"}, "device='meta' has no autocast: pass 'cpu' or 'cuda'"),
        ({"loader": iter(batches()), "epochs": 2}, "batches is a list_iterator, which can be read"),
        ({"loader": ((),)}, "a batch of epoch 0 is a tuple of []: it must be (inputs, targets)"),
        ({"loader": data()}, "a batch of epoch 0 is a Tensor: it must be (inputs, targets)"),
        ({"loader": [(torch.ones(2, 12), 3)]}, "a tuple of ['Tensor', 'int']"),
        (
            {"loader": [(torch.ones(5, 12), torch.zeros(4).long())]},
            "inputs of shape (5, 12) and targets of shape (4,): both must have the same number",
        ),
        ({"loader": [(torch.ones(0, 12), torch.zeros(0).long())]}, "samples, 1 or more"),
        ({"precision": "fp16_unscaled", "scaler": LossScale()}, "takes no scaler"),
        ({"precision": "pure_fp16", "scaler": LossScale()}, "unscale FP16 gradients"),
        ({"optimizer": sgd(network())}, "optimizer holds no parameter of this model"),
    ],
)
def test_what_is_refused(settings, said):
    with pytest.raises(ValueError) as error:
        run(**settings)
    assert said in str(error.value)
    assert emulation._installed is None


def test_an_empty_loader_is_refused_and_no_epochs_are_no_steps():
    class Empty(list):
        """An empty list is false, and run() would take its own."""

        def __bool__(self):
            return True

    with pytest.raises(ValueError, match="batches gave nothing in epoch 0: pass at least one"):
        run(None, Empty())
    untouched = network()
    assert run(untouched, Empty(), epochs=0)[1] == run(untouched, epochs=0)[1] == []
    assert same(untouched.parameters(), network().parameters())


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [(torch.ones(3, 12), torch.zeros(2).long()), (torch.ones(0, 12), torch.zeros(0).long())],
)
def test_evaluate_refuses_other_lengths_and_nothing(inputs, targets):
    with pytest.raises(ValueError, match="both must have the same number of samples, 1 or more"):
        evaluate(network(), inputs, targets)


# What is said aloud


def test_tf32_on_a_cpu_is_said_where_train_was_called():
    with pytest.warns(PrecisionWarning, match="'tf32' is not active on cpu: its float32") as said:
        model, records = run(precision="tf32")
    assert [warning.filename for warning in said] == [__file__]
    assert records == run(precision="fp32")[1]
    with pytest.warns(PrecisionWarning) as said:
        evaluate(model, *data(), precision="tf32")
    assert said[0].filename == __file__


def test_every_other_precision_is_silent_on_a_cpu():
    for name in PRECISIONS:
        if name != "tf32":
            with warnings.catch_warnings(action="error"):
                run(precision=name)


class _RoundsProducts(TorchFunctionMode):
    """A device whose float32 products are TF32's, whatever its flags say."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        is_product = func in (torch.Tensor.__matmul__, torch.Tensor.matmul, torch.matmul)
        return quantize(result, TF32) if is_product else result


def test_an_fp32_arm_must_not_be_tf32_unnoticed():
    cpu = torch.device("cpu")
    with pytest.raises(
        RuntimeError, match="'fp32' is not active on cpu: its float32 products lose"
    ):
        precision._try_product(precision_named("fp32"), cpu, _RoundsProducts)
    assert precision._try_product(precision_named("tf32"), cpu, _RoundsProducts) is None
    assert precision._try_product(precision_named("fp32"), cpu, nullcontext) is None


def test_a_dtype_that_autocast_does_not_give_is_refused():
    with pytest.raises(
        RuntimeError, match=r"a matmul gives torch.float32 instead of torch.float16"
    ):
        precision._try_product(precision_named("fp16"), torch.device("cpu"), nullcontext)


def test_a_gpu_without_units_for_the_dtype_is_told_with_the_evidence(monkeypatch):
    def card(capability):
        description = Description(name="a card", kind="cuda", capability=capability)
        monkeypatch.setattr(precision, "described", lambda device: description)

    cuda = torch.device("cuda")
    card("6.1")
    said = precision._slow(torch.bfloat16, cuda)
    assert "cuda computes bf16 without units of its own (compute capability 6.1;" in said
    assert precision._slow(torch.float16, torch.device("cpu")) is None
    card("7.0")
    assert precision._slow(torch.float16, cuda) is None


def test_a_scaler_that_is_disabled_is_said_and_does_nothing():
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with pytest.warns(
        PrecisionWarning, match="disabled GradScaler: the loss is not scaled"
    ) as said:
        _, records = run(precision="fp16", scaler=scaler)
    assert said[0].filename == __file__
    assert records == run(precision="fp16_unscaled")[1]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_cuda_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"device='cuda': this torch (was built|finds no)"):
        run(device="cuda")


# Around the loop


def test_an_emulation_that_is_open_stays_as_it_is():
    inside = []
    with emulate_gpu(accumulate=torch.float16):
        run(precision="fp16", on_step=lambda _: inside.append(list(accumulators.in_force)))
        assert inside == [accumulators.in_force] * 4 and len(accumulators.in_force) == 1
    run(on_step=lambda _: inside.append(list(accumulators.in_force)))
    assert inside[4:] == [[None]] * 4, "its own emulation, in float32"


@pytest.mark.parametrize("kind", ["ieee", "tf32"])
def test_fp32_products_are_pinned_and_put_back(kind):
    backends = torch.backends
    switches = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
    before = [switch.fp32_precision for switch in switches]
    older = backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32
    with pytest.raises(KeyboardInterrupt), fp32_products_pinned(kind):
        assert [switch.fp32_precision for switch in switches] == [kind] * 3
        raise KeyboardInterrupt
    assert [switch.fp32_precision for switch in switches] == before
    # Readable again: a learner's older code goes on.
    assert (backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32) == older


def test_records_compare_by_value():
    assert StepRecord(0, 1.0, 2.0, 1.0, False) == StepRecord(0, 1.0, 2.0, 1.0, False)


# On a GPU


@needs_cuda
@pytest.mark.parametrize("name", PRECISIONS)
def test_on_cuda_the_run_moves_there_and_pins_float32(name):
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    switches = (cuda.matmul, cudnn.conv, cudnn.rnn)
    before, seen = [switch.fp32_precision for switch in switches], []
    model, records = run(
        precision=name,
        device="cuda",
        epochs=3,
        on_step=lambda _: seen.append({switch.fp32_precision for switch in switches}),
    )
    assert seen == [{"tf32" if name == "tf32" else "ieee"}] * 12
    assert [switch.fp32_precision for switch in switches] == before
    assert {p.device.type for p in model.parameters()} == {"cuda"}
    assert records[-1].loss < records[0].loss and not any(r.skipped for r in records)
    assert evaluate(model, *data(), precision=name) > 0.25
    assert not accumulators.in_force


@needs_cuda
@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
def test_on_cuda_the_bits_of_a_loop_by_hand(name):
    scaler = torch.amp.GradScaler("cuda") if name == "fp16" else None
    model, records = run(precision=name, device="cuda", epochs=4)
    other, losses = by_hand(name, epochs=4, scaler=scaler, device="cuda")
    assert [record.loss for record in records] == losses
    assert same(model.parameters(), other.parameters())
