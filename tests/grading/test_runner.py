"""The runner: order, seeds, the instructor's own checks, several jobs, and faults of our own."""

import os
import signal
import tempfile
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import attacks
import pytest
import submissions
import torch
from attacks import HONEST, LAB, ONLY

from labkit.grading.judge import judging
from labkit.grading.judge.runner import Grader, GraderError
from labkit.grading.records import GradedExercise, Settings, Work
from labkit.grading.sandbox import bubblewrap as sandbox
from labkit.labs.engine import codec

HOOK_LAB = "07_memory_and_many_gpus"
EXTRA = '''
"""The instructor's own checks."""

import random

from labkit.labs.engine import Mistake, attempt, check

LAB = "02_number_formats"
SECRET = [3.0, 1024.0]
ANSWERS = [2.0**-9, 1.0]


def run_ulp_hidden(ulp):
    return [attempt(ulp, x) for x in SECRET]


@check(run_ulp_hidden)
def check_ulp_hidden(got):
    """Two more gaps."""
    if got != ANSWERS:
        raise Mistake(f"the hidden inputs gave {got}.")


def run_variant(ulp, seed):
    return [seed, random.random(), attempt(ulp, 1.0 + seed % 7)]


@check(run_variant)
def check_ulp_variant(got, seed):
    """A variant of one's own."""
    if got[0] != seed:
        raise Mistake("another seed")
    raise Mistake(f"{seed} {got[1]}")
'''


@pytest.fixture
def extra(tmp_path):
    path = tmp_path / "extra.py"
    path.write_text(EXTRA)
    return str(path)


@pytest.fixture(scope="module", autouse=True)
def _here():
    if why := sandbox.why_not():
        pytest.skip(why)


@pytest.fixture(scope="module")
def pair():
    """A grader of two workers."""
    with Grader(Settings(jobs=2)) as made:
        yield made


@pytest.fixture(scope="module")
def mortal():
    """A grader of one worker for tests that end its processes; each leaves it able to grade."""
    with Grader(Settings()) as made:
        made.grade(HONEST)
        yield made


def statuses(outcomes) -> list[str]:
    return [outcome.status for outcome in outcomes]


def test_the_instructor_s_checks_are_hidden_and_seeded(extra):
    with Grader(Settings(secret=b"one", extra=extra)) as one:
        public, hidden = one.grade(HONEST)[:2], one.grade(HONEST)[2:]
        again = one.grade(HONEST)
    assert statuses(public) == ["passed", "passed"]
    assert [(o.exercise, o.status, o.hidden) for o in hidden] == [
        ("ulp-hidden", "passed", True),
        ("ulp-variant", "failed", True),
    ]
    assert [o.message for o in again] == [o.message for o in public + hidden], "deterministic"
    with Grader(Settings(secret=b"two", extra=extra)) as two:
        other = two.grade(HONEST)
    assert other[3].message != hidden[1].message, "another secret, another variant"
    assert other[3].message != "another seed"


def test_the_file_of_extra_checks_is_not_in_reach(extra):
    look = f"""
        import gc, os
        found = os.path.exists({extra!r}), [
            name for name in ("ANSWERS", "check_ulp_hidden")
            for thing in gc.get_objects() if type(thing) is dict and name in thing
        ]
    """
    with Grader(Settings(extra=extra)) as grader:
        sources = [attacks.SETUP, attacks.ulp(look, end="raise ValueError(repr(found))")]
        outcomes = grader.grade(submissions.work(LAB, sources, only=("ulp",)))
    assert "(False, [])" in outcomes[0].message
    assert "hidden inputs gave" in outcomes[1].message
    assert "(False, [])" in outcomes[1].message


def test_extra_checks_that_cannot_be_loaded_are_said(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("LAB = ")
    with (
        pytest.raises(GraderError, match="cannot be loaded: SyntaxError"),
        Grader(Settings(extra=str(path))),
    ):
        pass


def test_jobs_work_side_by_side_and_agree(pair):
    bad = [attacks.SETUP, attacks.E2M1, attacks.ulp("import os\nwhile 1: os.fork()")]
    bomb = submissions.work(LAB, bad, only=ONLY, seconds=1)
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(pair.grade, [HONEST, bomb] * 3 + [HONEST] * 6))
    assert all(statuses(outcomes) == ["passed", "passed"] for outcomes in got[::2] + got[6:])
    assert all(statuses(outcomes) == ["passed", "error"] for outcomes in got[1:6:2])


def test_a_submission_cannot_reach_the_one_beside_it(pair):
    """One kills, floods and looks for whatever it can while the other is graded."""
    hunt = """
        import os, signal, time
        end = time.process_time() + 0.5
        while time.process_time() < end:
            for pid in range(2, 300):
                if pid != os.getpid():
                    try: os.kill(pid, signal.SIGKILL)
                    except OSError: pass
    """
    hunter = submissions.work(LAB, [attacks.SETUP, attacks.ulp(hunt)], only=("ulp",), seconds=2)
    with ThreadPoolExecutor(2) as pool:
        hunting = pool.submit(pair.grade, hunter)
        beside = [pair.grade(HONEST) for _ in range(4)]
        assert statuses(hunting.result()) == ["error"]
    assert all(statuses(outcomes) == ["passed", "passed"] for outcomes in beside)


def test_an_exercise_without_a_check_is_not_graded(grader):
    unknown = GradedExercise(exercise="unheard-of", names=("x",), points=1, seconds=1)
    work = Work(lab=LAB, digest="0", cells=HONEST.cells, exercises=(unknown, *HONEST.exercises))
    outcomes = grader.grade(work)
    assert statuses(outcomes) == ["not graded", "passed", "passed"]
    assert outcomes[0].cause == "grader"


def test_a_lab_that_does_not_exist_is_not_graded(grader):
    work = Work(lab="99_none", digest="0", cells=(), exercises=HONEST.exercises)
    assert statuses(grader.grade(work)) == ["not graded", "not graded"]


def test_a_name_that_nothing_defines_is_not_attempted(grader):
    (outcome,) = grader.grade(submissions.work(LAB, [attacks.SETUP], only=("ulp",)))
    assert (outcome.status, outcome.cause) == ("not attempted", "")


def test_the_score_tells_right_from_partly_right_and_wrong(grader):
    normal_only = "def ulp(x):\n    return 2.0 ** (math.frexp(x)[1] - 11) if x else 2.0**-24"
    scores = []
    for cell in (attacks.ULP, normal_only, "def ulp(x):\n    return 2.0**-10"):
        (outcome,) = grader.grade(submissions.work(LAB, [attacks.SETUP, cell], only=("ulp",)))
        scores.append(outcome.score)
    assert scores[0] == 1.0 > 0.5 > scores[1] > 0.0 == scores[2]


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("def ulp(x)\n    return 1.0", "SyntaxError: expected ':' (<cell 1>, line 1)"),
        ("1 / 0\ndef ulp(x):\n    return 1.0", "ZeroDivisionError: division by zero in your line"),
        ("!ls\ndef ulp(x):\n    return 1.0 / nothing", "NameError"),
        ("%%bash\ndef ulp(x):\n    return 1.0", "does not run a cell under `%%bash`"),
    ],
)
def test_a_cell_that_fails_is_the_cause(grader, cell, told):
    (outcome,) = grader.grade(submissions.work(LAB, [attacks.SETUP, cell], only=("ulp",)))
    assert outcome.status == "error"
    assert told in outcome.message


def test_a_number_of_more_digits_than_python_writes_is_graded(grader):
    cells = [attacks.SETUP, "eight_bits = {'bias': 10**5000}", "def ulp(x):\n    return [10**5000]"]
    cells += ["def e2m1_value(code):\n    raise KeyError(10**5000)", "{}[10**5000]"]
    only = ("e2m1-value", "ulp", "eight-bits")
    outcomes = grader.grade(submissions.work(LAB, cells, only=only))
    assert statuses(outcomes) == ["error"] * 3
    said = {outcome.exercise: outcome.message for outcome in outcomes}
    assert "KeyError" in said["e2m1-value"]
    assert "int of 16,610 bits" in said["ulp"] and "int of 16,610 bits" in said["eight-bits"]


def test_a_hook_of_ddp_without_return_fails_and_ends_no_process(grader):
    cells = [submissions.cells(HOOK_LAB, solved=True)[0], "def topk_hook(state, bucket): ..."]
    (outcome,) = grader.grade(submissions.work(HOOK_LAB, cells, only=("topk-hook",)))
    assert (outcome.status, outcome.cause) == ("failed", "")
    assert "returns None" in outcome.message


@pytest.mark.parametrize("before", ["%matplotlib inline\n", "!pip install x\n", "%%time\n"])
def test_magics_cost_nothing(grader, before):
    sources = [attacks.SETUP, before + attacks.ULP, "import asyncio\nawait asyncio.sleep(0)"]
    (outcome,) = grader.grade(submissions.work(LAB, sources, only=("ulp",)))
    assert outcome.status == "passed"


def test_the_same_submission_always_gets_the_same_row(pair):
    with ThreadPoolExecutor(2) as pool:
        work = submissions.work(LAB, [attacks.SETUP, attacks.E2M1, attacks.ulp("")], only=ONLY)
        rows = {
            tuple((o.exercise, o.status, o.message, o.misconceptions) for o in outcomes)
            for outcomes in pool.map(pair.grade, [work] * 8)
        }
    assert len(rows) == 1


# Files beside the notebook

HELPERS = (
    ("gaps.py", b"import math\nfrom parts.base import bits\n" + attacks.RIGHT.encode()),
    ("parts/base.py", b"bits = 10"),
    ("table.csv", b"1,2\n"),
)


def with_helpers(*, helpers=HELPERS, cell="from gaps import ulp") -> Work:
    cells = [attacks.SETUP, "rows = open('table.csv').read()", attacks.E2M1, cell]
    return replace(submissions.work(LAB, cells, only=ONLY), helpers=helpers)


def test_files_beside_the_notebook_are_there(grader):
    assert statuses(grader.grade(with_helpers())) == ["passed", "passed"]


def test_files_beside_the_notebook_are_there_without_a_sandbox(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Grader(Settings(sandboxed=False)) as bare:
        assert statuses(bare.grade(with_helpers())) == ["passed", "passed"]
    assert list(tmp_path.iterdir()) == []


def test_files_of_one_submission_are_gone_for_the_next(grader):
    cell = "import gaps\nulp = gaps.ulp"
    assert statuses(grader.grade(with_helpers(cell=cell))) == ["passed", "passed"]
    first, second = grader.grade(with_helpers(cell=cell, helpers=()))
    assert (first.status, second.status) == ("passed", "error")
    assert "No module named 'gaps'" in second.message


@pytest.mark.parametrize(
    "name",
    ["../../canary.py", "/usr/canary.py", "..", ".", "", "a\0b", "x" * 300, "gaps.py/x", "\ud800"],
)
def test_a_file_with_a_name_that_cannot_be_is_left_out(grader, name):
    helpers = (*HELPERS, (name, b"raise SystemExit"), ("json.py", b"raise SystemExit"))
    assert statuses(grader.grade(with_helpers(helpers=helpers))) == ["passed", "passed"]


# Values that the comparison cannot take


@pytest.mark.parametrize(
    "value", ["1j", "torch.tensor(1j)", "np.complex64(1)", "torch.empty((), dtype=FLOAT4)"]
)
def test_no_value_of_a_wrong_answer_keeps_its_judge_from_a_verdict(grader, value):
    """It stands behind a wrong number: what the judge compares for a known mistake."""
    cell = f"""
        import numpy as np, torch
        FLOAT4 = torch.float4_e2m1fn_x2
        def ulp(x):
            return {value} if x < 0 else 0.5
    """
    cells = [attacks.SETUP, textwrap.dedent(cell)]
    (outcome,) = grader.grade(submissions.work(LAB, cells, only=("ulp",)))
    assert outcome.status in ("failed", "error") and outcome.cause != "grader"
    assert outcome.message


# Faults of our own


def test_a_judge_that_dies_costs_one_verdict(mortal):
    assert statuses(mortal.grade(HONEST)) == ["passed", "passed"]
    os.kill(mortal._workers[0].judge.process.pid, signal.SIGKILL)
    after = mortal.grade(HONEST)
    assert statuses(after) == ["not graded", "passed"]
    assert after[0].cause == "grader"
    assert statuses(mortal.grade(HONEST)) == ["passed", "passed"]


def test_a_judge_that_hangs_costs_one_verdict(mortal, monkeypatch):
    mortal.grade(HONEST)
    monkeypatch.setattr(judging, "VERDICT_SECONDS", 1)
    os.kill(mortal._workers[0].judge.process.pid, signal.SIGSTOP)
    restored = threading.Timer(1.5, monkeypatch.setattr, (judging, "VERDICT_SECONDS", 60))
    restored.start()
    after = mortal.grade(HONEST)
    assert after[0].status == "not graded"
    assert "no verdict within 1 seconds" in after[0].message
    restored.join()
    assert statuses(mortal.grade(HONEST)) == ["passed", "passed"]


def test_an_answer_made_to_grow_in_the_judge_has_an_end(grader):
    """A forged report: 64 MB in one tensor, of which each element would become a tensor."""
    value = torch.zeros(2**26 - 2**12, dtype=torch.uint8)
    report = {"outcome": "value", "value": value, "printed": "", "warned": []}
    judge = judging.Judge()
    try:
        (shipment,) = [s for s in judge.cargo(LAB).shipments if s.exercise == "ulp"]
        told = judge.verdict(LAB, shipment, 0, codec.encode_value(report))
        assert told["status"] == "error"
        with open(f"/proc/{judge.process.pid}/status", encoding="ascii") as status:
            (most,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
        assert most * 1024 < judging.MEMORY_BYTES + 2 * 2**30
    finally:
        judge.close()


def test_a_server_that_dies_is_replaced(mortal):
    mortal.grade(HONEST)
    os.kill(mortal._workers[0].server.root, signal.SIGKILL)
    assert statuses(mortal.grade(HONEST)) == ["passed", "passed"]


def test_a_server_that_dies_in_the_middle_costs_nothing(mortal):
    slow = attacks.ulp("import time; time.sleep(0.02)", end="return 1.0")
    work = submissions.work(LAB, [attacks.SETUP, attacks.E2M1, slow], only=ONLY)
    with ThreadPoolExecutor(1) as pool:
        mortal.grade(HONEST)
        running = pool.submit(mortal.grade, work)
        time.sleep(0.15)
        os.kill(mortal._workers[0].server.root, signal.SIGKILL)
        assert statuses(running.result())[0] == "passed"
        assert statuses(mortal.grade(HONEST)) == ["passed", "passed"]


def test_closing_leaves_no_process():
    with Grader(Settings()) as grader:
        grader.grade(HONEST)
        pids = [grader._workers[0].server.root, grader._workers[0].judge.process.pid]
    end = time.monotonic() + 10
    while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_closing_in_the_middle_starts_nothing_more(monkeypatch):
    started = []
    start = sandbox.start_server

    def counted(*args):
        started.append(args)
        return start(*args)

    monkeypatch.setattr(sandbox, "start_server", counted)
    endless = [attacks.SETUP, "while True: pass", attacks.E2M1]
    work = submissions.work(LAB, endless, only=ONLY)
    with ThreadPoolExecutor(1) as pool, Grader(Settings()) as grader:
        grader.grade(HONEST)
        running = pool.submit(grader.grade, work)
        time.sleep(0.5)  # in the endless cell, whose limit is 30 s
        grader.close()
        assert {outcome.status for outcome in running.result()} == {"not graded"}
    assert len(started) == 1
    assert grader._workers[0].judge.process is None


# Without a sandbox


@pytest.mark.parametrize("forks", [True, False])
def test_without_a_sandbox_the_verdicts_are_the_same(monkeypatch, forks):
    monkeypatch.setattr(sandbox, "CAN_FORK", forks)
    wrong = [attacks.SETUP, attacks.E2M1, attacks.ulp("while x == 3.0: pass")]
    work = submissions.work(LAB, wrong, only=ONLY, seconds=2)
    with Grader(Settings(sandboxed=False)) as grader:
        assert statuses(grader.grade(HONEST)) == ["passed", "passed"]
        first, second = grader.grade(work)
    assert first.status == "passed"
    assert (second.status, second.cause) == ("error", "time")


def test_an_answer_may_round_a_large_tensor(grader):
    """By numba, whose compiled code can be kept in no folder of labkit's here."""
    body = """
    import sys
    import torch
    from labkit.formats import E4M3, quantize
    many = torch.linspace(-500, 500, 1 << 20)
    small = torch.cat([quantize(few, E4M3, saturate=True) for few in many.split(1 << 15)])
    if torch.equal(quantize(many, E4M3, saturate=True), small) and "numba" in sys.modules:
        return 2.0 ** (max(math.frexp(x)[1] - 1 if x else -14, -14) - 10)
    """
    outcomes = attacks.attack(grader, body=body, seconds=30)
    assert outcomes["ulp"].status == "passed", outcomes["ulp"]
