# Answers to lab 15 that the author of its checks had not foreseen: see tests/corpus.py.

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pickle
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from labkit.labs.production.respond import Plan


# %% right checkpoints: a manifest of digests in JSON beside each file
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def _write(self, name, data):
        temporary = self.folder / (name + ".tmp")
        with temporary.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        temporary.rename(self.folder / name)

    def save(self, step):
        buffer = io.BytesIO()
        state = {k: v.state_dict() for k, v in self.parts.items()}
        torch.save((step, torch.random.get_rng_state(), state), buffer)
        self._write(f"{step}.pt", buffer.getvalue())
        digest = hashlib.blake2b(buffer.getvalue()).hexdigest()
        self._write(f"{step}.json", json.dumps({"step": step, "blake2b": digest}).encode())

    def resume(self):
        for path in sorted(self.folder.glob("*.json"), key=lambda p: -int(p.stem)):
            try:
                digest = json.loads(path.read_text())["blake2b"]
                data = path.with_suffix(".pt").read_bytes()
            except (OSError, ValueError, KeyError):
                continue
            if hashlib.blake2b(data).hexdigest() == digest:
                step, rng, state = torch.load(io.BytesIO(data))
                for k in self.parts:
                    self.parts[k].load_state_dict(state[k])
                torch.random.set_rng_state(rng)
                return step
        return 0


# %% right checkpoints: the digest in the name, one folder for each step
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder = folder
        self.parts = parts

    def save(self, step):
        data = io.BytesIO()
        content = {"rng": torch.get_rng_state()}
        for name in self.parts:
            content["part " + name] = self.parts[name].state_dict()
        torch.save(content, data)
        inside = os.path.join(self.folder, f"step_{step}")
        os.makedirs(inside, exist_ok=True)
        name = hashlib.sha256(data.getbuffer()).hexdigest()
        with open(os.path.join(inside, "half"), "wb") as file:
            file.write(data.getbuffer())
            os.fsync(file)
        before = os.listdir(inside)
        os.replace(os.path.join(inside, "half"), os.path.join(inside, name))
        for other in before:
            if other not in ("half", name):
                os.remove(os.path.join(inside, other))

    def resume(self):
        steps = [int(name[5:]) for name in os.listdir(self.folder) if name.startswith("step_")]
        for step in sorted(steps)[::-1]:
            inside = os.path.join(self.folder, f"step_{step}")
            for name in os.listdir(inside):
                with open(os.path.join(inside, name), "rb") as file:
                    data = file.read()
                if hashlib.sha256(data).hexdigest() != name:
                    continue
                content = torch.load(io.BytesIO(data), weights_only=True)
                for part in self.parts:
                    self.parts[part].load_state_dict(content["part " + part])
                torch.set_rng_state(content["rng"])
                return step
        return 0


# %% right checkpoints: a CRC-32 of everything, and pickle
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), dict(parts)

    def save(self, step):
        data = pickle.dumps(
            [step, torch.get_rng_state(), [part.state_dict() for part in self.parts.values()]]
        )
        (self.folder / "new").write_bytes(zlib.crc32(data).to_bytes(4, "big") + data)
        os.rename(self.folder / "new", self.folder / f"{step:020d}")

    def resume(self):
        files = [path for path in self.folder.iterdir() if path.name.isdigit()]
        for path in sorted(files, reverse=True):
            data = path.read_bytes()
            if zlib.crc32(data[4:]) == int.from_bytes(data[:4], "big"):
                step, state, parts = pickle.loads(data[4:])
                torch.set_rng_state(state)
                for part, saved in zip(self.parts.values(), parts):
                    part.load_state_dict(saved)
                return step
        return 0


# %% right checkpoints: the checksums that torch.save writes, asked by zipfile
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        state = {"parts": {n: p.state_dict() for n, p in self.parts.items()}}
        state |= {"step": step, "rng": torch.get_rng_state()}
        torch.save(state, self.folder / "new.tmp")
        with open(self.folder / "new.tmp", "rb") as file:
            os.fsync(file.fileno())
        os.replace(self.folder / "new.tmp", self.folder / f"{step:09}.pt")

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"))[::-1]:
            try:
                with zipfile.ZipFile(path) as file:
                    if file.testzip() is not None:
                        continue
                state = torch.load(path, weights_only=True)
            except Exception:
                continue
            for name, part in self.parts.items():
                part.load_state_dict(state["parts"][name])
            torch.set_rng_state(state["rng"])
            return state["step"]
        return 0


# %% right checkpoints: written directly, for a digest shows what a kill left
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        torch.save([{n: p.state_dict() for n, p in self.parts.items()}, torch.get_rng_state()], buffer)
        data = buffer.getvalue()
        with open(self.folder / f"{step:015}", "wb") as f:
            f.write(data)
            f.write(hashlib.md5(data).digest())
            f.flush()
            os.fsync(f.fileno())

    def resume(self):
        steps = sorted((int(p.name) for p in self.folder.iterdir()), reverse=True)
        for step in steps:
            data = (self.folder / f"{step:015}").read_bytes()
            data, digest = data[:-16], data[-16:]
            if hashlib.md5(data).digest() == digest:
                parts, rng = torch.load(io.BytesIO(data))
                [p.load_state_dict(parts[n]) for n, p in self.parts.items()]
                torch.set_rng_state(rng)
                return step
        return 0


# %% right checkpoints: gzip, whose CRC-32 is read, and a helper outside of the class
def whole(path):
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        return None


class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = Path(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "rng": torch.get_rng_state(), "state": state}, buffer)
        data = gzip.compress(buffer.getvalue(), mtime=0)
        digest = hashlib.sha1(data).hexdigest()
        with open(self.folder / ".part", "wb") as file:
            file.write(gzip.compress(digest.encode() + buffer.getvalue(), mtime=0))
        os.replace(self.folder / ".part", self.folder / f"{step:010}.gz")

    def resume(self):
        for path in sorted(self.folder.glob("*.gz"), reverse=True):
            data = whole(path)
            if data is None:
                continue
            state = torch.load(io.BytesIO(data[40:]), weights_only=True)
            for name in state["state"]:
                self.parts[name].load_state_dict(state["state"][name])
            torch.set_rng_state(state["rng"])
            return int(state["step"])
        return 0


# %% right checkpoints: os.write in a loop, and the newest by its time
class Checkpoints:
    def __init__(self, folder, parts):
        self.folder, self.parts = str(folder), parts

    def save(self, step):
        buffer = io.BytesIO()
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "rng": torch.get_rng_state(), "state": state}, buffer)
        left = hashlib.sha512(buffer.getvalue()).digest() + buffer.getvalue()
        number = os.open(self.folder + "/tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            while left:
                left = left[os.write(number, left) :]
            os.fsync(number)
        finally:
            os.close(number)
        os.replace(self.folder + "/tmp", f"{self.folder}/{step}.ckpt")

    def resume(self):
        files = [entry for entry in os.scandir(self.folder) if entry.name.endswith(".ckpt")]
        files.sort(key=lambda entry: entry.stat().st_mtime_ns)
        while files:
            with open(files.pop().path, "rb") as file:
                digest, data = file.read(64), file.read()
            if hashlib.sha512(data).digest() != digest:
                continue
            state = torch.load(io.BytesIO(data))
            for name, part in self.parts.items():
                part.load_state_dict(state["state"][name])
            torch.set_rng_state(state["rng"])
            return state["step"]
        return 0


# %% wrong checkpoints: no state of the random numbers, in another style
#    idea: random-numbers-are-no-state
#    says: torch's generator is not as it was when step 8 was saved
Checkpoints = changed(
    'torch.save({"step": step, "random": torch.get_rng_state(), "parts": state}, buffer)',
    'torch.save({"step": step, "parts": state}, buffer)',
    'torch.set_rng_state(saved["random"])',
    "pass",
)


# %% wrong checkpoints: the generator before the parts, then dropout draws
#    says: torch's generator is not as it was when step 8 was saved
Checkpoints = changed(
    'torch.set_rng_state(saved["random"])',
    'torch.set_rng_state(saved["random"])\n            torch.rand(1)',
)


# %% wrong checkpoints: weights in BF16 to halve the file
#    says: holds the saved values rounded to bfloat16
class Checkpoints(ours.Checkpoints):
    def __init__(self, folder, parts):
        super().__init__(folder, {name: Narrow(part) for name, part in parts.items()})


class Narrow:
    def __init__(self, part):
        self.part = part

    def state_dict(self):
        return narrow(self.part.state_dict())

    def load_state_dict(self, state):
        self.part.load_state_dict(state)


def narrow(value):
    if isinstance(value, dict):
        return {k: narrow(v) for k, v in value.items()}
    if torch.is_tensor(value) and value.dtype == torch.float32 and value.dim():
        return value.bfloat16()
    return value


# %% wrong checkpoints: steps without zeros, sorted as text, in another style
#    idea: text-counts-like-numbers
#    says: `resume()` is 9; 10 is wanted
Checkpoints = changed('f"{step:012}.pt"', 'f"step-{step}.pt"')


# %% wrong checkpoints: no look at the digest, in a try
#    idea: load-checks-the-bits
#    says: With one bit of a weight flipped in the newest file: `resume()` returned 8
class Checkpoints(ours.Checkpoints):
    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            try:
                saved = torch.load(io.BytesIO(path.read_bytes()[32:]), weights_only=False)
            except Exception as error:
                print(error)
                continue
            for name in saved["parts"]:
                self.parts[name].load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


# %% wrong checkpoints: a digest of the weights alone
#    says: With one bit of Adam's moments flipped in the newest file
#    never: `torch.load` does not compare
class Checkpoints(ours.Checkpoints):
    def digest(self, state):
        first = next(iter(state.values()))
        tensors = [v for v in first.values() if torch.is_tensor(v)]
        return hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest()

    def save(self, step):
        state = {name: part.state_dict() for name, part in self.parts.items()}
        whole = {"step": step, "rng": torch.get_rng_state(), "digest": self.digest(state)}
        torch.save(whole | {"state": state}, self.folder / "tmp")
        os.replace(self.folder / "tmp", self.folder / f"{step:012}.pt")

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            try:
                saved = torch.load(path)
                if self.digest(saved["state"]) != saved["digest"]:
                    continue
                for name, part in self.parts.items():
                    part.load_state_dict(saved["state"][name])
                torch.set_rng_state(saved["rng"])
                return saved["step"]
            except Exception:
                continue
        return 0


# %% wrong checkpoints: damage raises
#    says: ValueError: damaged
Checkpoints = changed("            continue\n", '            raise ValueError("damaged")\n')


# %% wrong checkpoints: damage ends the search
#    says: With the newest file cut in half: `resume()` is 0; 5 is wanted
#    never: leave in the folder
Checkpoints = changed("            continue\n", "            break\n")


# %% wrong checkpoints: loaded before the digest is compared
#    says: has changed
#    says: What must be known of a file before any part loads it?
class Checkpoints(ours.Checkpoints):
    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            digest, data = path.read_bytes()[:32], path.read_bytes()[32:]
            try:
                saved = torch.load(io.BytesIO(data), weights_only=True)
                for name, part in self.parts.items():
                    part.load_state_dict(saved["parts"][name])
                torch.set_rng_state(saved["random"])
            except Exception:
                continue
            if hashlib.sha256(data).digest() == digest:
                return saved["step"]
        return 0


# %% wrong checkpoints: only the newest file is kept
#    idea: the-newest-is-enough
#    says: With the newest file gone: `resume()` is 0; 5 is wanted
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        super().save(step)
        for path in self.folder.glob("*.pt"):
            if path.name != f"{step:012}.pt":
                path.unlink()


# %% wrong checkpoints: half files stand among the others
#    says: After a `save(8)` that was killed in the middle of a file: your `resume()` raised ValueError
#    says: The folder still holds what the killed save had written.
class Checkpoints(ours.Checkpoints):
    def resume(self):
        for step in sorted((int(path.stem) for path in self.folder.iterdir()), reverse=True):
            data = (self.folder / f"{step:012}.pt").read_bytes()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                continue
            saved = torch.load(io.BytesIO(data[32:]))
            for name, part in self.parts.items():
                part.load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


# %% wrong checkpoints: the unfinished file must not exist yet
#    says: After that kill and a `save(8)` that came to its end: your `save(8)` raised FileExistsError
Checkpoints = changed('open(unfinished, "wb")', 'open(unfinished, "xb")')


# %% wrong checkpoints: a step is saved once
#    says: Step 100000 was saved twice; the second save counts.
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        if not (self.folder / f"{step:012}.pt").exists():
            super().save(step)


# %% wrong checkpoints: model and optimizer, by name
#    says: your `save(9)` raised KeyError: 'model'
#    says: Here the only part is called 'a box'.
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        assert self.parts["model"]
        super().save(step)


# %% wrong checkpoints: weights alone
#    says: `optimizer['state'][0]['step']` is missing
class Checkpoints(ours.Checkpoints):
    def __init__(self, folder, parts):
        super().__init__(folder, {k: p for k, p in parts.items() if k in ("model", "a box")})


# %% wrong checkpoints: the model is halved for the file
#    says: of the run that goes on
class Checkpoints(ours.Checkpoints):
    def save(self, step):
        if "model" in self.parts:
            self.parts["model"].half()
        super().save(step)


# %% wrong checkpoints: None where nothing is whole
#    says: is there a `return` at the end of each path?
Checkpoints = changed("        return 0", "        return None")


# %% right respond: match
def respond(event, plan, patience=3):
    match event:
        case "ok":
            return ("go on", replace(plan, streak=0))
        case "corruption":
            return ("roll back", replace(plan, streak=0))
        case "out of memory" if plan.micro_batch != 1:
            return (
                "retry",
                replace(plan, micro_batch=plan.micro_batch >> 1, accumulate=plan.accumulate << 1),
            )
        case "non-finite" if plan.streak + 1 != patience:
            return ("skip", replace(plan, streak=plan.streak + 1))
        case "non-finite" if plan.precision != "fp32":
            up = "bf16" if plan.precision == "fp16" else "fp32"
            return ("roll back", replace(plan, precision=up, streak=0))
        case _:
            return ("save and stop", plan)


# %% right respond: a dict of functions
def respond(event, plan, patience=3):
    ladder = ["fp16", "bf16", "fp32"]

    def bad():
        streak = plan.streak + 1
        if streak < patience:
            return "skip", replace(plan, streak=streak)
        level = ladder.index(plan.precision) + 1
        if level == len(ladder):
            return None
        return "roll back", replace(plan, precision=ladder[level], streak=0)

    def full():
        half, odd = divmod(plan.micro_batch, 2)
        if odd:
            return None
        return "retry", replace(plan, micro_batch=half, accumulate=plan.accumulate * 2)

    table = {
        "ok": lambda: ("go on", replace(plan, streak=0)),
        "corruption": lambda: ("roll back", replace(plan, streak=0)),
        "non-finite": bad,
        "out of memory": full,
    }
    return table.get(event, lambda: None)() or ("save and stop", plan)


# %% right respond: new plans by the constructor, and a list for a tuple
def respond(event, plan, patience=3):
    p, m, a, s = plan.precision, plan.micro_batch, plan.accumulate, plan.streak
    answer = "save and stop"
    if event == "ok":
        answer, s = "go on", 0
    elif event == "non-finite":
        if s + 1 < patience:
            answer, s = "skip", s + 1
        elif p in ("fp16", "bf16"):
            answer, p, s = "roll back", {"fp16": "bf16", "bf16": "fp32"}[p], 0
    elif event == "out of memory" and m > 1:
        answer, m, a = "retry", m // 2, a * 2
    elif event == "corruption":
        answer, s = "roll back", 0
    return [answer, Plan(precision=p, micro_batch=m, accumulate=a, streak=s)]


# %% right respond: early ends first
def respond(event, plan, patience=3):
    stop = ("save and stop", plan)
    if event not in ("ok", "non-finite", "out of memory", "corruption"):
        return stop
    if event == "out of memory":
        if plan.micro_batch == 1:
            return stop
        halved = int(plan.micro_batch / 2)
        return "retry", replace(plan, micro_batch=halved, accumulate=plan.accumulate * 2)
    if event == "non-finite" and plan.streak >= patience - 1 and plan.precision == "fp32":
        return stop
    if event == "non-finite" and plan.streak < patience - 1:
        return "skip", replace(plan, streak=plan.streak + 1)
    wider = plan.precision
    if event == "non-finite":
        wider = "fp32" if wider == "bf16" else "bf16"
    return "go on" if event == "ok" else "roll back", replace(plan, precision=wider, streak=0)


# %% right respond: asdict, and numbers of numpy
def respond(event, plan, patience=3):
    new = dataclasses.asdict(plan)
    formats = np.array(["fp16", "bf16", "fp32"])
    level = int(np.flatnonzero(formats == plan.precision)[0])
    said = "save and stop"
    if event in ("ok", "corruption"):
        said, new["streak"] = ("go on" if event == "ok" else "roll back"), 0
    if event == "non-finite" and new["streak"] + 1 < patience:
        said, new["streak"] = "skip", np.int64(new["streak"] + 1)
    elif event == "non-finite" and level < 2:
        said, new["precision"], new["streak"] = "roll back", str(formats[level + 1]), 0
    if event == "out of memory" and new["micro_batch"] > 1:
        new["micro_batch"] = np.int64(new["micro_batch"]) // 2
        new["accumulate"], said = new["accumulate"] * 2, "retry"
    return said, Plan(**new)


# %% right respond: a helper for each event
def _non_finite(plan, patience):
    if plan.streak < patience - 1:
        return "skip", dataclasses.replace(plan, streak=1 + plan.streak)
    if plan.precision == "fp32":
        return "save and stop", plan
    names = "fp16 bf16 fp32".split()
    wider = names[names.index(plan.precision) + 1]
    return "roll back", dataclasses.replace(plan, precision=wider, streak=0)


def respond(event, plan, patience=3):
    if event == "non-finite":
        return _non_finite(plan, patience)
    if event == "out of memory" and plan.micro_batch >= 2:
        total = plan.micro_batch * plan.accumulate
        rows = plan.micro_batch // 2
        return "retry", dataclasses.replace(plan, micro_batch=rows, accumulate=total // rows)
    if event == "ok" or event == "corruption":
        word = "go on" if event == "ok" else "roll back"
        return word, dataclasses.replace(plan, streak=0)
    return "save and stop", plan


# %% wrong respond: patience is counted one too far
#    says: answers 'skip'; 'roll back' is wanted. That is 3 in a row
respond = changed("plan.streak + 1 < patience", "plan.streak < patience")


# %% wrong respond: the streak stays after a rollback
#    says: gives streak=2; streak=0 is wanted
respond = changed("precision=wider, streak=0", "precision=wider")


# %% wrong respond: from fp16 to fp32 at once
#    says: gives precision='fp32'; precision='bf16' is wanted
respond = changed('"fp16": "bf16"', '"fp16": "fp32"')


# %% wrong respond: a full device forgives the streak
#    says: gives streak=0; streak=1 is wanted. A full device says nothing about the streak.
respond = changed("accumulate=twice)", "accumulate=twice, streak=0)")


# %% wrong respond: half of one row
#    says: A micro-batch of 1 cannot be halved.
respond = changed(' and plan.micro_batch > 1', "")


# %% wrong respond: a KeyError in fp32
#    says: raised KeyError: 'fp32'
respond = changed('.get(plan.precision)', "[plan.precision]")


# %% wrong respond: skips do not count
#    says: gives streak=0; streak=1 is wanted. That is 1 in a row, and 3 are needed
respond = changed("replace(plan, streak=plan.streak + 1)", "plan")


# %% wrong respond: patience is always 3
#    says: patience=1
respond = changed("plan.streak + 1 < patience", "plan.streak + 1 < 3")


# %% wrong respond: an unknown event goes on
#    says: respond('loader'
#    says: answers 'go on'; 'save and stop' is wanted
respond = changed(
    '    return "save and stop", plan',
    '    if event == "non-finite" or event == "out of memory":\n'
    '        return "save and stop", plan\n    return "go on", plan',
)


# %% wrong respond: the count stands in a global
#    says: streak
count = 0


def respond(event, plan, patience=3):
    global count
    if event == "non-finite":
        count += 1
        if count < patience:
            return "skip", plan
        count = 0
    else:
        count = 0
    return ours.respond(event, replace(plan, streak=patience - 1), patience)


# %% wrong respond: the rollback of a loader
#    says: answers 'roll back'; 'save and stop' is wanted
respond = changed('if event == "corruption"', 'if event in ("corruption", "loader")')


# %% wrong respond: the accumulation grows by one
#    says: passes: the global batch stays.
respond = changed("2 * plan.accumulate", "plan.accumulate + 1")


# %% wrong respond: the answer alone
#    says: 2 values are asked for
def respond(event, plan, patience=3):
    return ours.respond(event, plan, patience)[0]


# %% wrong respond: a dict for a plan
#    says: a `Plan` is asked for
def respond(event, plan, patience=3):
    answer, after = ours.respond(event, plan, patience)
    return answer, dataclasses.asdict(after)


# %% wrong respond: a stop forgets the streak
#    says: gives streak=0; streak=2 is wanted
respond = changed('return "save and stop", plan', 'return "save and stop", replace(plan, streak=0)')


# %% wrong respond: a rollback that changes nothing, written otherwise
#    idea: a-rollback-heals
def respond(event, plan, patience=3):
    answer, after = ours.respond(event, plan, patience)
    return answer, replace(after, precision=plan.precision)
