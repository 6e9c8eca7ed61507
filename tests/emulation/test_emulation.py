"""Under emulate_gpu() ordinary torch.amp code on a CPU behaves as on a Tensor Core GPU."""

import copy
import pickle
import subprocess
import sys
import threading
from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from test_emulation_dtypes import cuda_autocast
from torch import nn
from torch.utils.checkpoint import checkpoint

from labkit.emulation import emulate_gpu
from labkit.formats import E4M3, E8M0, FP32, FloatFormat, quantize

LOW = (torch.float16, torch.bfloat16)


def autocast(dtype: torch.dtype = torch.float16) -> torch.autocast:
    return torch.autocast("cpu", dtype=dtype)


def softmax_dtype() -> torch.dtype:
    """float32 where CUDA's lists are in force, float16 on a plain CPU."""
    with autocast():
        return torch.ones(2, dtype=torch.float16).softmax(0).dtype


def is_emulated() -> bool:
    return softmax_dtype() is torch.float32


# Entering and leaving


def test_the_outermost_block_begins_and_ends_it():
    """One object may be entered again, inside itself and afterwards; it is a decorator too."""
    again = emulate_gpu()
    assert not is_emulated()
    for _ in range(2):
        with again:
            with again, emulate_gpu():
                assert is_emulated()
            assert is_emulated()
        assert not is_emulated()
    assert emulate_gpu()(is_emulated)() and not is_emulated()


@pytest.mark.filterwarnings("error")
def test_an_exception_leaves_nothing_behind():
    pinned = torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv
    before = [each.fp32_precision for each in pinned], torch.backends.mha.get_fastpath_enabled()
    x = torch.randn(4, 4).half()
    plain = x @ x
    with pytest.raises(ZeroDivisionError), emulate_gpu(), autocast():
        raise ZeroDivisionError
    assert not is_emulated()
    assert torch.equal(x @ x, plain)
    assert before == (
        [each.fp32_precision for each in pinned],
        torch.backends.mha.get_fastpath_enabled(),
    )


def test_float32_is_ieee_inside_and_as_before_outside():
    matmul, conv = torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv
    matmul.fp32_precision = "bf16"
    try:
        with emulate_gpu():
            assert matmul.fp32_precision == conv.fp32_precision == "ieee"
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = "none"


def test_blocks_of_threads_may_overlap_in_any_order():
    """Process-wide and counted: the last block to end, in whichever thread, switches it off."""
    first_entered, second_entered, first_left = (threading.Event() for _ in range(3))
    seen = []

    def first() -> None:
        with emulate_gpu():
            first_entered.set()
            second_entered.wait(60)
        first_left.set()

    def second() -> None:
        first_entered.wait(60)
        with emulate_gpu(accumulate=torch.float16):
            second_entered.set()
            first_left.wait(60)
            seen.append(is_emulated())

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert seen == [True] and not is_emulated()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_tensors_are_left_alone():
    a, b = torch.randn(2, 65, 257, device="cuda").half()
    plain = a @ b.T, a.softmax(0)
    with emulate_gpu(accumulate=torch.float16):
        assert torch.equal(a @ b.T, plain[0]) and torch.equal(a.softmax(0), plain[1])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"accumulate": torch.int32}, "accumulate=torch.int32"),
        ({"accumulate": "fp16"}, "accumulate='fp16'"),
        ({"accumulate": torch.float64}, "accumulate=torch.float64"),
        ({"accumulate": E8M0}, "signed"),
        ({"accumulate": E4M3, "promote_every": 0}, "promote_every=0"),
        ({"accumulate": E4M3, "promote_every": 1.5}, "promote_every=1.5"),
        ({"accumulate": E4M3, "promote_every": True}, "promote_every=True"),
        ({"promote_every": 128}, "promote_every=128 moves a narrow sum to float32"),
        ({"accumulate": FP32, "promote_every": 128}, "float32 already"),
    ],
)
def test_bad_arguments_are_named_before_anything_changes(arguments, said):
    with pytest.raises(ValueError, match=said):
        emulate_gpu(**arguments)
    assert not is_emulated()


# Everything that runs operators obeys


class Recorder(nn.Module):
    """A softmax between linear layers; it notes the dtypes of both."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.dtypes: list[tuple[torch.dtype, torch.dtype]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        z = y.softmax(-1)
        self.dtypes.append((y.dtype, z.dtype))
        return self.last(z)


CUDA_DTYPES = (torch.float16, torch.float32)


def test_composites_obey():
    x = torch.full((4, 4), 300.0, dtype=torch.float16)
    with emulate_gpu(), autocast():
        results = {
            "F.normalize": F.normalize(x),
            "F.softmin": F.softmin(x, dim=-1),
            "torch.linalg.norm": torch.linalg.norm(x),
            "F.cosine_similarity": F.cosine_similarity(x, x),
            "nn.LayerNorm": nn.LayerNorm(4)(x),
        }
    for name, result in results.items():
        assert result.dtype is torch.float32, name
        assert result.isfinite().all(), name


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_obey_when_they_run_again(use_reentrant):
    torch.manual_seed(0)
    model, x = Recorder(), torch.randn(4, 8, requires_grad=True)
    with emulate_gpu():
        with autocast():
            loss = checkpoint(model, x, use_reentrant=use_reentrant).square().sum()
        loss.backward()
        again = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        with autocast():
            loss = model(x).square().sum()
        loss.backward()
    assert model.dtypes == [CUDA_DTYPES] * 3
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter.grad, again[name])


def test_worker_threads_obey():
    model, x = Recorder(), torch.randn(4, 8)

    def work() -> None:
        with autocast():
            model(x)

    with emulate_gpu():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert model.dtypes == [CUDA_DTYPES]


def test_hooks_obey():
    model, seen = nn.Linear(4, 4), []
    model.register_forward_hook(lambda *_: seen.append(softmax_dtype()))
    model.weight.register_hook(lambda grad: seen.append(softmax_dtype()))
    with emulate_gpu():
        with autocast():
            loss = model(torch.randn(2, 4)).float().sum()
        loss.backward()
    assert seen == [torch.float32] * 2


def test_vmap_and_grad_of_torch_func_obey():
    weight, batch = torch.randn(4, 4), torch.randn(3, 4)

    def loss(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = weight @ x
        assert (y.dtype, y.exp().dtype) == CUDA_DTYPES
        return F.layer_norm(y, (4,)).sum()

    with emulate_gpu(), autocast():
        losses = torch.func.vmap(loss, in_dims=(None, 0))(weight, batch)
        grads = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(weight, batch)
        # vmap takes softmax apart before any autocast sees it; on CUDA as well, says the oracle.
        inside = torch.func.vmap(lambda x: x.softmax(0))(batch.half())
    assert losses.dtype is torch.float32 and grads.shape == (3, 4, 4)
    with cuda_autocast(torch.float16):
        on_cuda = torch.func.vmap(lambda x: x.softmax(0))(torch.ones(3, 4, device="cuda").half())
    assert inside.dtype is on_cuda.dtype is torch.float16


def test_inference_mode_obeys():
    model = Recorder()
    with emulate_gpu(), torch.inference_mode(), autocast():
        model(torch.randn(4, 8))
    assert model.dtypes == [CUDA_DTYPES]


# CUDA's rules


@pytest.mark.parametrize("low", LOW)
def test_bceloss_is_banned_with_cudas_message(low):
    probability, target = torch.full((2,), 0.5), torch.ones(2)
    with emulate_gpu(), autocast(low):
        with pytest.raises(RuntimeError, match="are unsafe to autocast"):
            nn.BCELoss()(probability, target)
        with torch.autocast("cpu", enabled=False):
            assert nn.BCELoss()(probability, target).item() == pytest.approx(0.6931472)


def lstm_by_hand(x, h, linear, rounded):
    """torch's equations in float64, each result rounded."""
    c, seen = torch.zeros_like(h), []
    for step in linear(x, 0):
        gates = rounded(linear(h, 1) + step)
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = (rounded(each) for each in (i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()))
        c = rounded(rounded(f * c) + rounded(i * g))
        h = rounded(o * rounded(c.tanh()))
        seen.append(h)
    return torch.stack(seen)


def gru_by_hand(x, h, linear, rounded):
    seen = []
    for step in linear(x, 0):
        of_x, of_h = step.chunk(3, 1), linear(h, 1).chunk(3, 1)
        r, z = (rounded(rounded(a + b).sigmoid()) for a, b in zip(of_x[:2], of_h[:2], strict=True))
        n = rounded(rounded(of_x[2] + rounded(of_h[2] * r)).tanh())
        h = rounded(rounded(rounded(h - n) * z) + n)
        seen.append(h)
    return torch.stack(seen)


def rnn_by_hand(x, h, linear, rounded):
    seen = []
    for step in linear(x, 0):
        h = rounded(rounded(linear(h, 1) + step).tanh())
        seen.append(h)
    return torch.stack(seen)


LAYERS = [(nn.LSTM, lstm_by_hand), (nn.GRU, gru_by_hand), (nn.RNN, rnn_by_hand)]


@pytest.mark.parametrize(("layer", "by_hand"), LAYERS)
@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("by", ["autocast", "model.to"])
def test_layers_of_whole_sequences_round_every_gate_and_state(layer, by_hand, low, by):
    """Also where oneDNN has a 16-bit layer of its own, which rounds elsewhere.

    float32's noise may move a value over a tie, hardly more, and then by one gap.
    """
    torch.manual_seed(0)
    model, x = layer(8, 16), torch.randn(20, 4, 8)

    def rounded(value: torch.Tensor) -> torch.Tensor:
        return value.to(low).double()

    def linear(value: torch.Tensor, place: int) -> torch.Tensor:
        weight, bias = (rounded(w.detach()) for w in list(model.parameters())[place::2])
        return rounded(value @ weight.T + bias)

    wanted = by_hand(rounded(x), torch.zeros(4, 16).double(), linear, rounded)
    with emulate_gpu():
        if by == "autocast":
            with autocast(low):
                got = model(x)[0]
        else:
            got = model.to(low)(x.to(low))[0]
    assert got.dtype is low
    assert (got.double() == wanted).double().mean() > 0.97
    assert (got.double() - wanted).abs().max() <= 4 * torch.finfo(low).eps


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_layers_of_whole_sequences_train(layer):
    """Stacked, both ways, packed; 2 % of the gradient is a sanity bound, chosen, not derived."""
    torch.manual_seed(0)
    model = layer(4, 6, num_layers=2, bidirectional=True)
    x = nn.utils.rnn.pack_sequence([torch.randn(7, 4), torch.randn(5, 4)])
    with emulate_gpu():
        with autocast():
            y, _ = model(x)
        assert y.data.dtype is torch.float16
        y.data.float().square().sum().backward()
        got = [p.grad.clone() for p in model.parameters()]
        model.double().zero_grad()
        with autocast():
            exact, _ = model(x.double())
        exact.data.square().sum().backward()
    assert exact.data.dtype is torch.float64
    for grad, parameter in zip(got, model.parameters(), strict=True):
        assert grad.dtype is torch.float32
        assert (grad - parameter.grad).norm() <= 0.02 * parameter.grad.norm()


def test_onednn_is_as_it_was_after_a_layer_of_a_whole_sequence():
    model, x = nn.LSTM(4, 4).half(), torch.randn(3, 2, 4).half()
    assert torch.backends.mkldnn.enabled
    with emulate_gpu():
        model(x)
        assert torch.backends.mkldnn.enabled
        with pytest.raises(RuntimeError):
            model(x[..., :3])
        assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("low", LOW)
def test_rnn_cells_train(cell, low):
    model, x, state = cell(4, 4), torch.randn(2, 4), torch.randn(2, 4)
    with emulate_gpu():
        with autocast(low):
            states = model(x, (state, state) if cell is nn.LSTMCell else state)
            state = states[0] if isinstance(states, tuple) else states
        assert state.dtype is low
        state.float().sum().backward()
    assert all(p.grad.dtype is torch.float32 and p.grad.any() for p in model.parameters())


# "cuda" on a machine without CUDA: what is to be on is refused, all else works for CPU tensors


without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="cuda means the GPU there")
deprecated = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
switched_off = pytest.mark.filterwarnings("ignore:.*CUDA is not available:UserWarning")
X = torch.full((1, 1), 300.0)  # its square is inf in float16

TO_BE_ON = {
    "autocast": lambda: torch.autocast("cuda"),
    "autocast with a dtype": lambda: torch.autocast("cuda", torch.bfloat16),
    "autocast by names": lambda: torch.amp.autocast(device_type="cuda", cache_enabled=False),
    "cuda.amp.autocast": lambda: torch.cuda.amp.autocast(),
    "GradScaler": lambda: torch.amp.GradScaler(),
    "GradScaler by name": lambda: torch.amp.GradScaler(device="cuda", enabled=True),
    "cuda.amp.GradScaler": lambda: torch.cuda.amp.GradScaler(),
}


def use(made: torch.autocast | torch.amp.GradScaler) -> torch.Tensor:
    if isinstance(made, torch.amp.GradScaler):
        return made.scale(X)
    with made:
        return X @ X


@without_cuda
@deprecated
@switched_off
@pytest.mark.parametrize("name", TO_BE_ON)
def test_what_is_to_be_on_for_cuda_says_what_to_write_instead(name):
    """Made inside, or before, as a decorator of a module is."""
    write = r'torch\.autocast\("cpu", dtype='
    early = TO_BE_ON[name]()
    with emulate_gpu(), autocast():
        for refused in (TO_BE_ON[name], lambda: use(early), lambda: use(copy.deepcopy(early))):
            with pytest.raises(RuntimeError, match=write):
                refused()
        del early.asked_enabled  # as if labkit.emulation had been imported later
        with pytest.raises(RuntimeError, match=f"(?s)older than labkit.emulation.*{write}"):
            use(early)
    with pytest.warns(UserWarning, match="CUDA is not available") as warned:
        TO_BE_ON[name]()
    assert warned[0].filename.endswith(("test_emulation.py", "mode.py", "grad_scaler.py"))
    use(early)


ISLANDS = {
    "autocast": lambda: torch.autocast("cuda", enabled=False),
    "cuda.amp.autocast": lambda: torch.cuda.amp.autocast(enabled=False),
}


@without_cuda
@deprecated
@pytest.mark.parametrize("low", LOW)
@pytest.mark.parametrize("name", ISLANDS)
def test_an_island_for_cuda_is_one(low, name):
    before = ISLANDS[name]()
    decorated = before(lambda: X.half().float() @ X)
    with emulate_gpu(), autocast(low):
        made = (before, ISLANDS[name](), pickle.loads(pickle.dumps(before)))
        results = [*map(use, made), decorated()]
        with torch.autocast("cpu", enabled=False):
            assert (X @ X).dtype is torch.float32
        assert (X @ X).dtype is low and torch.get_autocast_dtype("cpu") is low
    assert [(y.item(), y.dtype) for y in results] == [(90000.0, torch.float32)] * 4
    assert torch.amp.GradScaler(enabled=False).scale(X) is X


@without_cuda
@pytest.mark.parametrize("low", LOW)
def test_autocasts_state_is_that_of_cuda(low):
    """A common island asks for the state, sets it, and sets it back."""

    def state() -> list:
        return [torch.is_autocast_enabled(), torch.get_autocast_dtype("cuda")]

    rest = state()
    with autocast(low), emulate_gpu():
        assert state() == [True, low]
    assert state() == rest
    with emulate_gpu():
        assert state() == rest
        with autocast(low):
            assert state() == [True, low] and torch.is_autocast_enabled("cuda")
            enabled = torch.is_autocast_enabled()
            torch.set_autocast_enabled(False)
            assert (X @ X).item() == 90000 and not torch.is_autocast_enabled("cpu")
            torch.set_autocast_enabled(enabled)
            assert (X @ X).dtype is low
            torch.set_autocast_dtype("cuda", LOW[low is LOW[0]])
            assert (X @ X).dtype is LOW[low is LOW[0]]
    assert state() == rest and not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16


OWN = {
    "cpu": (torch.amp.custom_fwd, torch.amp.custom_bwd, {"device_type": "cpu"}),
    "cuda": (torch.amp.custom_fwd, torch.amp.custom_bwd, {"device_type": "cuda"}),
    "cuda.amp": (torch.cuda.amp.custom_fwd, torch.cuda.amp.custom_bwd, {}),
}


@without_cuda
@deprecated
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("cast_inputs", [None, torch.float32])
def test_functions_of_the_users_own_obey(name, cast_inputs):
    custom_fwd, custom_bwd, device = OWN[name]
    seen = []

    class Linear(torch.autograd.Function):
        @staticmethod
        @custom_fwd(**device, cast_inputs=cast_inputs)
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            seen.append(torch.is_autocast_enabled())
            return x @ weight.t()

        @staticmethod
        @partial(custom_bwd, **device)
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            seen.append(torch.is_autocast_enabled())
            return grad @ weight, grad.t() @ x

    x, weight = torch.full((2, 3), 300.0), torch.full((4, 3), 300.0, requires_grad=True)
    with emulate_gpu():
        with autocast():
            y = Linear.apply(x.half(), weight)
        y.float().sum().backward()
    if cast_inputs is None:
        assert seen == [True, True] and y.dtype is torch.float16 and y.isinf().all()
    else:
        assert seen == [False, False] and y.dtype is torch.float32 and (y == 270000).all()
    assert weight.grad.dtype is torch.float32 and (weight.grad == 600).all()


@without_cuda
@deprecated
def test_torchscript_knows_the_noting_autocast():
    def scripted(x: torch.Tensor):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        with torch.cuda.amp.autocast(False):
            return y, x @ x

    for block in (emulate_gpu(), nullcontext()):
        with block:
            low, full = torch.jit.script(scripted)(X)
        assert (low.dtype, full.dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_autocast_of_cuda_works_where_there_is_cuda():
    x = torch.ones(2, 2, device="cuda")
    with emulate_gpu(), torch.autocast("cuda"):
        assert (x @ x).dtype is torch.float16


# Functions of torch.compile


def half_exp(x: torch.Tensor) -> torch.Tensor:
    """float32 by CUDA's list; on a CPU it is on no list."""
    with autocast():
        return x.exp()


def test_a_compiled_island_is_one_and_compiles_whole():
    @partial(torch.compile, backend="eager", fullgraph=True)
    def island(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
            return x @ x

    for block in (nullcontext(), emulate_gpu(), nullcontext()):
        with block, autocast():
            assert island(X).item() == 90000


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_function_follows_the_rules_of_where_it_runs(backend):
    x = torch.ones(4).half()
    for first_inside in (False, True):
        torch.compiler.reset()
        compiled = torch.compile(half_exp, backend=backend)
        for inside in (first_inside, not first_inside, first_inside):
            if inside:
                with emulate_gpu():
                    assert compiled(x).dtype is torch.float32
            else:
                assert compiled(x).dtype is torch.float16


def test_nothing_is_compiled_inside_and_everything_outside():
    made = []

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    compiled = torch.compile(half_exp, backend=backend)
    with emulate_gpu():
        compiled(torch.ones(4).half())
        assert made == []
    compiled(torch.ones(4).half())
    assert len(made) == 1


def test_the_first_compiled_function_of_a_process_may_come_inside():
    """The compiler is imported then, and not by entering the block."""
    script = """
import sys, torch
from labkit.emulation import emulate_gpu
torch_compile = torch.compile
def half_exp(x):
    with torch.autocast("cpu", dtype=torch.float16):
        return x.exp()
x = torch.ones(4).half()
with emulate_gpu():
    assert "torch._dynamo" not in sys.modules
    compiled = torch.compile(half_exp, backend="aot_eager")
    assert "torch._dynamo" in sys.modules
    assert compiled(x).dtype is torch.float32
assert torch.compile is torch_compile
assert compiled(x).dtype is torch.float16
with emulate_gpu():
    assert compiled(x).dtype is torch.float32
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_block_inside_a_compiled_function_is_refused():
    @torch.compile(backend="eager")
    def inside(x: torch.Tensor) -> torch.Tensor:
        with emulate_gpu():
            return x.exp()

    with pytest.raises(RuntimeError, match="around the call"):
        inside(torch.ones(2))
    assert not is_emulated()
    with emulate_gpu():
        assert inside(torch.ones(2)).shape == (2,)


# Training


def test_overflow_gives_inf_and_underflow_zero():
    with emulate_gpu(), autocast():
        assert (torch.full((1, 8), 128.0) @ torch.full((8, 1), 128.0)).isinf().all()
        assert (torch.full((1, 8), 2.0**-13) @ torch.full((8, 1), 2.0**-16)).item() == 0
        image, kernel = torch.full((1, 1, 4, 4), 256.0), torch.full((1, 1, 3, 3), 256.0)
        assert F.conv2d(image, kernel).isinf().all()


def test_gradients_underflow_unscaled_and_survive_scaled():
    def gradient(scale: float) -> torch.Tensor:
        model = nn.Linear(4, 4, bias=False)
        nn.init.constant_(model.weight, 0.5)
        with autocast():
            loss = model(torch.full((1, 4), 2.0**-12)).float().sum() * 2.0**-20
        (scale * loss).backward()
        return model.weight.grad / scale

    with emulate_gpu():
        assert (gradient(1.0) == 0).all()
        assert (gradient(2.0**16) == 2.0**-32).all()


def test_gradscaler_skips_backs_off_and_recovers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=1000)
    x = torch.randn(64, 8)
    y = x.sum(1, keepdim=True)
    losses, scales, moved = [], [], []
    with emulate_gpu():
        for _ in range(60):
            before = model[0].weight.detach().clone()
            with autocast():
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
            scales.append(scaler.get_scale())
            moved.append(not torch.equal(before, model[0].weight))
    skipped = [after < before for before, after in zip([2.0**24, *scales], scales, strict=False)]
    assert skipped[0], "2**24 times this loss is beyond 65504"
    assert [not skip for skip in skipped] == moved
    assert skipped[-1] is False and losses[-1] < 0.5 * losses[0]
    assert model[0].weight.dtype is torch.float32


def test_a_weight_used_twice_sums_its_gradient_in_fp16():
    """facts/numerics.md, 15: the cached 16-bit copy of a weight collects both gradients."""
    weight = torch.ones(1, 1, requires_grad=True)
    with emulate_gpu():
        with autocast():
            y = torch.full((1, 1), 2048.0) @ weight + torch.full((1, 1), 1.0) @ weight
        y.backward()
        assert weight.grad.item() == 2048  # 2049 is no FP16 value; the tie goes to even
        weight.grad = None
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            y = torch.full((1, 1), 2048.0) @ weight + torch.full((1, 1), 1.0) @ weight
        y.backward()
        assert weight.grad.item() == 2049


def test_a_model_in_half_follows_the_same_roundings_without_autocast():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*model, nn.Linear(4 * 36, 10)).half()
    with emulate_gpu():
        logits = model(torch.randn(8, 1, 8, 8).half())
        logits.float().sum().backward()
    assert logits.dtype is torch.float16 and logits.isfinite().all()
    assert all(p.grad.dtype is torch.float16 for p in model.parameters())
    assert model[1].running_mean.dtype is torch.float16


# Narrow accumulators


def test_ones_stop_where_their_sum_is_swamped():
    a, b = torch.ones(1, 5000).half(), torch.ones(5000, 1).half()
    with emulate_gpu():
        assert (a @ b).item() == 5000
    with emulate_gpu(accumulate=torch.float16):
        assert (a @ b).item() == 2048
    with emulate_gpu(accumulate=torch.float16, promote_every=128):
        assert (a @ b).item() == 5000
    with emulate_gpu(accumulate=torch.bfloat16):
        assert (a @ b).item() == 256


def test_the_innermost_accumulator_counts():
    a, b = torch.ones(1, 5000).half(), torch.ones(5000, 1).half()
    with emulate_gpu(accumulate=torch.float16):
        with emulate_gpu():
            assert (a @ b).item() == 5000
        assert (a @ b).item() == 2048


@pytest.mark.parametrize("promote_every", [None, 1, 7, 64])
def test_every_product_of_the_matmul_family_adds_as_the_model_says(promote_every):
    """Against a loop over Python floats that shares only quantize with it."""
    torch.manual_seed(0)
    fmt = FloatFormat("e8m9", exponent_bits=8, mantissa_bits=9)
    a, b = torch.randn(3, 40).half(), torch.randn(40, 2).half()

    def sums(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(len(a), b.shape[1])
        for i in range(len(a)):
            for j in range(b.shape[1]):
                total, running = 0.0, 0.0
                for k in range(a.shape[1]):
                    running = quantize(running + a[i, k].item() * b[k, j].item(), fmt)
                    if promote_every and (k + 1) % promote_every == 0:
                        total, running = quantize(total + running, FP32), 0.0
                out[i, j] = quantize(total + running, FP32)
        return out

    wanted = sums(a, b)
    addend = torch.randn(2).half()
    with emulate_gpu(accumulate=fmt, promote_every=promote_every):
        assert torch.equal(a @ b, wanted.half())
        assert torch.equal(torch.bmm(a[None], b[None])[0], wanted.half())
        assert torch.equal(torch.dot(a[0], b[:, 0]), wanted[0, 0].half())
        assert torch.equal(torch.mv(a, b[:, 1].contiguous()), wanted[:, 1].half())
        assert torch.equal(F.linear(a, b.T, addend), (wanted + addend.float()).half())


def test_an_empty_product_is_zero():
    with emulate_gpu(accumulate=torch.float16):
        assert (torch.ones(2, 0).half() @ torch.ones(0, 3).half()).tolist() == [[0.0] * 3] * 2


def test_a_block_leaves_the_state_of_autocast_as_it_was():
    def state(devices=("cpu", "cuda")):
        return [
            (torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")
        ]

    before = state()
    with emulate_gpu():
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.float16)
        torch.set_autocast_enabled("cuda", False)
    assert state() == before
