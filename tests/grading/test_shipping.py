"""What goes into the sandbox: first halves and their inputs, no judge and no right answer."""

import pickle
import pickletools
import sys
from types import FunctionType, MethodType, ModuleType

import pytest

from labkit.grading.judge import shipping
from labkit.labs.engine import Check, KnownWrong, check
from labkit.labs.engine.slips import solutions_of

MODULES = shipping.check_modules()
CHECKS = [c for module in MODULES for c in shipping.checks_in(module)]


def globals_read(function) -> set[str]:
    """The globals that a function of a check module reads, through other functions of it too."""
    found, open_ = set(), [function.__code__]
    for code in open_:
        open_ += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
        for name in set(code.co_names) & function.__globals__.keys() - found:
            found.add(name)
            value = function.__globals__[name]
            if isinstance(value, FunctionType) and value.__globals__ is function.__globals__:
                open_.append(value.__code__)
    return found


def place(function: FunctionType) -> tuple:
    """Which text a function was written in: equal for a function and its copy."""
    code = function.__code__
    return code.co_filename, code.co_firstlineno, code.co_code


def reachable(thing) -> list:
    """Every object that what was shipped holds on to: closures, globals, defaults, containers."""
    seen, found, open_ = set(), [], [thing]
    for item in open_:
        if id(item) in seen or isinstance(item, ModuleType):
            continue
        seen.add(id(item))
        found.append(item)
        if isinstance(item, FunctionType):
            if item.__name__ == "attempt":
                continue  # by reference: it is in the sandbox anyway
            own = [] if item.__globals__.get("__spec__") else list(item.__globals__.values())
            cells = [cell.cell_contents for cell in item.__closure__ or ()]
            open_ += [*own, *cells, *(item.__defaults__ or ()), *item.__code__.co_consts]
        elif isinstance(item, MethodType):
            open_ += [item.__func__, item.__self__]
        elif isinstance(item, dict):
            open_ += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple, set, frozenset)):
            open_ += list(item)
        elif isinstance(item, type) and item.__module__.startswith("labkit.labs.engine."):
            open_ += list(vars(item).values())
    return found


# What both halves of a check read. Each was looked at: inputs, settings, and what builds or drives
# them; no answers. A name that is new here may be a table of answers: split it.
BOTH = {
    "fp16-bytes": "_COUNTS",
    "penalized-loss": "_CASES _TARGETS _X _network seeded",
    "mini-autocast": "_TARGETS seeded",
    "fit": "_DTYPES",
    "accumulate": "_ROWS",
    "sensitivity": "_network _x filled seeded",
    "first-bad-module": "",
    "zero-share": "_HALF _gradients",
    "three-facts": "_DEVICES _DTYPES",
    "recipe": "_CAPABILITIES _GPUS",
    "paired-verdict": "_PAIRS _T",
    "speedup": "STEPS",
    "verdict": "_DRIFT _ROUNDS _STILL _T",
    "least-time": "_A100 _H100 _MATMULS",
    "timed": "_LAUNCH _SCENES",
    "transition": "_FLAGS",
    "scaled-step": "_BAD _FACTOR _LR _OPTIMIZERS _START _STEPS _WIDE",
    "scaler": "_SCRIPTS _drive _overflow",
    "masters": "_FORTY _RUNS",
    "decode": "_DECODE_INPUTS _LAYOUTS _SIGNED_ZEROS",
    "ulp": "_GAP_INPUTS",
    "snap": "_SNAP_INPUTS",
    "window": "_WINDOW_DTYPES _edges",
    "cliff": "_CURVES",
    "logsumexp": "_LSE_INPUTS",
    "masked-softmax": "_SCORES _scores",
    "unit-rms": "_RMS_ROWS",
    "rescue": "_products",
    "total": "_sums",
    "fair-round": "_COINS _FAIR_INPUTS",
    "kahan": "_additions",
    "welford": "_STREAMS",
    "to-e4m3": "_SCALED",
    "fake-quantize": "_FAKE",
    "quantize-uint8": "_AFFINE",
    "softmax": "_ROWS",
    "online-softmax": "_blocks _through",
    "witness": "_KINDS _LAYERS _SCENES",
    "first-nonfinite": "_STATES",
    "ledger": "_MODELS",
    "pardon": "_lower",
    "lost-updates": "_UPDATES",
    "integer-linear": "_DEEP",
    "smooth": "_CASES seeded",
    "lora-linear": "_CASES",
    "hold-masks": "_CASES",
    "pack": "_weights",
    "factorise": "_CASES _linear seeded",
    "gpt16": "_CASES",
    "train-amp": "_AFTER _BEFORE _GROWTH",
    "delayed": "_STEPS",
    "spike-alarm": "_traces",
    "first-born": "_HEALTHY _SCENES _SICK seeded",
    "must-stay": "_LAST _SIZES _STOPPED_AT _cases",
    "layer-row": "_SCALE _layers",
    "same-sum": "_CASES _vectors",
    "rotary": "_MODULES _SETTINGS",
    "pooled": "_ANYWHERE _CASES _DTYPES _PADDING_OF_NAN _WHERE",
    "attend": "_CASES _LARGE _ROOM _SMALL _ZERO",
    "head-loss": "_DTYPES _LOGITS _SETTINGS _SLOPE_IS_LOST",
    "language-step": "_CASES",
    "one-layer": "_NAMES _RAISES filled seeded",
    "allocate": "_ALIKE _COARSE _EXAMPLE _NATURAL _ONE_LARGE _UNIT",
    "off-policy": "_NAMES",
    "escalate": "_KEYS _LOOPS _START",
    "twin": "_VARIABLES",
    "matmul-dtypes": "_FLOATS",
    "step": "_LR _STEPS",
    "chunked-loss": "_NAMES seeded",
    "survive": "CARDS _BATCH _DEPTH _LATE _NARROW _RATE _ROWS _TRIES _WIDTH filled labels seeded",
    "moments": "_AGAIN _EQUAL _EXAMPLE _FIRST _SETTINGS seeded",
    "zero-step": "_CASES",
    "topk-hook": "_CASES",
    "compress": "BUDGETS network shakespeare_split",
    "ship": "_FAR _LOSSES _NAN _SCORES _T _THREE",
    "gate": "_BETTER _BOTH _NEITHER _TWICE _WORSE",
    "experiment": "_CALLS",
    "checkpoints": (
        "AGAIN FIRST SECOND _AFTER _AGAIN _BOXES _CUT _ELSEWHERE _EMPTY _FIRST_LEFT _FLIPPED _GONE "
        "_KILLED _NAMES _ONLY _SECOND_VALUE _WHOLE"
    ),
    "respond": "_FIELDS _OTHERS _RULED _START",
}


@pytest.mark.parametrize("one", CHECKS, ids=lambda c: f"{c.lab}-{c.exercise}")
def test_no_judge_no_known_answer_is_shipped(one):
    shipped = shipping.ship(one, MODULES)
    # None of these names is even mentioned.
    words = {arg for _, arg, _ in pickletools.genops(shipped) if isinstance(arg, str)}
    assert not any(word.startswith("check_") for word in words)
    assert not words & {"Check", "KnownWrong", "same_value", "same_bits", "Mistake"}
    kept = {place(c.judge) for c in CHECKS}
    kept |= {
        place(w.answer) for c in CHECKS for w in c.known_wrong if isinstance(w.answer, FunctionType)
    }
    for item in reachable(pickle.loads(shipped)):
        assert not isinstance(item, (Check, KnownWrong))
        if isinstance(item, FunctionType):
            assert place(item) not in kept, item


@pytest.mark.parametrize("one", CHECKS, ids=lambda c: f"{c.lab}-{c.exercise}")
def test_no_oracle_table_is_shipped(one):
    """A table that the judge reads goes along only where it was seen to hold inputs alone."""
    shipped = pickle.loads(shipping.ship(one, MODULES))
    words = {
        name
        for item in reachable(shipped)
        if isinstance(item, FunctionType) and not item.__globals__.get("__spec__")
        for name in item.__globals__
        if not name.startswith("__")
    }
    both = {
        name
        for name in words & globals_read(one.judge)
        if not _is_elsewhere(one.judge.__globals__[name])
    }
    assert both <= set(BOTH.get(one.exercise, "").split())


def _is_elsewhere(value) -> bool:
    """Whether the name stands for something that is in the sandbox anyway: torch, models."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return module is not None and (
        module in shipping.BESIDE or not module.startswith("labkit.labs.engine")
    )


def test_the_guard_can_fail(monkeypatch):
    module = ModuleType("labkit.labs.engine.leaky")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = """
LAB = "02_number_formats"
ANSWERS = {1: 2}
def run_leak(answer):
    return [answer(x) for x in ANSWERS]
def check_leak(got):
    "Nothing."
    assert got == list(ANSWERS.values())
def run_worse(answer):
    return check_leak([answer(1)])
"""
    exec(compile(source, "leaky.py", "exec"), vars(module))
    one = check(module.run_leak)(module.check_leak)
    shipped = shipping.ship(one, [*MODULES, module])
    assert {1: 2} in [x for x in reachable(pickle.loads(shipped)) if isinstance(x, dict)]
    module.check_leak.__module__ = module.run_worse.__module__ = module.__name__
    module.leak = one
    worse = Check(module.run_worse, module.check_leak)
    with pytest.raises(shipping.ShippingError, match="refers to check_leak, which stays with"):
        shipping.ship(worse, [*MODULES, module])


@pytest.mark.parametrize(
    "body",
    ["solutions.ulp(1.0)", "ulp(1.0)", "eight_bits", "check_ulp.known_wrong[0].answer", "slipped"],
)
def test_no_solution_and_no_slip_is_shipped(monkeypatch, body):
    module = ModuleType("labkit.labs.engine.leaky")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = f"""
LAB = "02_number_formats"
from labkit.labs.engine import check
from labkit.labs.number_formats import solutions
from labkit.labs.number_formats.solutions import eight_bits, ulp
def run_ulp(answer):
    return {body}
@check(run_ulp)
def check_ulp(data):
    "Nothing."
check_ulp.slip("ulp-is-relative", "Why?", cut=" - 1 if x else -14")
slipped = check_ulp.known_wrong[0].answer
"""
    exec(compile(source, "leaky.py", "exec"), vars(module))
    with pytest.raises(shipping.ShippingError, match="stays with the judge"):
        shipping.ship(module.check_ulp, [*MODULES, module])


def lent_by(lab):
    """What the exercises of a lab may use of its solutions, by its full name."""
    lent = {}
    for exercise, names in shipping.exercises(lab).items():
        lent |= pickle.loads(shipping.ours(exercise, names, lab, MODULES))
    return lent


def test_a_solution_is_lent_by_value():
    lent = lent_by("04_loss_scaling")
    step = lent["labkit.labs.loss_scaling.solutions.scaled_step"]
    assert step is not solutions_of("04_loss_scaling").scaled_step


def test_a_solution_that_no_later_cell_uses_is_not_lent():
    lent = lent_by("02_number_formats")
    assert "labkit.labs.number_formats.solutions.ulp" in lent
    assert "labkit.labs.number_formats.solutions.decode" not in lent


def test_constants_of_the_notebook_are_shipped_and_no_other():
    found = pickle.loads(shipping.public_data("05_automatic_mixed_precision", MODULES))
    # The lists of operations, which it does read, lie beside its checks: in the sandbox anyway.
    assert found and not any(found.values())
    found = pickle.loads(shipping.public_data("02_number_formats", MODULES))
    assert "labkit.labs.number_formats.checks.gaps" in found and not any(found.values())
