"""The questions' Markdown for a terminal: lines as wide as it is, formulas as one would type them.

Code stands as it is: lines indented by four blanks, fenced blocks, and ``inline code``, which is
never broken. So do tables.
"""

import re
import shutil
import unicodedata

WIDEST = 96
"""Columns of a line, at most: longer lines are hard to read."""

_NARROWEST = 20

_WIDE = "\u2e80-\u2fff\u3040-\u9fff\uac00-\ud7a3\uf900-\ufaff"
_OPENING, _CLOSING = "（“‘「『《〈【", "，。；：！？、）”’」』》〉】…"
_PIECE = re.compile(
    rf"\s+|[{_OPENING}]*(?:[{_WIDE}]|(?:`[^`\n]+`|[^\s{_WIDE}{_OPENING}{_CLOSING}])+)?[{_CLOSING}]*"
)
"""Blanks, or what no line's end may part: a Chinese character, or a word, with its punctuation."""

_MARK = re.compile(r"\s*(?:[-*] (?:[a-j]\) )?|\d+\. |> )?")
"""What a line of a list or a quotation begins with; the lines after it are indented as far."""

_FORMULA = re.compile(r"(`+)(?:(?!\1).)+\1|\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\d)")


def columns() -> int:
    """How wide a line may be here."""
    return max(_NARROWEST, min(WIDEST, shutil.get_terminal_size((80, 24)).columns))


def for_terminal(markdown: str, width: int) -> str:
    """A text with its formulas readable and its lines, but for code and tables, at most so wide."""
    lines, fenced = [], False
    for line in markdown.split("\n"):
        fence = line.lstrip().startswith("```")
        if fence or fenced or line.startswith("    ") or line.startswith("|"):
            lines.append(line)
        else:
            lines += _wrapped(_FORMULA.sub(_read, line), width)
        fenced ^= fence
    return "\n".join(lines)


def text_width(text: str) -> int:
    """The columns that a text takes: two for a Chinese character, none for a combining one."""
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _wrapped(line: str, width: int) -> list[str]:
    mark = _MARK.match(line)[0]
    indent = " " * min(len(mark), width // 2)
    lines, now = [], mark
    for piece in _PIECE.findall(line[len(mark) :]):
        if text_width(now + piece.rstrip()) > width and now.strip() and now != mark:
            lines.append(now.rstrip())
            now = indent + piece.lstrip()
        else:
            now += piece
    return [*lines, now.rstrip()]


_SYMBOLS = {
    "times": "×", "cdot": "·", "odot": "⊙", "otimes": "⊗", "approx": "≈", "sim": "~", "pm": "±",
    "le": "≤", "ge": "≥", "ne": "≠", "leq": "≤", "geq": "≥", "neq": "≠", "ll": "≪", "gg": "≫",
    "equiv": "≡", "propto": "∝", "in": "∈", "to": "→", "rightarrow": "→", "gets": "←", "mid": "|",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "Vert": "‖", "top": "T",
    "sum": "Σ", "prod": "Π", "partial": "∂", "nabla": "∇", "infty": "∞", "dots": "...",
    "ldots": "...", "cdots": "...", "left": "", "right": "", "quad": " ",
    "log": "log", "ln": "ln", "exp": "exp", "max": "max", "min": "min", "alpha": "α", "beta": "β",
    "gamma": "γ", "delta": "δ", "Delta": "Δ", "epsilon": "ε", "varepsilon": "ε", "eta": "η",
    "theta": "θ", "kappa": "κ", "lambda": "λ", "mu": "μ", "pi": "π", "rho": "ρ", "sigma": "σ",
    "Sigma": "Σ", "tau": "τ", "phi": "φ", "varphi": "φ", "psi": "ψ", "omega": "ω",
}  # fmt: skip


def _read(found: re.Match) -> str:
    """A formula without its dollars; inline code as it is."""
    return found[0] if found[1] else formula_text(found[2])


def formula_text(latex: str) -> str:
    r"""A formula as one would type it; what is not known stays as it is written.

    >>> formula_text(r"k = \lfloor\log_2 a\rfloor - 8"), formula_text(r"2^{-24} \times \frac{a}{n}")
    ('k = ⌊log_2 a⌋ - 8', '2^-24 × a/n')
    """
    group = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
    latex = re.sub(r"\{\{([^{}]*)\}\}", r"{\1}", latex)
    latex = re.sub(
        rf"\\[dt]?frac\s*{group}\s*{group}", lambda f: f"{_grouped(f[1])}/{_grouped(f[2])}", latex
    )
    latex = re.sub(rf"\\sqrt\s*{group}", lambda f: f"sqrt({formula_text(f[1])})", latex)
    latex = re.sub(rf"\\(?:text|mathrm|operatorname)\s*{group}", r"\1", latex)
    latex = re.sub(rf"([\^_]){group}", lambda f: f[1] + _grouped(f[2]), latex)
    latex = re.sub(r"\\([a-zA-Z]+)", lambda f: _SYMBOLS.get(f[1], f[0]), latex)
    return re.sub(r"\\[,;:! ]", " ", latex)


def _grouped(latex: str) -> str:
    """A part of a formula in brackets, unless it is one number or name."""
    text = formula_text(latex)
    return text if re.fullmatch(r"-?[\w.]+", text) else f"({text})"
