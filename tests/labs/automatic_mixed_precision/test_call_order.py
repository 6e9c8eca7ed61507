"""The order of AMP calls: recorded from running code, and walked beside torch's own scaler."""

import json
import random

import pytest
import torch
from traitlets import TraitError

from labkit.labs.automatic_mixed_precision.call_order import BARE_STEP, CALLS, misuses, record_calls
from labkit.labs.automatic_mixed_precision.widget_call_order import SHUFFLED, CallOrder


def network():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2)


class Loop:
    """A loop whose body makes its calls in a given order, twice."""

    def __init__(self):
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**6)
        self.blocks = []
        self.inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)) * 3

    def run(self, order):
        try:
            for _ in range(2):
                self.loss = self.scaled = None
                for call in order:
                    getattr(self, call.replace(" ", "_").rstrip("_"))()
        finally:
            while self.blocks:
                self.exit_autocast()
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def zero_grad(self):
        self.optimizer.zero_grad()

    def enter_autocast(self):
        self.blocks.append(torch.autocast("cpu", dtype=torch.float16))
        self.blocks[-1].__enter__()

    def exit_autocast(self):
        if not self.blocks:
            raise RuntimeError("not open")
        self.blocks.pop().__exit__(None, None, None)

    def forward(self):
        self.loss = self.model(self.inputs).float().square().mean()
        self.scaled = None

    def scale(self):
        if self.loss is None:
            raise TypeError("no loss")
        self.scaled = self.scaler.scale(self.loss)

    def backward(self):
        (self.loss if self.scaled is None else self.scaled).backward()

    def unscale(self):
        self.scaler.unscale_(self.optimizer)

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.3)

    def step(self):
        self.scaler.step(self.optimizer)

    def update(self):
        self.scaler.update()


def ends(order):
    """The weights after two rounds, or the name of what was raised."""
    try:
        return Loop().run(order)
    except (RuntimeError, AssertionError, TypeError, AttributeError) as error:
        return type(error).__name__


def orders(count):
    """Orders near the right one: some calls moved, some left out; and some at random."""
    source = random.Random(5)
    for i in range(count):
        order = list(CALLS)
        for _ in range(source.randint(0, 2)):
            order.insert(source.randrange(len(order)), order.pop(source.randrange(len(order))))
        if i % 3 == 0:
            order.pop(source.randrange(len(order)))
        if i % 7 == 0:
            source.shuffle(order)
        yield order


def test_an_order_without_misuses_is_the_right_one():
    assert misuses(CALLS) == []


def test_what_the_walk_says_happens_in_torch():
    no_clip = [call for call in CALLS if call not in ("clip", "unscale_")]
    right = {True: ends(CALLS), False: ends(no_clip)}
    assert all(isinstance(weights, torch.Tensor) for weights in right.values())
    kinds = set()
    for order in orders(150):
        found, end = misuses(order), ends(order)
        kind = {misuse.kind for misuse in found} or {"none"}
        kinds |= kind
        if "raises" in kind:
            assert isinstance(end, str), (order, found)
            continue
        assert isinstance(end, torch.Tensor), (order, found, end)
        want = right["clip" in order]
        if kind == {"style"}:  # backward inside the block may run an operator in 16 bits
            assert torch.allclose(end, want, rtol=2.0**-8), (order, found)
        else:
            assert torch.equal(end, want) == (kind == {"none"}), (order, found)
    assert kinds == {"none", "style", "wrong", "raises"}


@pytest.mark.parametrize(
    ("order", "place", "kind", "part"),
    [
        ([c for c in CALLS if c != "unscale_"], "clip", "wrong", "1/65536"),
        ([c for c in CALLS if c != "zero_grad"], "backward", "wrong", "not emptied"),
        ([*CALLS, "update"], None, "raises", "no inf check"),
        ([c for c in CALLS if c != "update"], "unscale_", "raises", "no update"),
        ([c for c in CALLS if c != "scale"], "backward", "wrong", "not scaled"),
        ([c for c in CALLS if c != "step"], "update", "wrong", "no weight ever moves"),
        (["forward", *[c for c in CALLS if c != "forward"]], "forward", "wrong", "float32"),
    ],
)
def test_misuses_stand_at_the_call_and_say_what_happens(order, place, kind, part):
    at = order.index(place) if place else len(order) - 1
    (said,) = [misuse for misuse in misuses(order) if misuse.place == at]
    assert said.kind == kind and part in said.sentence


def test_an_unknown_call_is_refused():
    with pytest.raises(ValueError, match=r"'zero'.*zero_grad"):
        misuses(["zero"])


def test_calls_are_recorded_in_order_and_only_the_outermost():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with record_calls() as recorder:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.MSELoss()(model(torch.ones(1, 4)), torch.zeros(1, 2))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert tuple(recorder.calls) == CALLS
    before = list(recorder.calls)
    optimizer.zero_grad()  # outside the block nothing is noted, and nothing stays wrapped
    assert recorder.calls == before
    assert torch.amp.GradScaler.step.__qualname__ == "GradScaler.step"
    assert not hasattr(torch.amp.GradScaler.step, "__wrapped__")


def test_the_recorder_leaves_when_the_code_raises():
    with pytest.raises(KeyError), record_calls():
        raise KeyError
    assert not hasattr(torch.amp.GradScaler.scale, "__wrapped__")


def test_a_bare_optimizer_step_is_seen_too():
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.Adam([weight], fused=True)
    with record_calls() as recorder:
        (2 * weight).backward()
        optimizer.step()
    assert recorder.calls == ["backward", "step"]


# Loops that an earlier tool condemned


def recorded(loop):
    with record_calls() as recorder:
        loop()
    return recorder.calls


def a_loop(*, scaler=None, dtype=torch.bfloat16, micro_batches=1, zero_grad=True, bare=False):
    """One step as people write it, with the parts that are asked for."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = scaler or torch.amp.GradScaler("cpu", enabled=False)

    def loop():
        if zero_grad:
            optimizer.zero_grad()
        for _ in range(micro_batches):
            with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                loss = model(torch.ones(1, 4)).float().sum()
            scaler.scale(loss).backward()
        optimizer.step() if bare else scaler.step(optimizer)
        scaler.update()

    return loop


@pytest.mark.parametrize("dtype", [torch.bfloat16, None])
def test_a_loop_without_a_scaler_is_right_and_needs_no_unscale(dtype):
    calls = recorded(a_loop(dtype=dtype))
    assert "scale" not in calls and calls[-1] == "step"
    assert misuses(calls) == []
    assert misuses([call for call in calls if call != "zero_grad"])[0].sentence.endswith("emptied")


def test_an_fp32_loop_written_without_autocast_is_right():
    assert misuses(["zero_grad", "forward", "backward", "step"]) == []
    assert misuses(["zero_grad", "forward", "backward", "clip", "step"]) == []


def test_micro_batches_are_added_up_in_a_right_loop():
    live = torch.amp.GradScaler("cpu")
    calls = recorded(a_loop(scaler=live, dtype=torch.float16, micro_batches=3))
    assert calls.count("backward") == 3 and misuses(calls) == []
    between = calls.index("backward") + 1
    (said, *_) = misuses([*calls[:between], "unscale_", *calls[between:]])
    assert said.sentence == "adds scaled gradients to gradients that are not"


def test_a_step_beside_the_scaler_is_told_from_the_scalers_own():
    live = torch.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="No inf checks"):
        recorded(a_loop(scaler=live, dtype=torch.float16, bare=True))
    calls = [call if call != "step" else BARE_STEP for call in CALLS]
    assert "an inf that unscale_ found is used" in misuses(calls)[0].sentence
    calls = [call for call in calls if call not in ("unscale_", "clip", "update")]
    assert [misuse.sentence for misuse in misuses(calls)] == [
        "the optimizer does not unscale: its gradients still hold the scale"
    ]


def two_networks(*, zero_g=True):
    d, g = torch.nn.Linear(4, 1), torch.nn.Linear(2, 4)
    of_d, of_g = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (d, g))
    scaler = torch.amp.GradScaler("cpu")

    def loop():
        of_d.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = d(g(torch.ones(1, 2)).detach()).sum()
        scaler.scale(loss).backward()
        scaler.step(of_d)
        if zero_g:
            of_g.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = d(g(torch.ones(1, 2))).sum()
        scaler.scale(loss).backward()
        scaler.step(of_g)
        scaler.update()

    return loop


def test_two_optimizers_with_one_scaler_and_one_update_are_right():
    calls = recorded(two_networks())
    assert "backward A" in calls and "backward AB" in calls and "update" in calls
    assert misuses(calls) == []
    (said,) = misuses(recorded(two_networks(zero_g=False)))
    assert "they were not emptied" in said.sentence
    assert recorded(two_networks(zero_g=False))[said.place] == "step B"


def test_a_letter_belongs_to_a_call_that_is_known():
    with pytest.raises(ValueError, match="'stop A'"):
        misuses(["stop A"])


# The widget


def ask(widget, order):
    """What the page does: a request with its whole order, one number higher than the last."""
    widget.request = {"seq": widget.numbers["seq"] + 1, "order": order}
    return widget.numbers


def test_the_shuffled_order_can_be_put_right_by_moves():
    widget = CallOrder()
    assert widget.order == list(SHUFFLED) and widget.numbers["verdict"] == "This loop raises."
    for place, call in enumerate(CALLS):
        widget.move(widget.order.index(call), place)
    assert tuple(widget.order) == CALLS
    assert widget.numbers["verdict"] == "This loop is right."
    assert all(row["fault"] == "" for row in widget.numbers["rows"])


def test_calls_are_moved_taken_out_and_put_in():
    widget = CallOrder(["zero_grad", "backward", "forward"])
    widget.move(2, 1)
    assert widget.order == ["zero_grad", "forward", "backward"]
    widget.take(0)
    assert widget.order == ["forward", "backward"] and "zero_grad" in widget.numbers["absent"]
    widget.put("step")
    assert widget.order == ["forward", "backward", "step"]


def test_a_request_is_answered_with_its_number():
    widget = CallOrder(["zero_grad", "backward", "forward"])
    shown = ask(widget, ["forward", "backward"])
    assert (shown["seq"], widget.order) == (1, ["forward", "backward"])
    shown = ask(widget, shown["first"])
    assert (shown["seq"], widget.order) == (2, ["zero_grad", "backward", "forward"])


def test_rows_say_what_breaks_and_the_words_repeat_it():
    widget = CallOrder([call for call in CALLS if call != "unscale_"])
    (row,) = [row for row in widget.numbers["rows"] if row["fault"]]
    assert row["call"] == "clip" and "1/65536" in row["fault"]
    assert row["spoken"].startswith("7 of 9: clip, clips scaled gradients")
    assert widget.numbers["verdict"] == "This loop runs, and 1 row complains."
    assert "7. clip  <- clips scaled gradients" in widget.describe()
    assert repr(widget) == widget.describe()
    style = CallOrder(
        [*CALLS[:3], "scale", "backward", "exit autocast", "unscale_", "clip", "step", "update"]
    )
    assert style.numbers["verdict"] == "This loop is right, but not neat."
    assert json.loads(json.dumps(widget.numbers)) == widget.numbers


def test_an_empty_order_has_nothing_wrong_and_all_calls_to_put_in():
    widget = CallOrder(["step"])
    widget.take(0)
    assert widget.numbers["rows"] == [] and widget.numbers["absent"] == list(CALLS)


def test_what_is_not_possible_is_refused():
    with pytest.raises(ValueError, match="call 'zero'"):
        CallOrder(["zero"])
    widget = CallOrder()
    for act in (lambda: widget.move(0, 10), lambda: widget.take(10), lambda: widget.put("clop")):
        with pytest.raises(ValueError, match=r"place 10|call 'clop'"):
            act()
    with pytest.raises(TraitError):
        widget.order = []
