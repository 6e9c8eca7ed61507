"""Check of lab 15: checkpoints that outlive a kill, half a file and a flipped bit."""

import hashlib
import io
import os
import random
import shutil
import tempfile
import time
import warnings
from pathlib import Path

import torch

from labkit.labs.engine import AnswerError, Mistake, attempt, check, number, word
from labkit.labs.engine.codec import Raised
from labkit.labs.engine.messages import came, fill
from labkit.labs.engine.reading import failure
from labkit.labs.production import killed_save, small_run
from labkit.labs.production.killed_save import AGAIN, FIRST, SECOND
from labkit.labs.production.small_run import GENERATOR

LAB = "15_production"

RAISED = "{name}: your {call} raised {error}. {why}"
SECOND_PROCESS = (
    "In a second process, which saved steps 5, 8 and 8 again, your class raised {error}."
)
STEP = "{name}: `resume()` is {got}; {want} is wanted. {why}"
STATE = "{name}: `resume()` returned {step:d}, but then {what} {how}. {why}"
TOUCHED = "{name}: `resume()` returned 0, as it should, but {what} has changed. {why}"
CHANGED = (
    "After `save({step:d})`, {what} of the run that goes on {how}. `save` must change nothing."
)

IS_NEW = "has appeared"
IS_NOW = "is {came}; {want} was saved"
DIFFERS = "is {got}; it was {want} when step {step:d} was saved"
IS_OTHER = "is not as it was when step {step:d} was saved"
IS_MISSING = "is missing"
VALUES = "differs in {count:d} of {total:d} values: {got} where {want} was saved"
ROUNDED = "holds the saved values rounded to {dtype}"
OTHER_DTYPE = "has dtype {got}; {want} was saved"

NOTHING_SAVED = "Nothing has been saved: the run begins."
NEW_OBJECTS = "A new `Checkpoints` with new parts read the folder, as after a crash."
TEXT_ORDER = "As text, '{older}' comes after '{newer}'."
SAVED_AGAIN = "Step {step:d} was saved twice; the second save counts."
SAME_OBJECT = "The same object saved and resumed: a run rolls back without a restart."
PARTS_ARE_GIVEN = (
    "Here the parts are called {names}: a part may have any name, also one that your file uses for "
    "something else."
)
LARGEST_STEP = "The newest checkpoint is the one of the largest step."
EARLIER_STAY = "No damage touched the checkpoint of step 9."
NOT_KEPT = (
    "A later `save` had removed or changed a file that `save(9)` wrote: the checkpoints of other "
    "steps stay."
)
BEFORE_THE_KILL = (
    "`save({first:d})` and `save({second:d})` had come to their end before; what was whole stays "
    "whole."
)
REMOVED = "The killed save had removed an old file, and the new one was not complete yet."
REPLACED = (
    "The killed save had replaced one old file, and another was not complete yet. Which single "
    "rename can exchange all that belongs to a checkpoint?"
)
ONE_OF_TWO = (
    "What `save(8)` had written before must still be there as a whole, or what the killed one was "
    "writing."
)
OTHER_PROCESS = (
    "The second process saved steps 5 and 8. What does `resume` need that is not in the folder, or "
    "that is different in each process?"
)
SEED_ALONE = (
    "The generator stands where its seed puts it, and the run had drawn numbers since. What does "
    "`torch.get_rng_state()` hold that the seed does not?"
)
HALF_WRITTEN = "The folder still holds what the killed save had written."
GOES_ON = "The run went on after the kill and saved step {second:d}, with other values."
UNTOUCHED = "`save(5)` and `save(8)` had come to their end, and no other file was touched."
ONLY_BIT = "One bit of the only file is flipped: no checkpoint is whole."
ONLY_HALF = "Half of the only file is left: no checkpoint is whole."
LOADED_DAMAGE = "These are the values with the flipped bit: what shows that a file is damaged?"
LOADED_FIRST = "What must be known of a file before any part loads it?"

_EMPTY = "In an empty folder"
_WHOLE = "After `save(5)` and `save(8)`"
_ORDER = "After `save(9)` and `save(10)`"
_LONG = "After `save(99_999)` and `save(100_000)`"
_AGAIN = "After `save(100_000)` twice, with other values"
_BACK = "After another `save(10)`, of a run that went back"
_FIRST_LEFT = "After five saves, with the files of all but the first one gone"
_CUT = "With the newest file cut in half"
_WEIGHT = "With one bit of a weight flipped in the newest file"
_MOMENT = "With one bit of Adam's moments flipped in the newest file"
_DATA = "With one bit of the data's generator flipped in the newest file"
_GONE = "With the newest file gone"
_OF_TENSORS = _WEIGHT, _MOMENT, _DATA
_FLIPPED = (
    *_OF_TENSORS,
    "With one bit flipped anywhere in the newest file",
    "With another bit flipped anywhere in the newest file",
    "With a third bit flipped anywhere in the newest file",
)
_ONLY_WEIGHT = "With one bit of a weight flipped in the only file"
_ONLY_DATA = "With one bit of the data's generator flipped in the only file"
_ONLY_CUT = "With the only file cut in half"
_ONLY = {_ONLY_WEIGHT: _WEIGHT, _ONLY_DATA: _DATA, _ONLY_CUT: _CUT}
_ELSEWHERE = "Saved in one process, resumed in another"
_KILLED = "After a second `save(8)`, killed in the middle of a file"
_AFTER = "After that kill and a `save(8)` that came to its end"
_SECOND_VALUE = 0.75
_BOXES = {
    _ORDER: (9, 10),
    _LONG: (99_999, 100_000),
    _AGAIN: (100_000,),
    _BACK: (10,),
    _FIRST_LEFT: (),
}
"""By scene: the steps that are saved."""
_LAST = {
    _ORDER: (10, 10.0),
    _LONG: (100_000, 100_000.0),
    _AGAIN: (100_000, _SECOND_VALUE),
    _BACK: (100_000, _SECOND_VALUE),
    _FIRST_LEFT: (9, 9.0),
}
"""By scene: the step that ``resume`` must find, and the value of its first part."""
_NAMES = "a box", "step", "random", "rng", "generator", "parts"


def run_checkpoints(answer, seed):
    """Of each scene: what ``resume`` returned and the state after it; what each ``save`` raised."""
    shown = {}
    with torch.random.fork_rng(devices=[]):
        for scene in (_run_whole_and_damaged, _run_boxes, _run_only, _run_killed):
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                scene(answer, Path(folder), seed, shown)
    return shown


def _resumed(answer, folder, seed):
    """A new object with new parts resumes: what it returned, and the state of the parts."""
    parts = small_run.fresh(seed)
    made = attempt(answer, folder, parts)
    step = made if type(made) is Raised else attempt(lambda: made.resume())
    return {"step": step, "state": small_run.state_of(parts)}


def _saved(checkpoints, step):
    """A save, and time enough for another time stamp; what it raised, or None."""
    if type(checkpoints) is Raised:
        return checkpoints
    came_back = attempt(lambda: checkpoints.save(step))
    time.sleep(0.02)
    return came_back if type(came_back) is Raised else None


def _run_whole_and_damaged(answer, folder, seed, shown):
    shown[_EMPTY] = _resumed(answer, folder, seed)
    parts = small_run.fresh(seed)
    checkpoints = attempt(answer, folder, parts)
    small_run.put(parts, FIRST, seed)
    shown["save(5)"] = _saved(checkpoints, FIRST)
    older = _files(folder)
    small_run.put(parts, SECOND, seed)
    shown["save(8)"] = _saved(checkpoints, SECOND)
    shown["in the run"] = small_run.state_of(parts)
    small_run.put(parts, SECOND + 5, seed)  # the run goes on, until it crashes
    newest = {path: data for path, data in _files(folder).items() if older.get(path) != data}
    shown[_WHOLE] = _resumed(answer, folder, seed)
    if not newest:
        newest = _files(folder)
    small_run.put(parts, SECOND, seed)
    draw = random.Random(seed)
    for name in (_GONE, _CUT, *_FLIPPED):
        with _Restored(folder):
            if newest:
                _damage(name, newest, parts, draw)
            shown[name] = _resumed(answer, folder, seed)


def _run_boxes(answer, folder, seed, shown):
    """Steps whose order as text is another, and steps that are saved twice; the parts are boxes."""
    boxes = {name: small_run.Box(0.0) for name in _NAMES}
    checkpoints, later, earliest = attempt(answer, folder, boxes), set(), None
    for name, steps in _BOXES.items():
        raised = []
        for step in steps:
            _fill(boxes, _SECOND_VALUE if name == _AGAIN else float(step))
            before = _files(folder)
            raised.append(_saved(checkpoints, step))
            files = _files(folder)
            written = [path for path in files if before.get(path) != files[path]]
            earliest = files if earliest is None else earliest
            if before and written:
                later.add(max(written, key=lambda path: len(files[path])))
        kept = _files(folder)
        lost = any(kept.get(path) != data for path, data in (earliest or {}).items())
        if name == _FIRST_LEFT:
            for path in later:
                path.unlink(missing_ok=True)
        _fill(boxes, -1.0)
        same = checkpoints if type(checkpoints) is Raised else attempt(lambda: checkpoints.resume())
        state = [box.value.clone() for box in boxes.values()]
        shown[name] = {"saves": raised, "step": same, "state": state, "lost": lost}


def _fill(boxes, value):
    for i, box in enumerate(boxes.values()):
        box.value = torch.tensor([value + i / 16])


def _run_only(answer, folder, seed, shown):
    parts = small_run.fresh(seed)
    checkpoints = attempt(answer, folder, parts)
    small_run.put(parts, FIRST, seed)
    shown["the only save"] = _saved(checkpoints, FIRST)
    files, draw = _files(folder), random.Random(seed)
    for name, damage in _ONLY.items():
        with _Restored(folder):
            if files:
                _damage(damage, files, parts, draw)
            shown[name] = _resumed(answer, folder, seed)


def _run_killed(answer, folder, seed, shown):
    plainly = shown[_WHOLE]["step"]
    if type(plainly) is Raised or (type(plainly) is int and plainly != SECOND):
        return  # the judge comes no further, and a second process takes seconds
    if killed_save.HOW == killed_save.BY_ITSELF:
        warnings.warn(killed_save.WEAKER, stacklevel=2)
    run, kept, aside = (folder / name for name in ("run", "kept", "aside"))
    run.mkdir()
    killed = killed_save.killed_save(answer, run, seed, kept=kept)
    shown["killed"] = Raised(**killed) if type(killed) is dict else killed
    if type(killed) is dict:
        return
    shown["lost"] = _lost(
        {path.relative_to(kept): data for path, data in _files(kept).items()},
        {path.relative_to(run): data for path, data in _files(run).items()},
    )
    run.rename(aside)
    kept.rename(run)  # an answer may keep whole paths
    shown[_ELSEWHERE] = _resumed(answer, run, seed)
    shutil.rmtree(run)
    aside.rename(run)
    shown[_KILLED] = _resumed(answer, run, seed)
    parts = small_run.fresh(seed)
    checkpoints = attempt(answer, run, parts)
    small_run.put(parts, AGAIN, seed)
    shown["save after the kill"] = _saved(checkpoints, SECOND)
    shown[_AFTER] = _resumed(answer, run, seed)


def _lost(before, after):
    """What the killed save had done to the old files: "cut", "removed", "replaced" or ""."""
    limit = max(map(len, before.values()), default=0) // 2
    changed = [path for path in before if after.get(path, b"") != before[path]]
    # No file beyond the limit was written as a whole.
    if any(path in after and len(before[path]) > limit for path in changed):
        return "cut"
    if any(path not in after for path in changed):
        return "removed"
    return "replaced" if changed else ""


class _Restored:
    """A folder's files stand again at the end of the block as they stood at its start."""

    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.files = _files(self.folder)
        self.times = {path: path.stat() for path in self.files}

    def __exit__(self, *error):
        for path in _files(self.folder).keys() - self.files.keys():
            path.unlink()
        for path, data in self.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            _set_times(path, self.times[path])


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _set_times(path, like):
    os.utime(path, ns=(like.st_atime_ns, like.st_mtime_ns))


def _damage(name, files, parts, draw):
    """Remove or cut the largest file, or flip a bit: of a tensor that it holds, or anywhere."""
    largest = max(files, key=lambda path: len(files[path]))
    data, like = bytearray(files[largest]), largest.stat()
    if name == _GONE:
        largest.unlink()
        return
    if name == _CUT:
        largest.write_bytes(data[: len(data) // 2])
        _set_times(largest, like)
        return
    place = draw.randrange(len(data))
    weight = next(parts["model"].parameters())
    moments = parts["optimizer"].state[weight]
    tensors = {
        _WEIGHT: weight.detach(),
        _MOMENT: moments["exp_avg_sq"],
        _DATA: parts["data"].generator.get_state()[1000:1400],
    }
    if name in tensors:
        known = tensors[name].numpy().tobytes()
        for path, held in files.items():
            if known in held:
                largest, data, like = path, bytearray(held), path.stat()
                place = held.index(known) + 4 * draw.randrange(len(known) // 4) + 2
    data[place] ^= 1 << draw.randrange(6)
    largest.write_bytes(data)
    _set_times(largest, like)


@check(run_checkpoints, seeds=2)
def check_checkpoints(shown, seed):
    """Checkpoints that are whole or passed over, and resume bit for bit."""
    began, first, second = (_state(step, seed) for step in (0, FIRST, SECOND))
    steps = {"first": FIRST, "second": SECOND}
    _resumes(shown, _EMPTY, {0: began}, NOTHING_SAVED)
    for step in (FIRST, SECOND):
        _no_error(shown[f"save({step})"], _WHOLE, f"`save({step})`")
    if found := _difference(shown["in the run"], second, SECOND):
        raise Mistake(CHANGED, step=SECOND, what=found[0], how=found[1])
    _resumes(
        shown,
        _WHOLE,
        {SECOND: second},
        NEW_OBJECTS,
        unset=began,
        seeded=small_run.generator_at(seed, SECOND),
    )
    _resumes(shown, _GONE, {FIRST: first}, UNTOUCHED)
    _judge_boxes(shown)
    _judge_killed(shown, first, second, _state(AGAIN, seed), steps)
    _resumes(shown, _CUT, {FIRST: first}, UNTOUCHED)
    unseen = all(shown[name]["step"] == SECOND for name in _OF_TENSORS)
    for name in _FLIPPED:
        # A bit may stand where nothing reads it: then the newest is whole.
        _resumes(shown, name, {FIRST: first, SECOND: second}, UNTOUCHED, unseen=unseen)
    for name in _ONLY:
        _no_error(shown["the only save"], name, "`save(5)`")
        _resumes(shown, name, {0: began}, ONLY_HALF if name == _ONLY_CUT else ONLY_BIT)


def _judge_boxes(shown):
    names = fill(PARTS_ARE_GIVEN, names=", ".join(map(repr, _NAMES)))
    whys = {_AGAIN: fill(SAVED_AGAIN, step=100_000), _BACK: LARGEST_STEP, _FIRST_LEFT: EARLIER_STAY}
    for name, steps in _BOXES.items():
        want, value = _LAST[name]
        scene, why = shown[name], whys.get(name, SAME_OBJECT)
        for one, raised in zip(steps, scene["saves"], strict=True):
            _no_error(raised, name, f"`save({one})`", names)
        got = _step(scene["step"], name, names)
        if got in steps[:-1]:  # 5 and 8 came in their order, and time stamps lie apart
            why = fill(TEXT_ORDER, older=str(got), newer=str(want))
            idea = "text-counts-like-numbers"
            raise Mistake(STEP, name=name, got=got, want=want, why=why, misconception=idea)
        if got != want:
            why = NOT_KEPT if name == _FIRST_LEFT and scene["lost"] is True else why
            raise Mistake(STEP, name=name, got=got, want=want, why=why)
        for i, (part, held) in enumerate(zip(_NAMES, scene["state"], strict=True)):
            if how := _unlike(held, torch.tensor([value + i / 16]), want):
                what = f"the part {part!r}"
                why = f"{why} {names}" if i else why  # the first one is right
                raise Mistake(STATE, name=name, step=want, what=what, how=how, why=why)


def _judge_killed(shown, first, second, again, steps):
    killed = shown["killed"]
    if type(killed) is Raised:
        raise AnswerError(SECOND_PROCESS, error=failure(killed))
    _resumes(shown, _ELSEWHERE, {SECOND: second}, OTHER_PROCESS)
    came_back, before = shown[_KILLED]["step"], fill(BEFORE_THE_KILL, **steps)
    if killed is True and type(came_back) is int and came_back == FIRST:
        lost = word(shown["lost"], ("", "cut", "removed", "replaced"), call="the killed save")
        idea = "a-write-is-atomic" if lost == "cut" else None
        how = {"removed": REMOVED, "replaced": REPLACED}.get(lost, "")
        said = {"got": FIRST, "want": SECOND, "why": f"{before} {how}"}
        raise Mistake(STEP, name=_KILLED, misconception=idea, **said)
    # Who asks for one write and takes a short one for a whole one is not killed.
    left = {SECOND: second} if killed is True else {SECOND: second, FIRST: first}
    if type(came_back) is int and came_back == SECOND:
        before = ONE_OF_TWO
        if _difference(shown[_KILLED]["state"], again, SECOND) is None:
            left = {SECOND: again}
    _resumes(shown, _KILLED, left, HALF_WRITTEN if type(came_back) is Raised else before)
    _no_error(shown["save after the kill"], _AFTER, "`save(8)`", HALF_WRITTEN)
    _resumes(shown, _AFTER, {SECOND: again}, fill(GOES_ON, **steps))


def _resumes(shown, name, allowed, why, *, unset=None, seeded=None, unseen=False):
    """``resume`` returned one of these steps, best the first, and left the state of that step.

    ``unset`` is the state that new parts have, ``seeded`` torch's generator where its seed puts it;
    ``unseen`` says that no flipped bit was noticed.
    """
    scene = shown[name]
    wanted, step = next(iter(allowed)), _step(scene["step"], name, why)
    if step not in allowed:
        raise Mistake(STEP, name=name, got=step, want=wanted, why=why)
    found = _difference(scene["state"], allowed[step], step)
    if not found:
        return
    what, how = found
    if step == 0:
        raise Mistake(TOUCHED, name=name, what=what, why=f"{why} {LOADED_FIRST}")
    said, idea = {"name": name, "step": step, "what": what, "how": how, "why": why}, None
    if step != wanted:
        said["why"], idea = LOADED_DAMAGE, "load-checks-the-bits" if unseen else None
    elif what == GENERATOR and unset and scene["state"][what] == unset[what]:
        idea = "random-numbers-are-no-state"
    elif what == GENERATOR and scene["state"][what] == seeded:
        said["why"] = SEED_ALONE
    raise Mistake(STATE, misconception=idea, **said)


def _step(got, name, why):
    """The number that ``resume`` returned."""
    _no_error(got, name, "`resume()`", why)
    step = number(got, call="resume()")
    return int(step) if step.is_integer() else step


def _no_error(raised, name, call, why=""):
    if type(raised) is Raised:
        raise AnswerError(RAISED, name=name, call=call, error=failure(raised), why=why)


def _state(step, seed):
    """All values of the run after a step; 0 is where it begins."""
    with torch.random.fork_rng(devices=[]):
        parts = small_run.fresh(seed)
        if step:
            small_run.put(parts, step, seed)
        return small_run.state_of(parts)


def _difference(got, want, step):
    """What differs first, and how; None if two states agree in all bits."""
    for what in want:
        if how := IS_MISSING if what not in got else _unlike(got[what], want[what], step):
            return _named(what), how
    extra = [what for what in got if what not in want]
    return (_named(extra[0]), IS_NEW) if extra else None


def _named(what):
    return what if what == GENERATOR else f"`{what}`"


def _unlike(got, want, step):
    """How a value differs from what was saved, to follow its name; "" if it does not."""
    if not isinstance(want, torch.Tensor):
        same = type(got) is type(want) and got == want
        if isinstance(want, str):
            return "" if same else fill(IS_OTHER, step=step)
        return "" if same else fill(DIFFERS, got=got, want=want, step=step)
    if not isinstance(got, torch.Tensor) or got.shape != want.shape:
        return fill(IS_NOW, came=came(got), want=came(want))
    if got.dtype != want.dtype:
        return fill(OTHER_DTYPE, got=str(got.dtype), want=str(want.dtype))
    if torch.equal(got, want):
        return ""
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(got, want.to(dtype).to(want.dtype)):
            return fill(ROUNDED, dtype=str(dtype).removeprefix("torch."))
    first = (got != want).flatten().nonzero()[0]
    said = {"count": int((got != want).sum()), "total": want.numel()}
    return fill(VALUES, **said, got=got.flatten()[first].item(), want=want.flatten()[first].item())


check_checkpoints.slip(
    "random-numbers-are-no-state",
    "Dropout draws other numbers from now on. Which call sets torch's generator back?",
    cut='torch.set_rng_state(saved["random"])',
)
check_checkpoints.slip(
    "text-counts-like-numbers",
    "How can the names of files sort in the order of their steps?",
    swap=('f"{step:012}.pt"', 'f"{step}.pt"'),
)


@check_checkpoints.wrong(
    "load-checks-the-bits",
    "`torch.load` does not compare the file's checksums. What do you compare before you load?",
)
class TrustsLoad:
    """Whole files, and torch.load shall notice a damaged one."""

    def __init__(self, folder, parts):
        self.folder, self.parts = folder, parts

    def save(self, step):
        state = {name: part.state_dict() for name, part in self.parts.items()}
        unfinished = self.folder / "unfinished"
        torch.save({"step": step, "random": torch.get_rng_state(), "parts": state}, unfinished)
        os.replace(unfinished, self.folder / f"{step:012}.pt")

    def resume(self):
        for path in sorted(self.folder.glob("*.pt"), reverse=True):
            try:
                saved = torch.load(path, weights_only=True)
            except Exception:
                continue
            for name, part in self.parts.items():
                part.load_state_dict(saved["parts"][name])
            torch.set_rng_state(saved["random"])
            return saved["step"]
        return 0


@check_checkpoints.wrong(
    "a-write-is-atomic",
    "The killed save had begun to write over what was there. Under which name can a save write "
    "until its file is complete?",
)
class OneFile:
    """One file, written in place, with its digest."""

    def __init__(self, folder, parts):
        self.path, self.parts = folder / "last.pt", parts

    def save(self, step):
        state = {name: part.state_dict() for name, part in self.parts.items()}
        buffer = io.BytesIO()
        torch.save({"step": step, "random": torch.get_rng_state(), "parts": state}, buffer)
        self.path.write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())

    def resume(self):
        held = self.path.read_bytes() if self.path.exists() else b""
        if not held or hashlib.sha256(held[32:]).digest() != held[:32]:
            return 0
        saved = torch.load(io.BytesIO(held[32:]), weights_only=True)
        for name, part in self.parts.items():
            part.load_state_dict(saved["parts"][name])
        torch.set_rng_state(saved["random"])
        return saved["step"]


check_checkpoints.slip(
    "the-newest-is-enough",
    "One damaged file, and nothing is left. What should `save` leave in the folder?",
    swap=(
        'os.replace(unfinished, self.folder / f"{step:012}.pt")',
        'os.replace(unfinished, self.folder / "last.pt")',
    ),
)
