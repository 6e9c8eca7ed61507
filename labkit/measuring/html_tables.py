"""How the records of measuring show themselves in a notebook."""

import html
from collections.abc import Mapping, Sequence


def readable_bytes(count: float) -> str:
    """Bytes in the largest unit that leaves 1 or more, such as "128 MiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def table(rows: Sequence[Mapping[str, str]], *, above: Sequence[str], below: str = "") -> str:
    """An HTML table with lines of text above it; a column that is empty in all rows is left out."""
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(row[name])}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    said = "".join(f"<p>{html.escape(line)}</p>" for line in above)
    note = f"<p>{html.escape(below)}</p>" if below else ""
    return f"{said}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"
