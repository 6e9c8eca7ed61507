"""What all of labkit stands on: where its files lie, and which labs there are.

Files are replaced whole, libraries of optional extras imported in silence, and a picture carries
its words.
"""

from __future__ import annotations

import base64
import contextlib
import html
import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PACKAGE = Path(__file__).resolve().parent.parent
_SHIPPED = _PACKAGE / "_shipped"

IN_CHECKOUT = not _SHIPPED.is_dir()
"""True where labkit runs from a clone of the repository, False from an installed wheel."""

_ROOT = _PACKAGE.parent if IN_CHECKOUT else _SHIPPED
DATA = _ROOT / "data"
NOTEBOOKS = _ROOT / "notebooks"

LEARNERS = ("formats", "devices", "emulation", "training", "measuring", "plots.py")
"""The part of labkit that learners import and read; the sandbox holds it whole."""

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#888888"
COLORS = (BLUE, ORANGE, "#009e73", "#cc79a7")
"""Okabe and Ito's, told apart by colour-blind eyes."""


# Files


def replace_file(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Put ``content`` into ``path``, text as UTF-8 with its ends of lines as they are.

    A reader, or a crash, meets the old file or the new one, whole. With ``durable`` the content is
    on the disk before the old file goes, so that even a power cut leaves one of the two. Raises
    OSError where the folder is missing or cannot be written; the old file then stays as it was.
    """
    with replacing(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file to write bytes to, which takes the place of ``path`` when the block ends.

    For what is too large to be held in memory; the rest is as in ``replace_file``. Where the block
    raises, the old file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# Imports


def lazily(package: str, modules: dict[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package that imports a submodule when a name of it is asked for.

    ``modules`` maps a submodule to the names it gives: who asks ``labkit.formats`` for a format,
    which needs nothing, does not wait for torch.

    >>> find = lazily("json", {"decoder": "JSONDecoder JSONDecodeError"})
    >>> find("JSONDecoder").__name__
    'JSONDecoder'
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{places[name]}"), name)

    return find


PINNED = {
    "torchao": "0.18.0",
    "transformers": "5.23.0",
    "tensorboard": "2.21.0",
    "keras": "3.15.1",
    "jax": "0.10.2",
    "optax": "0.2.8",
}
"""The libraries of the optional extras, and with which versions the labs' numbers were computed."""

# torchao's compiled libraries fit few installed torches; transformers imports torchao and asks the
# Hugging Face Hub for files.
_SETTINGS = {
    "TORCHAO_FORCE_SKIP_LOADING_SO_FILES": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


def import_optional(
    module: str, *, library: str = "", settings: Mapping[str, str] = MappingProxyType({})
) -> ModuleType:
    """A module of an optional extra, imported without a word on stderr.

    The extras' imports warn of libraries that do not fit the installed torch, and of their own use
    of torch; what a notebook writes to stderr fails its test. A module warns when it is first
    imported, so import each one through this function. Once transformers is imported, no request
    leaves the machine, no progress bar is drawn, and it logs errors only.

    Args:
        module: such as ``"torchao.prototype.mx_formats.mx_tensor"``.
        library: the one in ``PINNED`` that it needs, if not the one that it is part of.
        settings: environment variables, set meanwhile.

    Raises:
        ImportError: the library is not installed, or fails to import beside the installed torch;
            the sentence says what to do.
    """
    library = library or module.partition(".")[0]
    install = f"install it with `pip install {library}=={PINNED[library]}`, then restart the kernel"
    with _silence({**_SETTINGS, **settings}):
        try:
            importlib.import_module(library)
            if library == "transformers":
                logs = importlib.import_module("transformers.utils.logging")
                logs.set_verbosity_error()
                logs.disable_progress_bar()
            return importlib.import_module(module)
        except Exception as error:
            if isinstance(error, ModuleNotFoundError) and error.name == library:
                raise ImportError(f"{library} is not installed: {install}") from None
            raise ImportError(f"{module} cannot be imported ({error}): {install}") from error


@contextlib.contextmanager
def _silence(settings: Mapping[str, str]) -> Iterator[None]:
    """No warnings, of Python's kind or logged; the environment afterwards as before."""
    before = {name: os.environ.get(name) for name in settings}
    disabled = logging.root.manager.disable
    os.environ.update(settings)
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# Pictures


@dataclass(frozen=True)
class Picture:
    """A figure with its caption and its words, as plots return it; ``alt`` is read aloud."""

    figure: Figure
    caption: str
    alt: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144, bbox_inches="tight", facecolor="white")
        source = base64.b64encode(buffer.getvalue()).decode()
        alt = html.escape(self.alt)
        image = f'<img style="max-width: 100%" alt="{alt}" src="data:image/png;base64,{source}">'
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        return {
            "text/plain": repr(self),
            "text/html": f'<figure style="margin: 0; max-width: 46em">{image}{caption}</figure>',
        }

    def __repr__(self) -> str:
        return f"{self.caption}\n{self.alt}"


def new_axes(*, height: float) -> tuple[Figure, Axes]:
    """A figure of that height in inches, and its axes without a frame above and to the right."""
    from matplotlib.figure import Figure  # commands do not wait for it

    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


# The manifest, as ``labkit build`` writes it

MANIFEST = "manifest.json"


class ManifestError(OSError):
    """The manifest is missing or damaged, in a sentence that says what brings it back.

    ``why`` is what is wrong, in a few words.
    """

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(
            f"{file} {why}. It lists the labs: `git checkout {file}` or `python -m labkit build` "
            "brings it back in a checkout, and installing labkit again elsewhere."
        )
        self.why = why


@dataclass(frozen=True, kw_only=True)
class ExerciseEntry:
    """One exercise: its id, the names that its check asks for, and what passing it is worth.

    ``seconds`` is the CPU time that its check may take. ``check_version`` changes with the text of
    the lab's checks; "" where there are none.
    """

    exercise: str
    names: tuple[str, ...]
    points: int | float
    seconds: int | float
    check_version: str


@dataclass(frozen=True, kw_only=True)
class SectionEntry:
    """One heading of a lab, as links name it, and the exercises and predictions below it."""

    section: str
    items: tuple[str, ...]
    optional: bool


@dataclass(frozen=True, kw_only=True)
class LabEntry:
    """One lab: its name such as "02_number_formats", its title, version and minutes.

    ``optional_minutes`` is what its optional parts take beyond the required ``minutes``.
    """

    lab: str
    title: str
    version: str
    minutes: int
    optional_minutes: int
    hardware: str
    exercises: tuple[ExerciseEntry, ...]
    predictions: tuple[str, ...]
    sections: tuple[SectionEntry, ...]

    @property
    def number(self) -> int:
        """2 for 02_number_formats."""
        return int(self.lab.split("_")[0])


@dataclass(frozen=True)
class Manifest:
    """The labs of the course, in their order."""

    labs: tuple[LabEntry, ...]

    def find(self, name: str) -> LabEntry:
        """The lab of that name, or the one whose number it is; raises ValueError."""
        labs = {entry.lab: entry for entry in self.labs}
        return labs[full_name(name, labs)]


def full_name(name: str, labs: Iterable[str]) -> str:
    """The name of the lab that ``name`` means, itself or a number: 02 is 02_number_formats.

    Raises ValueError, with the names that there are.
    """
    labs = list(labs)
    found = [lab for lab in labs if name in (lab, lab.split("_")[0])]
    if not found:
        raise ValueError(f"There is no lab {name!r}; there are {', '.join(labs) or 'none'}.")
    return found[0]


def read_manifest(notebooks: Path = NOTEBOOKS) -> Manifest:
    """The manifest of a folder of notebooks; raises ManifestError."""
    file = notebooks / MANIFEST
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return Manifest(tuple(_lab(**entry) for entry in content["labs"]))
    except FileNotFoundError:
        raise ManifestError(file, "is missing") from None
    except (OSError, ValueError) as error:
        raise ManifestError(file, f"cannot be read: {error}") from None
    except (TypeError, KeyError):
        raise ManifestError(file, "cannot be read: its entries are not this labkit's") from None


def _lab(*, exercises: list, sections: list, predictions: list, **facts: Any) -> LabEntry:
    return LabEntry(
        exercises=tuple(_exercise(**entry) for entry in exercises),
        predictions=tuple(predictions),
        sections=tuple(_section(**entry) for entry in sections),
        **facts,
    )


def _exercise(
    *, names: list, limits: dict, check_version: str | None, **facts: Any
) -> ExerciseEntry:
    return ExerciseEntry(
        names=tuple(names), seconds=limits["seconds"], check_version=check_version or "", **facts
    )


def _section(*, items: list, **facts: Any) -> SectionEntry:
    return SectionEntry(items=tuple(items), **facts)
