"""Attacks on the grader's own connections: what counts is the answer to the question just asked.

A student's process holds the sockets, so it can write anything to them, and read the question's
nonce from its caller's frame. It gains what a function gains by returning: data, to be judged.
"""

import textwrap

import attacks
import pytest
import submissions
from attacks import LAB, ONLY, attack, honest

from labkit.grading.sandbox import metering
from labkit.grading.sandbox.frames import framed

SEND = """
    import os, socket, stat, struct, sys
    def frame(data):
        return struct.pack("<Q", len(data)) + data
    def sockets():
        found = []
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    found.append(fd)
            except OSError:
                pass
        return [socket.socket(fileno=os.dup(fd)) for fd in found]
    def everywhere(data):
        for sock in sockets():
            try:
                sock.setblocking(False)
                sock.send(data)
            except OSError:
                pass
    def caller(name):
        at = sys._getframe()
        while at and at.f_code.co_name != name:
            at = at.f_back
        return at.f_locals if at else {}
"""
NONCE = 'nonce = bytes.fromhex(caller("answer")["asked"]["nonce"])\n'


@pytest.fixture(autouse=True)
def well(grader):
    """After each attack the same server grades an honest submission rightly."""
    before = grader._workers[0].server
    yield
    assert honest(grader) == ["passed", "passed"]
    if before is not None:
        assert grader._workers[0].server is before


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ('everywhere(frame(b"\\0" * 32 + b"passed"))', "protocol"),
        ('everywhere(frame(b""))', "protocol"),
        ('everywhere(struct.pack("<Q", 2**62))', "output"),
        ('everywhere(b"\\xff" * 4096)', "output"),
        (NONCE + 'everywhere(frame(nonce + b"passed") + frame(nonce + b"passed"))', "protocol"),
        (
            NONCE + "from labkit.labs.engine.codec import encode_value\n"
            'everywhere(frame(nonce + encode_value({"outcome": "passed", "value": None})))',
            "protocol",
        ),
        ('import time\neverywhere(b"\\5")\ntime.sleep(10**6)', "time"),
        ("[sock.shutdown(2) for sock in sockets()]", "crashed"),
    ],
    ids=["no nonce", "empty", "huge", "noise", "twice", "and again", "half", "hung up"],
)
def test_writing_to_the_socket_by_hand(grader, body, cause):
    outcomes = attack(grader, cell=SEND, body=body)
    assert outcomes["e2m1-value"].status == "passed"
    assert (outcomes["ulp"].status, outcomes["ulp"].cause) == ("error", cause)


@pytest.mark.parametrize(
    "content",
    [
        'b"passed"',
        'b""',
        'b"l" + b"\\xff" * 8',
        'encode_value({"outcome": "passed", "value": None})',
        'encode_value({"outcome": "value", "value": "passed", "printed": "", "warned": []})',
        'encode_value({"outcome": "value", "value": [1.0], "printed": "", "warned": []})',
        'encode_value({"outcome": "raised", "value": 3})',
        "encode_value([])",
    ],
)
def test_a_forged_answer_is_judged_as_data(grader, content):
    body = (
        NONCE
        + "from labkit.labs.engine.codec import encode_value\n"
        + f"everywhere(frame(nonce + {content}))\nos._exit(0)"
    )
    outcomes = attack(grader, cell=SEND, body=body)
    assert outcomes["e2m1-value"].status == "passed"
    assert outcomes["ulp"].status in ("failed", "error")


def test_claiming_that_nothing_was_attempted_earns_nothing(grader):
    forged = (
        'encode_value({"outcome": "not attempted", "value": None, "printed": "", "warned": []})'
    )
    body = (
        NONCE
        + f"from labkit.labs.engine.codec import encode_value\neverywhere(frame(nonce + {forged}))"
    )
    outcomes = attack(grader, cell=SEND, body=body + "\nos._exit(0)")
    assert outcomes["ulp"].status == "not attempted"


@pytest.mark.parametrize(
    "said",
    [
        b'{"errors": []}',
        b'{"cell": 10000}',
        b'{"cell": -1}',
        b'{"errors": [[1, 2], "x", [0, "a", "b", "c", true]]}',
        b"[" * 10**5,
        b"no json",
        b"done",
        b"x" * 2**20,
    ],
    ids=["done", "far", "minus", "odd", "deep", "noise", "finished", "long"],
)
def test_answering_before_being_asked(grader, said):
    cell = SEND + f"\n    everywhere({framed(said)!r} * 3)"
    outcomes = attack(grader, cell=cell)
    assert outcomes["ulp"].status in ("failed", "error", "not attempted")
    assert outcomes["e2m1-value"].status in ("passed", "error", "not attempted")


def test_noise_after_a_right_answer_spoils_it(grader):
    """The answer that the grader itself sends, and in its wake what is no frame."""
    cell = """
        import time
        right = e2m1_value
        def e2m1_value(code):
            if code == 8:
                sock = caller("answer")["sock"]
                dup = socket.socket(fileno=os.dup(sock.fileno()))
                if not os.fork():
                    time.sleep(0.3)
                    dup.sendall(b"\\xff" * 16)
                    os._exit(0)
            return right(code)
    """
    cells = [attacks.SETUP, textwrap.dedent(SEND), attacks.E2M1, textwrap.dedent(cell), attacks.ULP]
    first, second = grader.grade(submissions.work(LAB, cells, only=ONLY, seconds=2))
    assert (first.status, first.cause, second.status) == ("error", "protocol", "passed")


def test_counting_cells_for_ever_has_an_end(grader, monkeypatch):
    monkeypatch.setattr(metering, "CELLS_SECONDS", 0.2)
    cell = """
        number, held = 2, sockets()
        while True:
            number += 1
            for sock in held:
                sock.send(frame(b'{"cell": %d}' % number))
            time.sleep(0.01)
    """
    sources = [attacks.SETUP, textwrap.dedent(SEND), "import time\n" + textwrap.dedent(cell)]
    sources += ["pass"] * 10_000
    outcomes = grader.grade(submissions.work(LAB, sources, only=ONLY))
    assert {(o.status, o.cause) for o in outcomes} == {("error", "time")}


def test_answering_for_another_exercise(grader):
    """The first exercise keeps its nonce and its right answer, and the second sends them."""
    keep = """
        right = e2m1_value
        def e2m1_value(code):
            with open("/tmp/nonce", "w") as file:
                file.write(caller("answer")["asked"]["nonce"])
            return right(code)
    """
    body = 'everywhere(frame(bytes.fromhex(open("/tmp/nonce").read()) + b"passed"))\nos._exit(0)'
    cells = [attacks.SETUP, textwrap.dedent(SEND), attacks.E2M1, textwrap.dedent(keep)]
    sources = [*cells, attacks.ulp(body)]
    first, second = grader.grade(submissions.work(LAB, sources, only=ONLY, seconds=2))
    assert (first.status, second.status, second.cause) == ("passed", "error", "protocol")


def test_the_server_s_own_socket_is_not_in_reach(grader):
    """An exercise holds the socket of its question, and no other."""
    end = "raise ValueError(len(sockets()))"
    assert "ValueError: 1 in" in attack(grader, cell=SEND, end=end)["ulp"].message
