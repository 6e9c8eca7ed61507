"""Lab 14 with its libraries missing: every cell ends, with a sentence and recorded results."""

import nbformat
import pytest

from labkit.base.home import NOTEBOOKS, PINNED
from labkit.labs.engine.running import STUB
from labkit.labs.other_frameworks.frameworks import recorded
from labkit.measuring import verdict
from tests.labs.other_frameworks.in_child import BLOCKED, in_child

FURNITURE = ("warm_up(", "say_it(", "progress_panel(")


def test_the_learner_notebook_reaches_its_end_without_them():
    notebook = nbformat.read(NOTEBOOKS / "14_other_frameworks.ipynb", as_version=4)
    cells = [
        cell.source
        for cell in notebook.cells
        if cell.cell_type == "code" and not any(word in cell.source for word in FURNITURE)
    ]
    errors, printed = in_child(f"""
{BLOCKED}
import contextlib, io
names, errors, printed = {{}}, [], io.StringIO()
for cell in {cells!r}:
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(cell, "cell", "exec"), names)
    except Exception as error:
        errors.append(type(error).__name__ + ": " + str(error))
[errors, printed.getvalue()]
""")
    assert len(errors) == 4  # the open checks
    assert all(e.startswith("CheckFailed") and "not attempted" in e for e in errors), errors
    for library in ("keras", "jax", "optax"):
        assert f"pip install {library}=={PINNED[library]}" in printed
    assert printed.count("Recorded on 2026") >= 5


def test_a_check_says_what_is_missing():
    results = in_child(f"""
{BLOCKED}
from labkit.labs.other_frameworks import checks, solutions
def stub(*args):
    raise NotImplementedError({STUB!r})
made = {{
    checks.check_twin: solutions.twin,
    checks.check_matmul_dtypes: solutions.matmul_dtypes,
    checks.check_step: solutions.bf16_step,
    checks.check_scaled_step: solutions.scaled_step,
}}
rows = []
for check, answer in made.items():
    rows += [(one.status, one.message) for one in (check.result(answer), check.result(stub))]
rows
""")
    for (status, message), (open_status, _) in zip(results[::2], results[1::2], strict=True):
        assert status == "error" and "is not installed" in message and "pip install" in message
        assert open_status == "not attempted"


def test_importing_the_lab_loads_neither_library():
    loaded = in_child("""
        import sys
        from labkit.labs.other_frameworks import checks, dtype_table, figures, keras_runs
        from labkit.labs.other_frameworks import mlp, ports, promotion, solutions
        [name for name in ("keras", "jax", "optax") if name in sys.modules]
    """)
    assert loaded == []


# What the text says of training, on recorded seeds


@pytest.fixture(scope="module")
def seeds():
    rows = recorded("other_frameworks")["seeds"]
    assert len(rows) >= 5
    return rows


def test_fp16_is_equivalent_to_fp32_and_a_second_softmax_is_not(seeds):
    losses = [row["losses"] for row in seeds]
    narrow = [one["logits, mixed_float16"] - one["logits, float32"] for one in losses]
    assert verdict([-gap for gap in narrow], margin=0.02).answer == "equivalent"
    for policy in ("float32", "mixed_float16"):
        twice = [one[f"softmax twice, {policy}"] - one[f"logits, {policy}"] for one in losses]
        assert min(twice) > 0.3


def test_only_the_softmax_in_fp16_takes_the_scale_below_1(seeds):
    for row in seeds:
        assert row["scales"]["softmax"] < 1
        assert row["scales"]["logits"] >= 2.0**13 <= row["scales"]["softmax in float32"]


def test_of_four_adams_on_bf16_weights_one_moves_nothing(seeds):
    for row in seeds:
        stuck, *others = row["moved"].values()
        assert stuck == 0 and min(others) > 0.8


def test_keras_on_tensorflow_repairs_a_second_softmax_in_float32_only():
    for row in recorded("tensorflow")["softmax_twice"]:
        repaired = row["policy"] == "float32"
        assert row["warned"] == repaired
        assert (abs(row["loss"] - row["loss with logits"]) < 0.01) == repaired
    assert recorded("tensorflow")["moved"] == [0.0] * 5
