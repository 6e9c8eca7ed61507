"""Who trains when and what is timed, what a difference is, and what a report says of it.

Rules about time are tested on a clock that only the test moves; no test asserts a time.
"""

import math
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from labkit.measuring import accuracy_impact, benchmark, energy, quality, speed, verdict
from labkit.training import PrecisionWarning, StepRecord, TrainingRun, evaluate, train
from labkit.training.data import digits
from labkit.training.models import mlp

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def images():
    data = digits()
    return data.train_images.flatten(1), data.train_labels


def held_out():
    data = digits()
    return data.test_images.flatten(1), data.test_labels


def listed(count=8, size=32):
    inputs, targets = images()
    return list(zip(inputs.split(size)[:count], targets.split(size)[:count], strict=True))


def make(*widths, lr=1e-2):
    def fresh():
        model = mlp(*(widths or (64, 16, 10)))
        return model, torch.optim.SGD(model.parameters(), lr=lr)

    return fresh


def compare(modes=("fp32", "bf16"), **settings):
    given = {"make": make(), "batches": listed(), "steps": 3, "rounds": 2, "progress": False}
    return benchmark(modes, **(given | settings))


# A clock that the test moves, and a train() that takes as long as the test says


class Simulation:
    """Stands in for the clock and for ``train``; notes each block as (mode, model, steps)."""

    def __init__(self, seconds):
        self.now, self.blocks, self.seconds = 0.0, [], seconds

    def clock(self):
        return self.now

    def train(self, model, batches, *, optimizer, precision, on_step, **settings):
        block, records = len(self.blocks), TrainingRun(settings["scaler"])
        self.blocks.append([precision, model, 0])
        for step, _ in enumerate(batches):
            self.now += self.seconds(precision, block, step)
            records.append(StepRecord(step, 1.0, 1.0, 1.0, False))
            on_step(records[-1])
            self.blocks[-1][2] += 1
        return records


@pytest.fixture
def simulate(monkeypatch):
    def start(seconds):
        simulation = Simulation(seconds)
        monkeypatch.setattr(speed, "perf_counter", simulation.clock)
        monkeypatch.setattr(speed, "clock", lambda device: simulation.now)
        monkeypatch.setattr(speed, "train", simulation.train)
        return simulation

    return start


def test_each_round_every_arm_trains_a_block_in_a_shuffled_order(simulate):
    simulation = simulate(lambda mode, block, step: 1.0)
    compare(("fp32", "bf16", "fp16"), steps=2, rounds=8, warm_up=1)
    rounds = [simulation.blocks[i : i + 4] for i in range(0, 36, 4)]
    assert len(simulation.blocks) == 36
    for blocks in rounds:
        assert sorted(mode for mode, _, _ in blocks) == ["bf16", "fp16", "fp32", "fp32"]
        assert {id(model) for _, model, _ in blocks} == {id(model) for _, model, _ in rounds[0]}
        assert [steps for _, _, steps in blocks] == [3] * 4
    assert len({tuple(id(model) for _, model, _ in blocks) for blocks in rounds}) > 1


def test_warm_up_rounds_and_the_first_step_of_a_block_are_not_timed(simulate):
    def seconds(mode, block, step):
        return 512.0 if block < 6 or step == 0 else 0.25

    simulate(seconds)
    found = compare(steps=3, rounds=4, warm_up=2)
    for timing in found.timings:
        assert timing.seconds == (0.25,) * 4
        assert (timing.facts["steps"], timing.facts["skipped steps"]) == (24, 0)


def test_ratios_are_paired_so_a_machine_that_slows_down_changes_none(simulate):
    simulate(lambda mode, block, step: 2.0 ** (block // 3) * (0.5 if mode == "bf16" else 1.0))
    found = compare(rounds=5)
    seconds = found.timing("bf16").seconds
    assert max(seconds) == 16 * min(seconds)
    bf16, fp32 = found.verdict("bf16"), found.verdict("fp32")
    assert bf16.pairs == (0.5,) * 5 and fp32.pairs == (1.0,) * 5
    assert bf16.answer == "faster" and bf16.mean == 0.5 and fp32.answer == "equivalent"


def test_the_median_of_a_block_counts_not_its_one_slow_step(simulate):
    simulate(lambda mode, block, step: 100.0 if step == 2 else 1.0)
    assert compare(steps=3).verdict("fp32").pairs == (1.0, 1.0)


def test_an_effect_of_order_is_in_the_control_and_makes_no_verdict(simulate):
    simulate(lambda mode, block, step: 2.0 if block % 3 == 0 else 1.0)
    found = compare(rounds=9, warm_up=0)
    bf16, control = found.verdict("bf16"), found.verdict("fp32")
    assert set(control.pairs) == set(bf16.pairs) == {0.5, 1.0, 2.0}
    assert bf16.answer == "inconclusive" and "Bad A/A" in found.trouble
    assert bf16.interval in found.describe()


def test_a_clock_that_shows_no_time_divides_nothing_by_zero(simulate):
    simulate(lambda mode, block, step: 0.0)
    found = compare(rounds=5)
    assert found.verdict("bf16").answer == "inconclusive"
    assert math.isnan(found.verdict("bf16").mean)
    assert math.isnan(found.timing("bf16").rate)
    assert found.timing("bf16").facts["waits for data"] == 0.0
    assert "the clock showed 0" in found.describe()


class SlowLoader:
    """Takes three seconds of the simulated clock for a batch, and once an hour."""

    def __init__(self, batches, stalled=None):
        self.batches, self.stalled, self.read, self.simulation = batches, stalled, 0, None

    def __iter__(self):
        for batch in self.batches:
            self.simulation.now += 3600.0 if self.read == self.stalled else 3.0
            self.read += 1
            yield batch


@pytest.mark.parametrize("stalled", [None, 16, 20, 24])  # in a block of each arm
def test_the_share_of_a_step_that_waits_for_its_batch(simulate, stalled):
    loader = SlowLoader(listed(), stalled)
    loader.simulation = simulate(lambda mode, block, step: 1.0)
    found = compare(batches=loader, rounds=3)
    assert loader.read == 49 and sorted(found.timing("bf16").seconds)[1] == 4.0
    assert [timing.facts["waits for data"] for timing in found.timings] == [0.75, 0.75]
    assert found.describe().count("more than half of a step waits for data") == 2


# Real training


def test_taking_turns_changes_no_run():
    found = compare(("fp32", "bf16", "fp16"), test=held_out())
    for mode in ("fp32", "bf16", "fp16"):
        torch.manual_seed(0)
        model, optimizer = make()()
        batches = (listed() * 2)[:12]  # three blocks of 4
        records = train(model, batches, optimizer=optimizer, precision=mode, progress=False)
        facts = found.timing(mode).facts
        assert facts["loss"] == pytest.approx(sum(r.loss for r in records[-4:]) / 4, rel=1e-12)
        assert facts["test accuracy"] == evaluate(model, *held_out(), precision=mode)
        assert facts["steps"] == 12
    losses = {timing.facts["loss"] for timing in found.timings}
    assert len(losses) == 3, "the modes compute in three precisions"
    assert found.emulated and "16 bits are emulated" in found.describe()


def test_the_loss_scale_goes_on_from_block_to_block():
    def loss_fn(output, target):
        return 1e5 * F.cross_entropy(output, target)

    torch.manual_seed(0)
    model, optimizer = make(lr=1e-7)()
    records = train(
        model,
        (listed() * 2)[:12],
        optimizer=optimizer,
        loss_fn=loss_fn,
        precision="fp16",
        progress=False,
    )
    skipped = sum(record.skipped for record in records)
    found = compare(("fp32", "fp16"), make=make(lr=1e-7), loss_fn=loss_fn)
    assert found.timing("fp16").facts["skipped steps"] == skipped > 4
    assert found.timing("fp32").facts["skipped steps"] == 0


def test_arms_draw_the_same_dropout_and_the_same_shuffle():
    def fresh():
        model = nn.Sequential(nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, 10))
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    loader = DataLoader(TensorDataset(*(t[:96] for t in images())), batch_size=32, shuffle=True)
    # On a CPU "tf32" is a run of "fp32", and says so.
    with pytest.warns(PrecisionWarning, match="one of 'fp32'"):
        found = compare(("fp32", "tf32"), make=fresh, batches=loader)
    loss = found.timing("fp32").facts["loss"]
    assert found.timing("tf32").facts["loss"] == loss
    other = compare(("fp32",), make=fresh, batches=loader, seed=1)
    assert other.timing("fp32").facts["loss"] != loss


def test_the_global_random_state_is_left_as_it_was():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    loader = DataLoader(TensorDataset(*(t[:96] for t in images())), batch_size=32, shuffle=True)
    compare(steps=1, rounds=1, batches=loader)
    accuracy_impact(
        make=make(),
        train_data=tuple(t[:32] for t in images()),
        test_data=held_out(),
        epochs=1,
        seeds=(0, 1),
        progress=False,
    )
    assert torch.equal(torch.get_rng_state(), before)


def test_work_and_memory_are_in_the_report():
    found = compare(make=make(64, 32, 16), rounds=1)
    fp32, bf16 = found.timing("fp32"), found.timing("bf16")
    # Forward, and for backward every product again for its weight and the second for its input.
    forward = 2 * 32 * (64 * 32 + 32 * 16)
    assert fp32.work == bf16.work == 2 * forward + 2 * 32 * 32 * 16
    assert 0 < bf16.facts["memory"] < fp32.facts["memory"]


@needs_cuda
def test_on_cuda_memory_is_what_it_allocates():
    found = compare(device="cuda", make=make(64, 512, 10), test=held_out())
    parameters = 4 * (64 * 512 + 512 + 512 * 10 + 10)
    for timing in found.timings:
        assert timing.facts["memory"] > 2 * parameters  # weights and gradients
    assert not found.emulated and "CUDA allocates" in found.describe()


def test_shared_or_unequal_models_are_refused():
    model, optimizer = make()()
    with pytest.raises(ValueError, match=r"same parameters twice.*inside make"):
        compare(make=lambda: (model, optimizer))
    own = torch.Generator().manual_seed(0)

    def unequal():
        model, optimizer = make()()
        nn.init.normal_(model[1].weight, generator=own)
        return model, optimizer

    with pytest.raises(ValueError, match=r"other first weights at call 2.*global generator"):
        compare(make=unequal)


class OnceReadable:
    """No iterator, and yet empty when it is read again."""

    def __init__(self, batches):
        self.batches = iter(batches)

    def __iter__(self):
        yield from self.batches


def test_a_loader_that_cannot_be_read_again_is_refused_and_not_waited_for():
    with pytest.raises(
        ValueError, match="a OnceReadable, gave nothing, and every arm reads it again"
    ):
        compare(batches=OnceReadable(listed(count=2)))


def test_work_is_that_of_the_first_batch_also_if_another_is_short():
    inputs, targets = listed(count=1)[0]
    uneven = [(inputs, targets), (inputs[:1], targets[:1])]
    whole, found = (compare(("fp32",), batches=b, rounds=1) for b in (listed(count=1), uneven))
    assert found.timing("fp32").work == whole.timing("fp32").work


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"modes": ("fp32", "fp12")}, "precision='fp12': pass one of 'fp32'"),
        ({"modes": ("fp32", "fp32")}, "name each mode once"),
        ({"modes": ()}, "pass 1 or more"),
        ({"modes": "fp32"}, "pass 1 or more"),
        ({"steps": 0}, "steps=0: pass a whole number from 1"),
        ({"steps": -1}, "steps=-1"),
        ({"steps": 1.5}, "steps=1.5"),
        ({"rounds": 0}, "rounds=0"),
        ({"warm_up": -1}, "warm_up=-1: pass a whole number from 0"),
        ({"batches": []}, "batches, a list, gave nothing"),
        ({"batches": [torch.zeros(3, 64)]}, "the first batch is a Tensor"),
        ({"batches": iter([])}, r"read once.*list\(batches\)"),
        ({"batches": (batch for batch in ())}, "batches is a generator"),
        ({"test": (torch.zeros(3, 64), torch.zeros(2))}, "same number of samples"),
        ({"margin": 0.0}, "margin=0.0"),
        ({"device": "gpu"}, "device='gpu'"),
    ],
)
def test_bad_input_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        compare(**wrong)


# Energy and money


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A processor of two packages, a part of one, and "psys", which counts both once more."""
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)

    def write(zone, name, microjoules, size=1_000_000):
        folder = tmp_path / zone
        folder.mkdir(exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{microjoules}\n")
        (folder / "max_energy_range_uj").write_text(f"{size}\n")

    write("intel-rapl:0", "package-0", 100)
    write("intel-rapl:1", "package-1", 900_000)
    write("intel-rapl:0:0", "core", 5)
    write("intel-rapl:2", "psys", 7)
    return write


def test_rapl_adds_the_packages_and_sees_through_the_wrap(packages):
    counter = energy.energy_counter(torch.device("cpu"))
    assert counter.joules() == 0.0
    packages("intel-rapl:0", "package-0", 200_100)
    packages("intel-rapl:1", "package-1", 150_000)  # 100,000 to the range and 150,000 more
    packages("intel-rapl:0:0", "core", 999)
    packages("intel-rapl:2", "psys", 999)
    assert counter.joules() == 0.45
    packages("intel-rapl:0", "package-0", 200_000)
    assert counter.joules() == pytest.approx(0.45 + 0.9999)


def test_energy_of_a_step_leaves_the_warm_up_out(packages, simulate):
    used = [0]

    def seconds(mode, block, step):
        used[0] += 500_000 if block < 3 else {"fp32": 20, "bf16": 10}[mode]
        packages("intel-rapl:0", "package-0", used[0] % 1_000_000)
        return 1.0

    simulate(seconds)
    packages("intel-rapl:0", "package-0", 0)
    found = compare(steps=1, rounds=2, warm_up=1)
    assert found.timing("fp32").facts["J a step"] == pytest.approx(20e-6)
    assert found.timing("bf16").facts["J a step"] == pytest.approx(10e-6)
    assert "Energy: RAPL" in found.describe()


def test_without_a_counter_energy_is_not_measured(packages, tmp_path, monkeypatch):
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert energy.energy_counter(torch.device("cpu")) is None
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "nowhere")
    assert energy.energy_counter(torch.device("cpu")) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert energy.energy_counter(torch.device("cuda")) is None
    found = compare(steps=1, rounds=1)
    assert "Energy: not measured." in found.notes
    assert "J a step" not in found.timing("fp32").facts


def test_nvml_is_asked_for_the_device_by_its_uuid(monkeypatch):
    millijoules = {"handle": 2500}
    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID={"GPU-abc": "handle"}.__getitem__,
        nvmlDeviceGetTotalEnergyConsumption=millijoules.__getitem__,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc")
    )
    counter = energy.energy_counter(torch.device("cuda"))
    millijoules["handle"] = 5000
    assert counter.joules() == 2.5
    assert counter.source.startswith("NVML")


# Accuracy


def impact(modes=("fp32", "bf16"), **settings):
    inputs, targets = images()
    given = {
        "make": make(lr=0.1),
        "train_data": (inputs[:256], targets[:256]),
        "test_data": held_out(),
        "epochs": 1,
        "seeds": (0, 1, 2),
        "progress": False,
    }
    return accuracy_impact(modes, **(given | settings))


def test_every_mode_sees_the_same_weights_and_batches_and_the_control_a_rounding():
    runs = []

    def noted():
        model, optimizer = make(lr=0.1)()
        runs.append((model, []))
        return model, optimizer

    def loss_fn(output, target):
        model, targets = runs[-1]
        if not targets:
            first.append([p.detach().clone() for p in model.parameters()])
        targets.append(target)
        return F.cross_entropy(output, target)

    first = []
    impact(make=noted, loss_fn=loss_fn, seeds=(3, 5), epochs=2)
    weights = [torch.cat([t.flatten() for t in own]) for own in first]
    orders = [torch.cat(targets) for _, targets in runs]
    fp32, bf16, again = (slice(i, i + 2) for i in (0, 2, 4))
    for one, other, rounded in zip(weights[fp32], weights[bf16], weights[again], strict=True):
        assert torch.equal(one, other) and not torch.equal(one, rounded)
        assert torch.equal(one.bfloat16().float(), rounded)
    for one, other, rounded in zip(orders[fp32], orders[bf16], orders[again], strict=True):
        assert torch.equal(one, other) and torch.equal(one, rounded)
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(orders[0], orders[1])
    epochs = orders[0].split(256)
    assert not torch.equal(*epochs), "another order each epoch"


def test_the_same_arithmetic_twice_is_equivalent():
    with pytest.warns(PrecisionWarning, match="one of 'fp32'"):
        # On a CPU both are float32.
        found = impact(("fp32", "tf32"), make=make(lr=0.5), epochs=10, batch_size=32)
    assert found.comparisons["tf32"].pairs == (0.0, 0.0, 0.0)
    control, trouble, line = found.describe().splitlines()
    assert trouble == found.trouble
    assert control.startswith("A/A control, fp32 from weights rounded once: ")
    assert line == f"tf32 - fp32: {found.comparisons['tf32'].describe()}"
    pairs, image = found.comparisons["tf32"], 1 / len(held_out()[1])
    assert pairs.coarse and pairs.low <= -image and pairs.high >= image, "not certain"
    assert pairs.answer == "equivalent"
    assert found.accuracies["tf32"] == found.accuracies["fp32"]
    assert min(found.accuracies["fp32"]) > 0.5, "they learned something"


def test_a_control_that_is_not_equivalent_is_said():
    found = impact(margin=1e-6)
    assert found.comparisons["fp32"].answer == "inconclusive"
    said = "Bad A/A control: fp32 from weights rounded once is inconclusive"
    assert said in found.trouble and said in found._repr_html_()
    sure = impact(margin=0.9)
    assert sure.comparisons["fp32"].answer == sure.comparisons["bf16"].answer == "equivalent"
    assert "Bad" not in sure._repr_html_()
    assert len(sure.accuracies["bf16"]) == len(sure.comparisons["fp32"].pairs) == 3


def test_an_impact_is_a_table():
    found = impact(("fp32", "bf16", "fp16"), margin=0.9)
    assert found._repr_html_().count("<tr>") == 4
    assert found._repr_html_().count("<td>equivalent</td>") == 2
    assert found._repr_html_().count("<td>A/A control</td>") == 1


def test_accuracies_are_compared_with_the_control_of_the_same_runs(monkeypatch):
    runs = iter([0.5] * 3 + [0.6] * 3 + [0.7] * 3)  # fp32, bf16, fp32 from weights rounded once
    monkeypatch.setattr(quality, "evaluate", lambda *given, **settings: next(runs))
    monkeypatch.setattr(quality, "train", lambda *given, **settings: [])
    found = impact(margin=0.05)
    step = 1 / len(held_out()[1])
    assert found.comparisons["bf16"].low == pytest.approx(0.1 - step - (0.2 - step))
    assert found.comparisons["bf16"].answer == "inconclusive"
    assert found.comparisons["fp32"].answer == "better" and "Bad A/A control" in found.trouble


def test_the_control_widens_every_comparison():
    off = (0.3, 0.31, 0.29)
    alone, widened = (verdict([0.0, 0.01, -0.01], 0.5, control=c) for c in ((), off))
    distance = 0.3 - 4.303 * 0.01 / math.sqrt(3)
    assert widened.high - alone.high == pytest.approx(distance)
    assert alone.low - widened.low == pytest.approx(distance)


@pytest.mark.slow
def test_pure_bf16_at_a_small_learning_rate_is_worse():
    """Suspect D of lab 01: most updates are below half an ulp of bfloat16, and nothing learns."""

    def fresh():
        model = mlp(64, 256, 10)
        return model, torch.optim.Adam(model.parameters(), lr=5e-5, foreach=False)

    found = impact(
        ("fp32", "bf16", "pure_bf16"),
        make=fresh,
        train_data=images(),
        epochs=13,
        seeds=range(5),
        margin=0.02,
    )
    assert found.comparisons["pure_bf16"].answer == "worse"
    assert found.comparisons["bf16"].answer == "equivalent"
    assert found.comparisons["fp32"].answer == "equivalent"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"modes": ("fp32",)}, "pass 2 or more"),
        ({"modes": ("fp32", "fp32")}, "A/A control of the first one is made without"),
        ({"modes": ("fp32", "fp12")}, "precision='fp12'"),
        ({"seeds": (0,)}, "2 or more, each once"),
        ({"seeds": (0, 0)}, "2 or more, each once"),
        ({"margin": 0}, "margin=0"),
        ({"epochs": 0}, "epochs=0: pass a whole number from 1"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"train_data": (torch.zeros(3, 64), torch.zeros(2).long())}, "train_data has inputs"),
        ({"test_data": (torch.zeros(3, 64), torch.zeros(2).long())}, "test_data has inputs"),
        ({"test_data": (torch.zeros(0, 64), torch.zeros(0).long())}, "1 or more"),
    ],
)
def test_an_impact_that_would_mean_nothing_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        impact(**wrong)
