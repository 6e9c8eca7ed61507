"""Check of lab 09: a frozen 4-bit linear layer with a float32 adapter."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.labs.engine import AnswerError, Mistake, attempt, check, tensor
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import fill
from labkit.labs.engine.reading import failure

LAB = "09_quantization"

RAISED = "{name}: your layer raised {error}."
TRAINABLE = "{name}: the parameters with a gradient are {got}. A {a} and B {b} are wanted."
SIXTEEN_BITS = (
    "{name}: A is stored in {a} and B in {b}; float32 is wanted. After {steps} SGD steps A has "
    "moved by {moved:.2g}, and its steps add up to {wanted:.2g}."
)
COPY = (
    "{name}: after a call your layer keeps `{what}`, {dtype} of shape {shape}: {bytes:,} bytes, "
    "where the codes take {codes:,} at four bits."
)
NO_BUFFER = (
    "{name}: no buffer of your layer holds the {what}. Only parameters and buffers are in a "
    "checkpoint and follow `layer.to(device)`."
)
CODES_MOVED = (
    "{name}: after your forward pass {count:d} of {all:d} codes are others than were given. The "
    "base is frozen: which line writes into them?"
)
B_IS_NOT_ZERO = (
    "{name}: at the start B holds {got}, so the new layer's output differs from the base's by "
    "{off:.2g} of its size."
)
EXCHANGED = (
    "{name}: at the start A is 0 and B is random. The output is the base's, as it must be, and the "
    "exercise asks for the other way round: A random and B 0."
)
OTHER_SIZE = (
    "{name}: at the start the root mean square of A is {got:.2g}; about 1 / sqrt(in) = {want:.2g} "
    "is wanted. The size of A x must not depend on the number of inputs."
)
LESS_THAN_RANDOM = "{name}: at the start A has rank {got:d}; random rows have rank {want:d}."
OTHER_OPERANDS = (
    "{name}: a matmul of {left} by {right} gets {dtypes}; BF16 operands are wanted. Which one is "
    "not cast?"
)
NO_MATMUL = "{name}: your forward pass calls no matmul. Matmuls of BF16 operands are wanted."
AS_LARGE = (
    "{name}: a matmul of {left} by {right} makes a matrix of the weight's size, {shape}, in each "
    "call."
)
OTHER_OUTPUT = (
    "{name}: {when}, an output is {got}; {want} is wanted, where the base gives {base} and the "
    "adapters add {added}. {why}"
)
TIMES = "Your adapters count {got:.2g} times, and alpha / rank is {want}."
NO_GRADIENT = "{name}: {when}, no gradient reaches {what}. Where does your forward cut the graph?"
OTHER_GRADIENT = (
    "{name}: {when}, the gradient of {what} at {place} is {got}; {want} is wanted. {why}"
)
NO_BIAS = "Your output comes out if the bias is not added."
TIMES_BIAS = "Your output comes out if the bias is multiplied by alpha / rank too."
TIMES_BASE = "Your output comes out if the base is multiplied by alpha / rank too."
IN_TURNS = (
    "Your output comes out if the scales of a row alternate from code to code. Each belongs to "
    "{size} neighbouring codes."
)
ADAPTERS_ALONE = "That is the adapters' part alone, without the weight's."

_WHEN = "at the start", "with A and B set to random values"
_STEPS = 20
_CASES = {  # out, in, groups, shape of x without in, dtype of x, settings
    "groups of 32, rank 8, alpha 16": (48, 64, 2, (5,), torch.float32, {}),
    "one scale a row, rank 4, alpha 24": (
        40, 24, 1, (2, 3), torch.bfloat16, {"rank": 4, "alpha": 24}
    ),
}  # fmt: skip


def _case(name, seed):
    """codes, scale, bias, x, the output's gradient, new values of A and B, and the settings."""
    out, width, groups, batch, dtype, settings = _CASES[name]
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(-7, 8, (out, width), generator=draw).to(torch.int8)
    scale = (0.02 + 0.1 * torch.rand(out, groups, generator=draw)).half()
    bias, x = torch.randn(out, generator=draw), torch.randn(*batch, width, generator=draw).to(dtype)
    sent = (torch.randint(-8, 9, (*batch, out), generator=draw) / 4).bfloat16()
    rank = settings.get("rank", 8)
    new = [torch.randn(rank, width, generator=draw) / 8, torch.randn(out, rank, generator=draw) / 2]
    return codes, scale, bias, x, sent, new, settings


class _Matmuls(TorchDispatchMode):
    """Notes dtypes and shapes of the factors of each matmul."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        first = {"mm": 0, "bmm": 0, "mv": 0, "addmm": 1, "baddbmm": 1, "addmv": 1}
        if (place := first.get(func.overloadpacket.__name__)) is not None:
            self.seen.append([[_name(f), list(f.shape)] for f in args[place : place + 2]])
        return func(*args, **(kwargs or {}))


def _name(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def run_lora_linear(LoRALinear, seed):
    """What each layer holds, a pass at the start, one with other adapters, and A after steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: attempt(_used, LoRALinear, *_case(name, seed)) for name in _CASES}


def _used(LoRALinear, codes, scale, bias, x, sent, new, settings):
    layer = LoRALinear(codes, scale, bias, **settings)
    trainable = [[key, p] for key, p in layer.named_parameters() if p.requires_grad]
    A, B = (next((p for _, p in trainable if p.shape == t.shape), None) for t in new)
    used = {"trainable": [f"{key} {tuple(p.shape)}" for key, p in trainable], "passes": []}
    if len(trainable) == 2 and A is not None and B is not None:
        used["passes"].append(_passed(layer, A, B, x, sent))
        with torch.no_grad():
            A.copy_(new[0])
            B.copy_(new[1])
        used["passes"].append(_passed(layer, A, B, x, sent))
        used["rate"] = rate = _rate(A)
        for _ in range(_STEPS if rate else 0):
            A.data -= rate * A.grad
        used["end"] = A.detach().clone()
    held = _held(layer)
    used["held"] = [[kind, key, _name(t), list(t.shape)] for kind, key, t in held]
    used["frozen"] = [
        t.detach().clone() for kind, _, t in held if kind != "an attribute" and not t.requires_grad
    ]
    return used


def _passed(layer, A, B, x, sent):
    """One forward and backward pass."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    start = [A.detach().clone(), B.detach().clone()]
    with _Matmuls() as matmuls:
        y = layer(x)
    if isinstance(y, torch.Tensor) and y.requires_grad and y.shape == sent.shape:
        y.backward(sent.to(y.dtype))
    grads = {"x": x.grad, "A": A.grad, "B": B.grad}
    return {"weights": start, "y": y, "grads": grads, "matmuls": matmuls.seen}


def _rate(A):
    """A learning rate whose steps are far below half a gap of BF16 and far above one of float32."""
    if A.grad is None or not A.grad.any():
        return 0.0
    return 2.0**-14 * (A.detach().abs().mean() / A.grad.abs().mean()).item()


def _held(layer):
    """(kind, name, tensor) of each tensor that a layer keeps."""
    held = [("a parameter", key, p) for key, p in layer.named_parameters()]
    held += [("a buffer", key, b) for key, b in layer.named_buffers()]
    for module in layer.modules():
        for key, value in vars(module).items():
            many = value if isinstance(value, (list, tuple)) else [value]
            held += [("an attribute", key, t) for t in many if isinstance(t, torch.Tensor)]
    return held


def _among(tensor, kept):
    """Whether one of the tensors kept, flat, holds these values, to BF16's precision."""
    wanted = tensor.double().flatten()
    return any(
        t.shape == wanted.shape and torch.allclose(t, wanted, rtol=2.0**-8, atol=0) for t in kept
    )


@check(run_lora_linear)
def check_lora_linear(seen, seed):
    """A frozen 4-bit weight, BF16 matmuls, and a float32 adapter that learns."""
    for name, used in ((name, seen[name]) for name in _CASES):
        if type(used) is Raised:
            raise AnswerError(RAISED, name=name, error=failure(used))
        judge = _Judge(name, seed)
        judge.holdings(used)
        judge.start(used)
        for when, one in zip(_WHEN, used["passes"], strict=True):
            judge.output(one, when)
        for when, one in zip(_WHEN, used["passes"], strict=True):
            judge.gradients(one, when)


class _Judge:
    """One case, with what is right in float64."""

    def __init__(self, name, seed):
        self.name = name
        self.codes, self.scale, self.bias, x, sent, (A, _), settings = _case(name, seed)
        groups = self.codes.float().unflatten(1, (self.scale.shape[1], -1))
        weight = (groups * self.scale.float()[..., None]).flatten(1)
        self.size = groups.shape[2]
        self.weight, self.shape = weight.bfloat16().double(), sent.shape
        self.x, self.sent = (t.bfloat16().double().flatten(0, -2) for t in (x, sent))
        self.rank, self.factor = len(A), settings.get("alpha", 16) / len(A)

    def mistake(self, template, idea=None, **values):
        return Mistake(template, misconception=idea, search=False, name=self.name, **values)

    def holdings(self, used):
        """Two float32 parameters, the frozen tensors in buffers, and no copy of the weight."""
        out, width = self.codes.shape
        named = sorted(shape for kind, _, _, shape in used["held"] if kind != "an attribute")
        tensors = [*used["frozen"], *(used["passes"][1]["weights"] if used["passes"] else ())]
        if used["passes"] and named != sorted(list(t.shape) for t in tensors):
            raise AnswerError(RAISED, name=self.name, error="a report that contradicts itself")
        for kind, what, dtype, shape in used["held"]:
            numbers, kept = torch.Size(shape).numel(), getattr(torch, dtype)
            if kept.is_floating_point and numbers >= out * width:
                said = {"what": what, "dtype": f"{kind}, {dtype}", "shape": str(tuple(shape))}
                said |= {"bytes": numbers * kept.itemsize, "codes": out * width // 2}
                raise self.mistake(COPY, "a-dense-copy-costs-nothing", **said)
        if not used["passes"]:
            got = ", ".join(used["trainable"]) or "none"
            raise self.mistake(
                TRAINABLE, got=got, a=str((self.rank, width)), b=str((out, self.rank))
            )
        whole = [t for t in used["frozen"] if not t.is_floating_point()]
        for codes in (t for t in whole if t.shape == self.codes.shape):
            if count := int((codes != self.codes).sum()):
                idea = "qlora-trains-in-four-bits"
                raise self.mistake(CODES_MOVED, idea, count=count, all=self.codes.numel())
        kept = [t.double().flatten() for t in used["frozen"] if t.is_floating_point()]
        missing = [what for what in ("scale", "bias") if not _among(getattr(self, what), kept)]
        # Codes may lie two to a byte.
        if not any(2 * t.numel() * t.element_size() >= out * width for t in whole):
            missing.insert(0, "codes")
        if missing:
            raise self.mistake(NO_BUFFER, "attributes-travel-with-the-module", what=missing[0])
        A, B = used["passes"][1]["weights"]
        if {A.dtype, B.dtype} != {torch.float32}:
            narrow = {A.dtype, B.dtype} <= {torch.bfloat16, torch.float32}
            raise self.mistake(
                SIXTEEN_BITS,
                "bf16-needs-no-masters" if narrow else None,
                a=_name(A),
                b=_name(B),
                steps=_STEPS,
                moved=(used["end"].double() - A.double()).norm().item(),
                wanted=_STEPS * used["rate"] * self._grads(A, B)["A"][0].norm().item(),
            )

    def start(self, used):
        """B is zeros, and A random values of about the right size."""
        A, B = (w.double() for w in used["passes"][0]["weights"])
        if B.any() and not A.any():
            raise self.mistake(EXCHANGED)
        if B.any():
            base, _, added = self._output(A, B)
            off = (added.norm() / base.norm()).item()
            raise self.mistake(B_IS_NOT_ZERO, "adapters-start-random", got=B[B != 0][0], off=off)
        if (got := int(torch.linalg.matrix_rank(A))) < self.rank:
            idea = None if A.any() else "zeros-learn-like-any-start"
            raise self.mistake(LESS_THAN_RANDOM, idea, got=got, want=self.rank)
        size, want = A.square().mean().sqrt().item(), A.shape[1] ** -0.5
        # torch's initialisations lie between 0.57 (kaiming_uniform_, a = sqrt(5)) and 1.4 times it,
        # 0.02 of GPT-2 is a tenth of it for 24 inputs, and 1 is 4.9 times it.
        if not want / 16 <= size <= 4 * want:
            raise self.mistake(OTHER_SIZE, got=size, want=want)

    def output(self, one, when):
        """BF16 operands, no product of the weight's size, and the right values in BF16."""
        call = f"LoRALinear(...)(x), {self.name}"
        y = tensor(one["y"], call=call, shape=self.shape, dtype=torch.bfloat16)
        if not one["matmuls"]:
            raise self.mistake(NO_MATMUL)
        for (a, left), (b, right) in one["matmuls"]:
            said = {"left": str(tuple(left)), "right": str(tuple(right))}
            if {a, b} != {"bfloat16"}:
                whole = {a, b} == {"float32"} and sorted(right[-2:]) == sorted(self.codes.shape)
                idea = "four-bit-weights-compute-in-fp32" if whole else None
                raise self.mistake(
                    OTHER_OPERANDS, idea, dtypes=a if a == b else f"{a}, {b}", **said
                )
            if sorted([left[-2], right[-1]]) == sorted(self.codes.shape):
                shape = str(tuple(self.codes.shape))
                raise self.mistake(AS_LARGE, "adapters-are-merged-first", shape=shape, **said)
        base, room, added = self._output(*one["weights"])
        y = y.double().flatten(0, -2)
        off = ~((y - base - added).abs() <= room)
        if not off.any():
            return
        at, why, idea = tuple(off.nonzero()[0].tolist()), "", None
        times = (((y - base) * added).sum() / added.square().sum()).item() if added.any() else 0.0
        if ((y - base - times * added).abs() <= max(1.0, abs(times)) * room).all():
            why = fill(TIMES, got=round(times * self.factor, 2) + 0.0, want=self.factor)
            idea = "alpha-is-optional" if abs(times * self.factor - 1) < 0.05 else None
        for reason, other in self._other_bases(base).items():
            if ((y - other - added).abs() <= room).all():
                why = fill(reason, size=self.size)
        said = {"got": y, "want": base + added, "base": base, "added": added}
        said = {key: value[at].item() for key, value in said.items()}
        raise self.mistake(OTHER_OUTPUT, idea, when=when, why=why, **said)

    def gradients(self, one, when):
        """Those of A, B and x."""
        A, B = one["weights"]
        alone = self._grads(A, B, base=0.0)["x"][0]
        for what, (want, room) in self._grads(A, B).items():
            got, idea = one["grads"][what], None
            if what == "x":
                idea = "a-frozen-layer-passes-no-gradient"
            if got is None:
                raise self.mistake(NO_GRADIENT, idea, when=when, what=what)
            got = got.double().reshape(want.shape)
            off = ~((got - want).abs() <= room)
            if off.any():
                at = tuple(off.nonzero()[0].tolist())
                cut = what == "x" and bool(((got - alone).abs() <= room).all())
                said = {"got": got[at].item(), "want": want[at].item(), "place": str(list(at))}
                said |= {"why": ADAPTERS_ALONE if cut else ""}
                raise self.mistake(
                    OTHER_GRADIENT, idea if cut else None, when=when, what=what, **said
                )

    def _output(self, A, B):
        """What the base gives, the room for the whole, and what the adapters add."""
        A, B, x = A.bfloat16().double(), B.bfloat16().double(), self.x
        base = x @ self.weight.T + self.bias.double()
        added = self.factor * (x @ A.T @ B.T)
        # A term passes four roundings to BF16 at most, each of 2**-9: a factor, a matmul's result,
        # its scaling, the sum.
        size = x.abs() @ self.weight.abs().T + self.bias.double().abs()
        return base, 2.0**-7 * (size + self.factor * (x.abs() @ A.abs().T @ B.abs().T)), added

    def _other_bases(self, base):
        """What each mistake makes of the base, by its sentence."""
        groups = self.scale.shape[1]
        turns = self.codes.double() * self.scale.double().repeat(1, self.size)
        bias = self.bias.double()
        others = {
            NO_BIAS: base - bias,
            TIMES_BIAS: base + (self.factor - 1) * bias,
            TIMES_BASE: self.factor * base,
        }
        return others | ({IN_TURNS: self.x @ turns.T + bias} if groups > 1 else {})

    def _grads(self, A, B, base=1.0):
        """The right gradients and their room, by name."""
        A, B = A.bfloat16().double(), B.bfloat16().double()

        def of(x, sent, weight, A, B):
            down = self.factor * (sent @ B)
            into_b = self.factor * (sent.T @ (x @ A.T))
            return {"x": sent @ weight + down @ A, "A": down.T @ x, "B": into_b}

        given = self.x, self.sent, base * self.weight, A, B
        right, size = of(*given), of(*(t.abs() for t in given))
        return {key: (right[key], 2.0**-7 * size[key]) for key in right}


check_lora_linear.slip(
    "adapters-start-random",
    "Which of the two must be 0, so that fine-tuning starts from the base?",
    swap=("torch.zeros(codes.shape[0], rank)", "torch.randn(codes.shape[0], rank)"),
)
check_lora_linear.slip(
    "zeros-learn-like-any-start",
    "With A and B both 0 both gradients are 0 for ever. Which of the two may be random while the "
    "output is still the base's?",
    swap=("torch.randn(rank, codes.shape[1]) / codes.shape[1] ** 0.5",
          "torch.zeros(rank, codes.shape[1])"),
)  # fmt: skip
check_lora_linear.slip(
    "alpha-is-optional",
    "By which number must B A x be multiplied?",
    swap=("alpha / rank", "1.0"),
)
check_lora_linear.slip(
    "bf16-needs-no-masters",
    "BF16 rounds an update of less than half a gap away. In which dtype do you store A and B?",
    swap=("self.factor = alpha / rank", "self.factor = alpha / rank\n        self.bfloat16()"),
)
check_lora_linear.slip(
    "a-dense-copy-costs-nothing",
    "Four bits save memory only if nothing else of this size stays. Where may the weight be made, "
    "so that it is gone after the call?",
    swap=(
        'self.register_buffer("scale", scale)',
        'self.register_buffer("scale", scale)\n'
        "        group = codes.shape[1] // scale.shape[1]\n"
        "        weight = codes * scale.float().repeat_interleave(group, dim=1)\n"
        "        self.weight = torch.nn.Parameter(weight, requires_grad=False)",
    ),
)
check_lora_linear.slip(
    "attributes-travel-with-the-module",
    "What does `layer.state_dict()` hold? Which method adds a tensor that is no parameter?",
    swap=('self.register_buffer("codes", codes)', "self.codes = codes"),
)
check_lora_linear.slip(
    "four-bit-weights-compute-in-fp32",
    "Which dtype has the weight after you multiply the codes by the scale?",
    swap=("(x, weight.bfloat16(), self.bias.bfloat16())",
          "(x.float(), weight, self.bias).bfloat16()"),
)  # fmt: skip
check_lora_linear.slip(
    "a-frozen-layer-passes-no-gradient",
    "Frozen means that the weight has no gradient. Which gradient do the layers below need?",
    swap=("x = x.bfloat16()", "x = x.detach().bfloat16()"),
)
check_lora_linear.slip(
    "adapters-are-merged-first",
    "x @ A.T has only `rank` columns. What do you multiply it by?",
    swap=("(x @ self.A.bfloat16().T @ self.B.bfloat16().T)",
          "(x @ (self.B.bfloat16() @ self.A.bfloat16()).T)"),
)  # fmt: skip
check_lora_linear.slip(
    "qlora-trains-in-four-bits",
    "A step of an adapter is far smaller than half a step of the 4-bit grid. Which tensors hold "
    "what was learnt?",
    swap=(
        "weight = self.codes *",
        "with torch.no_grad():\n"
        "            wide = self.scale.float().repeat_interleave(group, dim=1)\n"
        "            delta = self.factor * (self.B @ self.A) / wide\n"
        "            self.codes.copy_((self.codes + delta).round().clamp(-7, 7))\n"
        "        weight = self.codes *",
    ),
)
