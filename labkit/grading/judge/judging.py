"""The judge: a process outside the sandbox that holds the checks and reads bytes.

It answers over its standard input and output, in frames, and runs nothing that a student wrote.
Its own crash or hang costs one verdict: ``Judge``, the other end, ends it and starts another.

    python -m labkit.grading.judge.judging [EXTRA.py]
"""

import json
import os
import select
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass

from labkit.grading.sandbox import frames, watching

VERDICT_SECONDS = 120
"""Wall time of one verdict; explaining a failure runs the known wrong answers again."""

FURTHER_SECONDS = 150
"""Wall time of what is told beyond it: several times what ``further`` allows itself."""

MESSAGE_LIMIT = 1_000
"""Characters of a verdict's message: it may quote what the answer returned."""

MEMORY_BYTES = 4 * 2**30
"""Above what it holds once its checks are loaded: of 64 MB each byte may become a tensor."""

SENTENCE_LIMIT = 300
"""Characters of a sentence on a further case."""

REPLY_BYTES = 2**27
ANSWER_BYTES = 2**26 + 2**10  # the codec's limit, and room for its cover


@dataclass(frozen=True, kw_only=True)
class Shipment:
    """The first half of one check, as it goes into the sandbox."""

    exercise: str
    run: bytes
    takes_seed: bool
    hidden: bool
    own_work: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cargo:
    """What goes into the sandbox for one lab.

    Its checks, the instructor's own last; labkit's own answers by exercise, in the lab's order; and
    the constants that its notebook reads.
    """

    shipments: tuple[Shipment, ...]
    ours: dict[str, bytes]
    public: bytes


class JudgeError(Exception):
    """The judge crashed, hung, or cannot load its checks."""


class Judge:
    """A judge process; one thread at a time."""

    def __init__(self, extra: str | None = None):
        self.extra = extra
        self.process: subprocess.Popen | None = None
        self.stopped = False

    def load(self) -> None:
        """Load all checks; raises JudgeError with the reason where that fails."""
        self._ask({"do": "load"})

    def cargo(self, lab: str) -> Cargo:
        """What goes into the sandbox for a lab."""
        listed, public, *blobs = self._ask({"do": "ship", "lab": lab})
        told = json.loads(listed)
        runs, ours = blobs[: len(told["checks"])], blobs[len(told["checks"]) :]
        pairs = zip(told["checks"], runs, strict=True)
        return Cargo(
            shipments=tuple(
                Shipment(run=run, **{**check, "own_work": tuple(check["own_work"])})
                for check, run in pairs
            ),
            ours=dict(zip(told["exercises"], ours, strict=True)),
            public=public,
        )

    def verdict(self, lab: str, shipment: Shipment, seed: int, collected: bytes) -> dict:
        """Status, message, misconceptions, score, shortcuts, measured; or ``{"missing": True}``."""
        return self._about("verdict", lab, shipment, seed, collected, VERDICT_SECONDS)

    def further(self, lab: str, shipment: Shipment, seed: int, collected: bytes) -> dict:
        """What else is wrong with an answer that failed: ``more``, and the counts of ``Further``.

        Asked apart, so that nothing in it can cost the verdict; a judge that ends tells nothing.
        """
        try:
            return self._about("further", lab, shipment, seed, collected, FURTHER_SECONDS)
        except JudgeError:
            return {}

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None

    def _about(
        self, do: str, lab: str, shipment: Shipment, seed: int, collected: bytes, seconds: float
    ) -> dict:
        asked = {"do": do, "lab": lab, "seed": seed}
        asked |= {"exercise": shipment.exercise, "hidden": shipment.hidden}
        return json.loads(self._ask(asked, collected, seconds)[0])

    def _ask(self, asked: dict, content: bytes = b"", seconds: float | None = None) -> list[bytes]:
        if self.stopped:
            raise JudgeError("the grader was stopped")
        if self.process is None:
            self.process = self._start()
        end = time.monotonic() + (seconds or VERDICT_SECONDS)
        try:
            self._send(frames.framed(json.dumps(asked).encode()) + frames.framed(content), end)
            return self._replies(end)
        except (OSError, EOFError, frames.TooLong, TimeoutError) as error:
            self.close()
            raise JudgeError(f"the judge ended: {error or type(error).__name__}") from None

    def _send(self, data: bytes, end: float) -> None:
        """Write without blocking for ever: a judge that hangs does not read either."""
        into, left = self.process.stdin.fileno(), memoryview(data)
        os.set_blocking(into, False)
        while left:
            self._wait([], [into], end)
            left = left[os.write(into, left[: 2**16]) :]

    def _wait(self, readable: list[int], writable: list[int], end: float) -> None:
        if not any(select.select(readable, writable, [], max(0, end - time.monotonic()))):
            raise TimeoutError(f"no verdict within {VERDICT_SECONDS} seconds")

    def _replies(self, end: float) -> list[bytes]:
        """The frames of one reply: how many follow, then they."""
        incoming, wanted, got = frames.Incoming(REPLY_BYTES), None, []
        out = self.process.stdout.fileno()
        while wanted is None or len(got) < wanted:
            self._wait([out], [], end)
            data = os.read(out, 2**20)
            if not data:
                raise EOFError("it closed its pipe")
            incoming.feed(data)
            while (frame := incoming.frame()) is not None:
                if wanted is None:
                    wanted = int(frame)
                else:
                    got.append(frame)
        if got and got[0].startswith(b"!"):
            raise JudgeError(got[0][1:].decode())
        return got

    def _start(self) -> subprocess.Popen:
        command = [sys.executable, "-m", "labkit.grading.judge.judging"]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "LABKIT_PROGRESS": "off"}
        return subprocess.Popen(
            command + ([self.extra] if self.extra else []),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=True,  # Ctrl-C reaches the grader alone
        )


# In the judge's process


class _Bench:
    """Every check, by lab, exercise and whether it is the instructor's own."""

    def __init__(self, extra: str | None):
        from labkit.grading.judge import shipping
        from labkit.labs.engine.checks import takes_seed

        self.modules = shipping.check_modules()
        self.own = [shipping.load_extra(extra)] if extra else []
        self.shipping, self.takes_seed = shipping, takes_seed
        self.checks = {}
        for hidden, modules in ((False, self.modules), (True, self.own)):
            for check in (c for module in modules for c in shipping.checks_in(module)):
                self.checks[check.lab, check.exercise, hidden] = check

    def cargo(self, lab: str) -> list[bytes]:
        chosen = {key: check for key, check in self.checks.items() if key[0] == lab}
        told = [
            {
                "exercise": name,
                "hidden": hidden,
                "takes_seed": self.takes_seed(check.run),
                "own_work": check.own_work,
            }
            for (_, name, hidden), check in chosen.items()
        ]
        runs = [self.shipping.ship(c, self.modules + self.own) for c in chosen.values()]
        exercises = self.shipping.exercises(lab)
        ours = [
            self.shipping.ours(exercise, names, lab, self.modules)
            for exercise, names in exercises.items()
        ]
        public = self.shipping.public_data(lab, self.modules)
        listed = json.dumps({"checks": told, "exercises": list(exercises)}).encode()
        return [listed, public, *runs, *ours]

    def verdict(self, asked: dict, collected: bytes) -> dict:
        from labkit.labs.engine import codec

        try:
            report = codec.decode_value(collected)
        except codec.CodecError:
            report = None
        if type(report) is dict and "missing" in report:
            return {"missing": True}
        check = self.checks[asked["lab"], asked["exercise"], asked["hidden"]]
        result = check.verdict(collected, seed=asked["seed"])
        return {
            "status": result.status,
            "message": textwrap.shorten(result.message, MESSAGE_LIMIT, placeholder=" ..."),
            "misconceptions": list(result.misconceptions),
            "score": result.score,
            "shortcuts": list(result.shortcuts),
            "measured": result.measured,
        }

    def further(self, asked: dict, collected: bytes) -> dict:
        from labkit.grading.judge.further import further

        check = self.checks[asked["lab"], asked["exercise"], asked["hidden"]]
        found = further(check, collected, seed=asked["seed"])
        return {
            "more": [_short(sentence) for sentence in found.sentences],
            "wrong": found.wrong,
            "cases": found.cases,
            "score": found.score,
        }


def _short(sentence: str) -> str:
    return textwrap.shorten(sentence, SENTENCE_LIMIT, placeholder=" ...")


def _bound_memory() -> None:
    """Let an allocation fail here before the machine runs out; Linux only."""
    if sys.platform.startswith("linux"):
        import resource

        most = watching.data_bytes(os.getpid()) + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(args: list[str]) -> None:
    """Answer until the input ends."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a check prints must not stand between the frames
    bench = trouble = None
    try:
        bench = _Bench(args[0] if args else None)
    except Exception as error:  # the instructor's file may hold anything
        trouble = f"the checks cannot be loaded: {type(error).__name__}: {error}"
    _bound_memory()
    while True:
        try:
            asked = json.loads(frames.read_frame(requests, most=REPLY_BYTES))
            content = frames.read_frame(requests, most=REPLY_BYTES)
        except EOFError:
            return
        try:
            if bench is None:
                raise JudgeError(trouble)
            got = []
            if asked["do"] == "ship":
                got = bench.cargo(asked["lab"])
            elif asked["do"] == "verdict":
                got = [json.dumps(bench.verdict(asked, content)).encode()]
            elif asked["do"] == "further":
                got = [json.dumps(bench.further(asked, content)).encode()]
        except Exception as error:  # said to the grader; the next request may be a good one
            said = (
                str(error) if isinstance(error, JudgeError) else f"{type(error).__name__}: {error}"
            )
            got = [b"!" + said.encode()]
        for frame in (str(len(got)).encode(), *got):
            replies.write(frames.framed(frame))
        replies.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
