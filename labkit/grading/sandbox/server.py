"""The warm server, inside the sandbox: forked once a submission, and from there once an exercise.

It has imported what the labs import, has stand-ins for the engine and the checks, and never runs a
student's code itself. For each submission a fork takes namespaces of its own, and in them a
*snapshot* process runs the cells; for each exercise the snapshot forks, and that child runs the
first half of the check and writes the codec's bytes. The judge is not here: whatever a student does
to these processes, they can only send bytes.

Sockets, in frames: ``control`` from the judge's side to the server; one a submission, which the
judge gets from the server; one an exercise, which the snapshot gets from the judge.

    python -m labkit.grading.sandbox.server CONTROL_FD sandbox FOLDER...   forks, in namespaces
    python -m labkit.grading.sandbox.server CONTROL_FD bare                forks: no sandbox
    python -m labkit.grading.sandbox.server CONTROL_FD alone               one exercise, and the end
    python -m labkit.grading.sandbox.server probe                          can one be had here?

The folders are swept after each submission.
"""

import base64
import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import pickle
import pkgutil
import random
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from labkit.base.home import LEARNERS
from labkit.grading.sandbox import cells, confine, frames, standin

REQUEST_BYTES = 2**28
ORPHAN_SECONDS = 3600
PRELOADED = [
    "numpy",
    "pandas",
    "matplotlib.pyplot",
    "torch",
    "torch.nn.functional",
    "torch.utils.flop_counter",
    "torch.utils.data",
    "torch.optim",
    "cloudpickle",
    "IPython.core.inputtransformer2",
    "asyncio",
]


def preload(names: Iterable[str] | None = None) -> dict:
    """Import what labs need, on one thread; returns the modules that cross to an answer's side."""
    torch = importlib.import_module("torch")
    # A process that has run an operation on several threads cannot be forked.
    torch.set_num_threads(1)
    torch.set_num_threads = lambda count: None
    for name in [*PRELOADED, *_labkit()] if names is None else names:
        importlib.import_module(name)
    if names is None:
        _step(torch)
    beside = {name: _beside(name) for name in standin.BESIDE}
    standin.install_stand_ins()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page it touches
    return {f"labkit.labs.engine.{name}": module for name, module in beside.items()}


def _labkit() -> Iterator[str]:
    """What labs import of labkit, by full name: all that is here and has no stand-in."""
    package = importlib.import_module("labkit")
    for part in (*LEARNERS, "labs"):
        path = Path(package.__path__[0]) / part
        if path.is_dir():
            for module in pkgutil.walk_packages([str(path)], f"labkit.{part}."):
                if not standin.STOOD_FOR.match(module.name):
                    yield module.name
        else:
            yield f"labkit.{path.stem}"


def _step(torch) -> None:
    """One training step: torch imports much of itself only when it is first used."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.ones(1, 2)).float().sum()
    torch.amp.GradScaler("cpu").scale(loss).backward()
    optimizer.step()


def _beside(name: str):
    """One module of labkit.labs.engine without its package, which is not here."""
    full = f"labkit.labs.engine.{name}"
    path = Path(__file__).parents[2] / "labs" / "engine" / f"{name}.py"
    package = sys.modules.setdefault("labkit.labs.engine", standin.StandIn("labkit.labs.engine"))
    spec = importlib.util.spec_from_file_location(full, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    setattr(package, name, module)
    spec.loader.exec_module(module)
    return module


def seed_everything(seed: int) -> None:
    """Seed random, numpy and torch; ``seed`` fits into 32 bits, which is numpy's limit."""
    random.seed(seed)
    importlib.import_module("numpy").random.seed(seed)
    importlib.import_module("torch").manual_seed(seed)


def _say(sock: socket.socket, said: dict) -> None:
    sock.sendall(frames.framed(json.dumps(said).encode()))


# In the process of one exercise


def answer(sock: socket.socket, names: dict, beside: dict) -> None:
    """Read what is asked, run the first half of the check, write the bytes."""
    request = sock.makefile("rb")
    asked = json.loads(frames.read_frame(request, most=REQUEST_BYTES))
    shipped = frames.read_frame(request, most=REQUEST_BYTES)
    lent = [frames.read_frame(request, most=REQUEST_BYTES) for _ in range(asked["lent"])]
    sys.settrace(None)
    sys.modules.update(beside)  # the names by which a shipped function finds these
    for blob in lent:
        standin.lend(pickle.loads(blob))
    encode, running = (
        beside["labkit.labs.engine.codec"].encode_value,
        beside["labkit.labs.engine.running"],
    )
    seed_everything(asked["seed"])
    missing = [name for name in asked["names"] if name not in names]
    if missing:
        content = encode({"missing": missing})
    else:
        run = pickle.loads(shipped)
        if asked["takes_seed"]:
            run = functools.partial(run, seed=asked["seed"])
        values = tuple(names[name] for name in asked["names"])
        value = values[0] if len(values) == 1 else values
        content = _collect(running, encode, run, value, tuple(asked["own_work"]))
    sock.sendall(frames.framed(bytes.fromhex(asked["nonce"]) + content))


def _collect(running, encode: Callable, run: Callable, value, own_work: tuple[str, ...]) -> bytes:
    try:
        return running.collect(run, value, own_work)
    except BaseException as error:  # KeyboardInterrupt: nobody sits at this keyboard
        report = {"outcome": "raised", "value": running.raised(error), "printed": "", "warned": []}
        return encode(report)


# In the process of one submission


def snapshot(sock: socket.socket, beside: dict, *, how: str) -> None:
    """Run the cells, then serve exercises until the judge has had enough."""
    request = sock.makefile("rb", buffering=0)
    asked = json.loads(frames.read_frame(request, most=REQUEST_BYTES))
    standin.furnish(pickle.loads(frames.read_frame(request, most=REQUEST_BYTES)))
    forks = how != "alone"
    if how == "sandbox":
        confine.limit(data_bytes=asked["data_bytes"], disk_bytes=asked["disk_bytes"])
        confine.lock()
    else:  # a loop ends even if nobody is left to end it
        resource.setrlimit(resource.RLIMIT_CPU, (ORPHAN_SECONDS, ORPHAN_SECONDS))
    running, loads = beside["labkit.labs.engine.running"], json.dumps
    fork, leave, waitpid, take = os.fork, os._exit, os.waitpid, socket.recv_fds
    _work_in(asked["folder"], asked["helpers"])
    names = cells.namespace()
    seed_everything(asked["seed"])
    errors = []
    for number, source in enumerate(asked["cells"]):
        if number in asked["skipped"]:
            continue
        _say(sock, {"cell": number})
        error = cells.run_cell(number, source, names)
        if error is not None:
            told = running.raised(error)
            stub = type(error) is NotImplementedError and error.args == (running.STUB,)
            errors.append([number, told.type_name, told.message, told.line, stub])
    sock.sendall(frames.framed(loads({"errors": errors[:100]}).encode()))
    # A child hangs once JAX has computed in its parent: then this process serves one exercise.
    forks = forks and "jax" not in sys.modules
    while True:
        byte, received, _, _ = take(sock, 1, 1)
        if not byte:
            leave(0)
        if forks and (child := fork()):
            os.close(received[0])
            while (ended := waitpid(-1, 0))[0] != child:  # orphans end here too
                pass
            sock.sendall(frames.framed(b"done %d" % (ended[1] & 0x7F)))  # the signal, or 0
            continue
        try:
            request.close()
            sock.close()
            answer(socket.socket(fileno=received[0]), names, beside)
        finally:
            leave(0)


def _work_in(folder: str, helpers: dict[str, str]) -> None:
    """Make this the folder of the notebook, with the files that were handed in beside it.

    What lies there can be imported, as in a kernel. A file that cannot be written is left out.
    """
    os.chdir(folder)
    sys.path.insert(0, folder)
    for name, content in helpers.items():
        with contextlib.suppress(OSError, ValueError):
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            with open(name, "xb") as file:
                file.write(base64.b64decode(content))


# The server


def submission(control: socket.socket, beside: dict, how: str) -> int:
    """Fork a keeper, and from it the snapshot as the first process of its own namespaces.

    The judge gets the snapshot's socket and a handle of its process, and kills it when it is done.
    Returns the signal that ended the snapshot, or 0.
    """
    keeper = os.fork()
    if keeper:
        return os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
    signal_number = 0
    try:
        ours, theirs = socket.socketpair()
        if how == "sandbox":
            confine.unshare()
        child = os.fork()
        if child == 0:
            _keep_only(ours.fileno())
            os.setsid()  # a process group reaches across namespaces
            _silence()
            snapshot(ours, beside, how=how)
        ours.close()
        handles = [theirs.fileno(), os.pidfd_open(child)]
        socket.send_fds(control, [b"s"], handles)
        theirs.close()
        signal_number = os.waitpid(child, 0)[1] & 0x7F
    finally:
        os._exit(signal_number)


def _keep_only(fd: int) -> None:
    """Close every file but this one and the standard three: the server's sockets above all."""
    os.closerange(3, fd)
    os.closerange(fd + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _silence() -> None:
    """Input is empty and output goes nowhere, whatever a student's code makes of sys.stdout."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")


def _sweep(kept: dict[str, set]) -> bool:
    """Remove what a submission has left in memory file systems; False where something stays.

    A folder's folders are moved to the top before it goes: however deep a tree is, no path is long
    and nothing recurs.
    """
    for folder, before in kept.items():
        while left := sorted(set(os.listdir(folder)) - before):
            for name in left:
                try:
                    _remove(folder, os.path.join(folder, name))
                except OSError:
                    return False
    return True


def _remove(top: str, path: str) -> None:
    if not _is_folder(path):
        os.unlink(path)
        return
    os.chmod(path, 0o700)
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        if _is_folder(inner):
            os.chmod(inner, 0o700)  # its ".." is written
            os.rename(inner, os.path.join(top, f"swept-{random.getrandbits(128):x}"))
        else:
            os.unlink(inner)
    os.rmdir(path)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def serve_one(control: socket.socket) -> None:
    """One submission and one exercise of it in this process: where nothing is forked."""
    beside = preload(("torch", "cloudpickle"))
    control.sendall(frames.framed(b"ready"))
    _silence()
    snapshot(control, beside, how="alone")


def serve(control: socket.socket, how: str, folders: list[str]) -> None:
    """Preload, say so, then one submission after the other, each out of clean ``folders``."""
    kept = {folder: set(os.listdir(folder)) for folder in folders}
    beside = preload()
    _sweep(kept)
    control.sendall(frames.framed(b"ready"))
    socket.send_fds(control, [b"s"], [os.pidfd_open(os.getpid())])
    requests = control.makefile("rb", buffering=0)
    while True:
        try:
            frames.read_frame(requests, most=16)
        except EOFError:
            return
        ended = submission(control, beside, how)
        control.sendall(frames.framed(b"%s %d" % (b"clean" if _sweep(kept) else b"unclean", ended)))


def probe() -> None:
    """Take the namespaces of a submission once; raises OSError where the kernel refuses.

    Raises ModuleNotFoundError where a package is not here, before it would be imported in vain.
    """
    for name in dict.fromkeys(name.partition(".")[0] for name in PRELOADED):
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}")
    confine.drop_root()
    confine.unshare()
    child = os.fork()
    if child == 0:
        try:
            confine.limit(data_bytes=2**34, disk_bytes=2**20)
            confine.lock()
            os._exit(0)
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError("a process in namespaces of its own could not lock itself in")
    print("ok")


def main(args: list[str]) -> None:
    """See the module's text."""
    if args == ["probe"]:
        return probe()
    descriptor, how, *folders = args
    control = socket.socket(fileno=int(descriptor))
    if how == "alone":
        return serve_one(control)
    if how == "sandbox":
        confine.drop_root()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    return serve(control, how, folders)


if __name__ == "__main__":
    main(sys.argv[1:])
