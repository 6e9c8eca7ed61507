"""Check of lab 14's reader of jaxprs: programs whose matmuls are known by hand."""

import random
from collections import Counter
from dataclasses import dataclass

from labkit.labs.engine import AnswerError, Mistake, attempt, check
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came
from labkit.labs.engine.reading import failure
from labkit.labs.other_frameworks.frameworks import jax, jnp, missing

LAB = "14_other_frameworks"

RAISED = "{name}: your matmul_dtypes raised {error}."
NO_LIST = "{name}: you return {came}; a list is asked for."
NO_TUPLE = "{name}: your list holds {came}; a tuple of three names of dtypes is asked for."
NO_NAME = (
    "{name}: your list holds {came}; the name of a dtype is asked for, such as 'bfloat16', which "
    "is the text of `aval.dtype`."
)
FEWER = "{name}: {left}, {right} to {result} is missing from your list. It stands {where}."
TOO_FEW = (
    "{name}: {left}, {right} to {result} stands in your list {got:d} of {want:d} times. "
    "These matmuls stand {where}."
)
MORE = "{name}: you list {left}, {right} to {result} {got:d} times; {want:d} is right. {why}"
NO_DOT = "The function has no `dot_general`."
OTHER = "{name}: you list {got}; {want} is right. It stands {where}. {why}"
EXCHANGED = "Left and right are exchanged."
OWN = "in the function's own jaxpr"
HELD = "in the jaxpr that `{holder}` holds"
INSIDE = ", inside the one of "

_FLOATS = "float16", "bfloat16", "float32"


@dataclass(frozen=True)
class _Matmul:
    """The dtypes of one ``dot_general``, and the equations whose jaxprs lead to it."""

    left: str
    right: str
    result: str
    way: tuple[str, ...] = ()
    turns: int = 1

    @property
    def dtypes(self):
        return self.left, self.right, self.result


def _dtypes(seed):
    """Six dtypes, the 2nd another than the 1st, the 4th than the 3rd, the 6th than the 5th."""
    draw = random.Random(seed)
    return [dtype for _ in range(3) for dtype in draw.sample(_FLOATS, 2)]


def _programs(seed):
    """For each name a function and its arguments, 2 x 4 and 4 x 4."""
    a, b, c, d, e, f = _dtypes(seed)

    def ones(dtype):
        return jnp.ones((2, 4), dtype), jnp.ones((4, 4), dtype)

    def multiplied(dtype):
        return lambda x, w: x.astype(dtype) @ w.astype(dtype)

    def wide_result(x, w):
        return jnp.matmul(x, w, preferred_element_type=jnp.float32)

    def in_jit(x, w):
        return jax.jit(multiplied(b))(x @ w, w)

    def called_twice(x, w):
        layer = jax.jit(multiplied(f))
        return layer(layer(x, w), w)

    def in_scan(x, w):
        return jax.lax.scan(lambda carry, _: (carry @ w, None), x, None, length=3)[0]

    def in_cond(x, w):
        wide = [lambda x, w, to=to: multiplied(to)(x, w).astype(jnp.float32) for to in (e, f)]
        return jax.lax.cond(x.sum() > 0, *wide, x, w)

    def in_checkpoint(x, w):
        return jax.checkpoint(lambda h: jnp.tanh(h @ w))(x)

    return {
        "the network above": (
            lambda x, w: jax.jit(lambda h: jnp.tanh(h) @ w)(x @ w),
            ones("bfloat16"),
        ),
        "no matmul": (lambda x, w: x + w[:2], ones(a)),
        "x and w of two dtypes": (lambda x, w: x @ w, (ones(a)[0], ones(b)[1])),
        "preferred_element_type": (wide_result, ones("bfloat16")),
        "jit": (in_jit, ones(a)),
        "a function under jit, called twice": (called_twice, ones(f)),
        "checkpoint": (in_checkpoint, ones(c)),
        "scan": (in_scan, ones(d)),
        "cond": (in_cond, ones(c)),
        "scan in checkpoint in jit": (jax.jit(jax.checkpoint(in_scan)), ones(e)),
    }


def run_matmul_dtypes(answer, seed):
    """What the answer lists for each program; or a sentence where JAX is missing."""
    if said := missing("jax"):
        attempt(answer, None)  # an open exercise stays open
        return said
    return {
        name: _named(attempt(answer, function, *args))
        for name, (function, args) in _programs(seed).items()
    }


def _named(value):
    """Dtypes as their names: what is no list, no name and no exception stays behind as its type."""
    if isinstance(value, (list, tuple)):
        return [_named(one) for one in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _named(value.tolist())
    if value is None or type(value) in (str, int, Raised):
        return value
    named = str(value)
    return named if named in ("float16", "bfloat16", "float32") else f"<{type(value).__name__}>"


def _matmuls(seed):
    """The matmuls of each program."""
    a, b, c, d, e, f = _dtypes(seed)
    promoted = "float32"  # of two different dtypes of _FLOATS
    held = {
        "jit": [_Matmul(b, b, b, ("jit",))],
        "a function under jit, called twice": [_Matmul(f, f, f, ("jit",))] * 2,
        "checkpoint": [_Matmul(c, c, c, ("checkpoint",))],
        "scan": [_Matmul(d, d, d, ("scan",), 3)],
        "cond": [_Matmul(e, e, e, ("cond",)), _Matmul(f, f, f, ("cond",))],
        "scan in checkpoint in jit": [_Matmul(e, e, e, ("jit", "checkpoint", "scan"), 3)],
    }
    b16 = ("bfloat16",) * 3
    return {
        "the network above": [_Matmul(*b16), _Matmul(*b16, ("jit",))],
        "no matmul": [],
        "x and w of two dtypes": [_Matmul(a, b, promoted)],
        "preferred_element_type": [_Matmul("bfloat16", "bfloat16", "float32")],
        **held,
        "jit": [_Matmul(a, a, a), *held["jit"]],
    }


@check(run_matmul_dtypes)
def check_matmul_dtypes(report, seed):
    """The dtypes of each matmul of a JAX program, in the jaxprs inside it too."""
    if isinstance(report, str):
        raise AnswerError(report)
    matmuls = _matmuls(seed)
    lists = {name: _read(name, report[name]) for name in matmuls}
    idea = _idea(lists, matmuls)
    for name, wanted in matmuls.items():
        _judge(name, lists[name], wanted, idea)


def _read(name, got):
    if type(got) is Raised:
        raise AnswerError(RAISED, name=name, error=failure(got))
    if not isinstance(got, list):
        raise Mistake(NO_LIST, search=False, name=name, came=_came(got))
    for one in got:
        if not isinstance(one, list) or len(one) != 3:
            raise Mistake(NO_TUPLE, search=False, name=name, came=_came(one))
        for entry in one:
            if entry not in _FLOATS:
                raise Mistake(NO_NAME, search=False, name=name, came=_came(entry))
    return Counter(map(tuple, got))


def _came(value):
    foreign = isinstance(value, str) and value.startswith("<")
    return f"a `{value[1:-1]}`" if foreign else came(value)


def _idea(lists, matmuls):
    """The misconception whose lists these are."""
    of = {
        "a-jaxpr-is-flat": lambda m: [m.dtypes] * (not m.way),
        "jaxprs-nest-once": lambda m: [m.dtypes] * (len(m.way) < 2),
        "only-jit-holds-a-jaxpr": lambda m: [m.dtypes] * (set(m.way) <= {"jit"}),
        "the-result-names-its-inputs": lambda m: [(m.result,) * 3],
        "inputs-name-the-result": lambda m: [(m.left, m.right, m.left)],
        "a-jaxpr-unrolls-loops": lambda m: [m.dtypes] * m.turns,
    }
    for idea, listed in of.items():
        if all(
            lists[name] == Counter(one for m in found for one in listed(m))
            for name, found in matmuls.items()
        ):
            return idea
    return None


def _judge(name, got, wanted, idea):
    want = Counter(m.dtypes for m in wanted)
    if got == want:
        return
    fewer, more = want - got, got - want
    said = {"misconception": idea, "search": False, "name": name}
    if not more:
        lost = next(m for m in reversed(wanted) if m.dtypes in fewer)
        values = {"left": lost.left, "right": lost.right, "result": lost.result}
        if not got[lost.dtypes]:
            raise Mistake(FEWER, **said, **values, where=_where(lost))
        where = " and ".join(_where(m) for m in wanted if m.dtypes == lost.dtypes)
        values |= {"got": got[lost.dtypes], "want": want[lost.dtypes]}
        raise Mistake(TOO_FEW, **said, **values, where=where)
    dtypes = next(iter(more))
    if not fewer:
        left, right, result = dtypes
        why = "" if wanted else NO_DOT
        values = {"left": left, "right": right, "result": result, "why": why}
        raise Mistake(MORE, **said, **values, got=got[dtypes], want=want[dtypes])
    right = next(m for m in wanted if m.dtypes in fewer)
    exchanged = dtypes == (right.right, right.left, right.result)
    raise Mistake(
        OTHER,
        **said,
        got=str(dtypes),
        want=str(right.dtypes),
        where=_where(right),
        why=EXCHANGED if exchanged else "",
    )


def _where(matmul):
    holders = [f"`{holder}`" for holder in reversed(matmul.way)]
    if not holders:
        return OWN
    return HELD.format(holder=matmul.way[-1]) + "".join(INSIDE + one for one in holders[1:])


check_matmul_dtypes.slip(
    "a-jaxpr-is-flat",
    "Print `list(eqn.params)` for each equation: which of them hold a jaxpr of their own? Does "
    "what you find there reach the list that you return?",
    cut="for inner in core.jaxprs_in_params(eqn.params):\n                visit(inner)",
)
check_matmul_dtypes.slip(
    "jaxprs-nest-once",
    "A jaxpr inside a jaxpr may hold another one. What does your inner loop do with it?",
    swap=(
        "                visit(inner)\n",
        "                for eqn in inner.eqns:\n"
        '                    if eqn.primitive.name == "dot_general":\n'
        "                        left, right = (str(var.aval.dtype) for var in eqn.invars)\n"
        "                        found.append((left, right, str(eqn.outvars[0].aval.dtype)))\n",
    ),
)
check_matmul_dtypes.slip(
    "only-jit-holds-a-jaxpr",
    "`checkpoint`, `scan` and `cond` hold jaxprs too. Which test of yours leaves them out?",
    swap=(
        "in core.jaxprs_in_params(eqn.params)",
        'in core.jaxprs_in_params(eqn.params) if "name" in eqn.params else ()',
    ),
)
check_matmul_dtypes.slip(
    "the-result-names-its-inputs",
    "Which variables of an equation are its inputs, and which one is its result?",
    swap=("for var in eqn.invars", "for var in eqn.outvars * 2"),
)
check_matmul_dtypes.slip(
    "inputs-name-the-result",
    "From which variable do you take the third dtype?",
    swap=("str(eqn.outvars[0].aval.dtype)", "left"),
)
check_matmul_dtypes.slip(
    "a-jaxpr-unrolls-loops",
    "How often does the body of a `scan` stand in the jaxpr?",
    swap=(
        "                visit(inner)\n",
        '                for _ in range(eqn.params.get("length", 1)):\n'
        "                    visit(inner)\n",
    ),
)
