"""What the record scripts share: their command line, what a file says of itself, how it is written.

A script writes one file of ``data``, or another one that ``--file`` names, for a trial. Where
TensorFlow or MLX is installed, labkit is not, so labkit is imported where it is used.
"""

import argparse
import json
import os
from datetime import date
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1]


def command(doc: str, file: str) -> argparse.ArgumentParser:
    """The parser of a script that writes ``file``, a path in ``data``."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    parser.add_argument("--file", type=Path, default=DATA / file, help="another file to write")
    return parser


def file_of(doc: str, file: str) -> Path:
    """The file that the command line asks for, where it asks for nothing else."""
    return command(doc, file).parse_args().file


def about(script: str, doc: str, device: str, **versions: object) -> dict[str, Any]:
    """What stands in a file beside its numbers; "what" is the docstring's third paragraph."""
    return {
        "what": " ".join(doc.split("\n\n")[2].split()),
        "device": device,
        **versions,
        "date": date.today().isoformat(),
        "by": f"data/records/{Path(script).name}",
    }


def cpu(how: str = "one thread") -> str:
    """This machine's processor, and how it was used."""
    from labkit.devices.probe import processor

    return f"CPU, {processor().name}, {how}"


def read(file: Path) -> dict[str, Any]:
    """What a file holds already; nothing if it is not there."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def write(file: Path, record: dict[str, Any], *breaks: str, indent: int | None = None) -> None:
    """Write a record in one step, with a new line after the comma of each of ``breaks``."""
    separators = None if indent else (",", ":")
    text = json.dumps(record, indent=indent, separators=separators, allow_nan=False)
    for place in breaks:
        text = text.replace(place, place.replace(",", ",\n"))
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    unfinished.write_text(text + "\n", encoding="utf-8")
    os.replace(unfinished, file)
