"""What a device does with a dtype, by rules over its description.

"Supports bf16" is three questions: can a tensor of it be **stored**, can torch **compute** with it,
and is that computation **accelerated**, by units that take it at no less than the rate of fp32.
Each answer names its evidence. The rules are pure: the description of a device that nobody here has
gives the same answers as the device itself.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
KINDS = ("cuda", "rocm", "xpu", "mps", "cpu")


@dataclass(frozen=True)
class Fact:
    """An answer, True, False or None for unknown, what kind of evidence it has, and which.

    ``evidence`` is "probe", "capability table", "ISA flag" or "unknown".
    """

    answer: bool | None
    evidence: str
    why: str

    @property
    def word(self) -> str:
        """The answer: "yes", "no" or "unknown"."""
        return {True: "yes", False: "no", None: "unknown"}[self.answer]


@dataclass(frozen=True)
class Support:
    """The three facts of one dtype."""

    storable: Fact
    computable: Fact
    accelerated: Fact


@dataclass(frozen=True)
class Tried:
    """What came of trying a dtype on the device itself.

    Args:
        storable: could a tensor of it be made and read back?
        operations: those that gave the right result.
        trouble: what went wrong with the trial itself, such as a crash of its process; the rest
            says nothing then.
    """

    storable: bool = False
    operations: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a machine says of one device: all that the rules read.

    Args:
        name: what the device calls itself, such as "NVIDIA GeForce GTX 1660".
        kind: one of KINDS.
        capability: CUDA's compute capability, such as "7.5", ROCm's architecture, such as
            "gfx942"; empty elsewhere.
        memory: in bytes, or None where nothing tells.
        features: a processor's ISA flags, or an XPU's properties that are true; None where nothing
            lists them.
        tried: by dtype, what came of trying it; a dtype that is missing was not tried.

    Raises:
        ValueError: an unknown kind or dtype, or a capability that is not one of that kind.
    """

    name: str
    kind: str
    capability: str = ""
    memory: int | None = None
    features: frozenset[str] | None = None
    tried: Mapping[str, Tried] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: one of {', '.join(map(repr, KINDS))}")
        if unknown := set(self.tried) - set(DTYPES):
            raise ValueError(f"tried {sorted(unknown)}: the dtypes are {', '.join(DTYPES)}")
        pattern = {"cuda": r"\d+\.\d", "rocm": r"gfx[0-9a-f]+"}.get(self.kind, "")
        if not re.fullmatch(pattern, self.capability):
            wanted = {"cuda": "like '8.6'", "rocm": "like 'gfx942'"}.get(self.kind, "empty")
            raise ValueError(f"capability={self.capability!r} of kind {self.kind!r}: {wanted}")


@dataclass(frozen=True)
class Device:
    """A device and what it does with each dtype of DTYPES.

    Args:
        name, kind, capability, memory: as in its Description.
        matrix_units: has it units that multiply matrices (Tensor Cores, Matrix Cores, XMX, AMX)?
        dtypes: by name, the three facts.
    """

    name: str
    kind: str
    capability: str
    memory: int | None
    matrix_units: Fact
    dtypes: Mapping[str, Support]

    def describe(self) -> str:
        """All facts as lines of text."""
        memory = f", {in_gib(self.memory)}" if self.memory else ""
        lines = [" ".join(filter(None, [self.name, f"({self.kind}{memory})", self.capability]))]
        lines.append(f"matrix units: {self.matrix_units.word} ({self.matrix_units.why})")
        lines.append("dtype  storable  computable  accelerated  why")
        for dtype, support in self.dtypes.items():
            facts = (support.storable, support.computable, support.accelerated)
            storable, computable, accelerated = (fact.word for fact in facts)
            lines.append(
                f"{dtype:<5}  {storable:<8}  {computable:<10}  {accelerated:<11}  "
                f"{support.accelerated.why}"
            )
        return "\n".join(lines)


def device_of(description: Description) -> Device:
    """Apply the rules to a description."""
    units = _UNITS[description.kind](description)
    return Device(
        name=description.name,
        kind=description.kind,
        capability=description.capability,
        memory=description.memory,
        matrix_units=units.pop("matrix"),
        dtypes={dtype: _support(dtype, description, units) for dtype in DTYPES},
    )


def in_gib(count: int) -> str:
    """Bytes in gibibytes, as in "15.6 GiB"."""
    return f"{count / 2**30:.1f} GiB"


# Storable and computable


def _support(dtype: str, description: Description, units: Mapping[str, Fact]) -> Support:
    accelerated = units[dtype]
    if dtype == "tf32":
        never = Fact(False, "capability table", "TF32 values are kept in the 32 bits of fp32")
        return Support(never, accelerated, accelerated)
    tried = description.tried.get(dtype)
    if tried is None:
        return Support(*_by_table(dtype, description, accelerated), accelerated)
    if tried.trouble:
        silent = Fact(None, "unknown", tried.trouble)
        return Support(silent, silent, accelerated)
    what = "kept and read back" if tried.storable else "torch could not keep it"
    storable = Fact(tried.storable, "probe", what)
    operations = ", ".join(tried.operations) or "no operation gave the right result"
    return Support(storable, Fact(bool(tried.operations), "probe", operations), accelerated)


def _by_table(dtype: str, description: Description, accelerated: Fact) -> tuple[Fact, Fact]:
    """Without a trial: what torch documents for this kind of device."""
    kind = description.kind
    if dtype == "fp64" and kind == "mps":
        no = Fact(False, "capability table", "the MPS backend has no float64")
        return no, no
    if dtype == "fp64" and kind == "xpu" and description.features is not None:
        yes = "has_fp64" in description.features
        has = Fact(
            yes, "capability table", f"the device {'lists' if yes else 'does not list'} fp64"
        )
        return Fact(True, "capability table", "bytes are bytes"), has
    if kind == "mps" and dtype in ("bf16", "fp8", "fp4"):
        silent = Fact(None, "unknown", "depends on the versions of macOS and torch: try it")
        return silent, silent
    storable = Fact(True, "capability table", "bytes are bytes")
    if dtype in ("fp8", "fp4"):
        # torch has no arithmetic for them but the scaled matmul, and that asks for the units.
        return storable, accelerated
    # Computable means that torch has some kernel, not each one: many versions of cuBLAS refuse a
    # product in bf16 below 7.0 (CUBLAS_STATUS_NOT_SUPPORTED, pytorch/pytorch#57773).
    emulated = accelerated.answer is False and dtype in ("fp16", "bf16")
    why = "through fp32, rounded after each operation" if emulated else "torch has the operations"
    if dtype == "bf16" and kind == "cuda" and int(description.capability.split(".")[0]) < 7:
        why = "elementwise, through fp32; many versions of cuBLAS refuse products below 7.0"
    return storable, Fact(True, "capability table", why)


# Accelerated, kind by kind

_FP32 = Fact(True, "capability table", "the rate that the others are compared with")


def _table(units: Mapping[str, bool], why: Mapping[str, str]) -> dict[str, Fact]:
    facts = {
        name: Fact(units[name], "capability table", why.get(name, why["*"]))
        for name in ("matrix", *DTYPES)
        if name != "fp32"
    }
    return facts | {"fp32": _FP32}


def _unknown(why: str) -> dict[str, Fact]:
    return dict.fromkeys(("matrix", *DTYPES), Fact(None, "unknown", why)) | {"fp32": _FP32}


# Turing without Tensor Cores: TU116 and TU117 also have compute capability 7.5.
_TURING_WITHOUT = re.compile(r"GTX 16\d0|\bMX[45]50\b|\bT[456][05]0\b|\bT[12][025]00\b")


def _cuda(description: Description) -> dict[str, Fact]:
    """CUDA C++ Programming Guide, "Compute Capabilities" and "Arithmetic Instructions".

    The guide's results per clock: fp16 twice fp32 at 5.3, 6.0, 6.2 and from 7.0 on, 2 against 128
    at 6.1. fp64 at fp32's rate: the Tensor Cores of 8.0 and 9.0 (A100 and H100 whitepapers).
    """
    at = tuple(map(int, description.capability.split(".")))
    cores = at >= (7, 0) and not (at == (7, 5) and _TURING_WITHOUT.search(description.name))
    packed = at in ((5, 3), (6, 0), (6, 2)) or at >= (7, 0)
    said = f"compute capability {description.capability}"
    if at >= (7, 0) and not cores:
        said += ", but a chip without Tensor Cores"
    units = {
        "matrix": cores,
        "fp64": at in ((8, 0), (9, 0)),
        "tf32": cores and at >= (8, 0),
        "fp16": packed,
        "bf16": cores and at >= (8, 0),
        "fp8": cores and at >= (8, 9),
        "fp4": cores and at >= (10, 0),
        "int8": at >= (6, 1),
    }
    return _table(
        units,
        {
            "*": said,
            "matrix": f"{said}; Tensor Cores from 7.0 on",
            "fp64": f"{said}; at fp32's rate on 8.0 and 9.0",
            "tf32": f"{said}; Tensor Cores take it from 8.0 on",
            "fp16": f"{said}; " + ("Tensor Cores" if cores else _PACKED[packed]),
            "bf16": f"{said}; Tensor Cores take it from 8.0 on",
            "fp8": f"{said}; Tensor Cores take it from 8.9 on",
            "fp4": f"{said}; Tensor Cores take it from 10.0 on",
            "int8": f"{said}; dot products of four from 6.1 on",
        },
    )


_PACKED = {True: "pairs at twice fp32's rate, no Tensor Cores", False: "a fraction of fp32's rate"}

# AMD's product pages (dense peaks), ROCm "Data types and precision support". CDNA4 dropped TF32.
_ROCM = {
    "gfx908": ("CDNA1", "fp16 bf16 int8"),
    "gfx90a": ("CDNA2", "fp64 fp16 bf16 int8"),
    "gfx942": ("CDNA3, fp8 of the FNUZ kind", "fp64 tf32 fp16 bf16 fp8 int8"),
    "gfx950": ("CDNA4, fp8 of OCP", "fp16 bf16 fp8 fp4 int8"),
    "gfx1100": ("RDNA3", "fp16 bf16 int8"),
    "gfx1101": ("RDNA3", "fp16 bf16 int8"),
    "gfx1102": ("RDNA3", "fp16 bf16 int8"),
    "gfx1200": ("RDNA4, fp8 of OCP", "fp16 bf16 fp8 int8"),
    "gfx1201": ("RDNA4, fp8 of OCP", "fp16 bf16 fp8 int8"),
}


def _rocm(description: Description) -> dict[str, Fact]:
    if description.capability not in _ROCM:
        return _unknown(f"no table here knows {description.capability}")
    name, has = _ROCM[description.capability]
    units = {"matrix": True} | {dtype: dtype in has.split() for dtype in DTYPES}
    return _table(units, {"*": f"Matrix Cores of {description.capability} ({name})"})


def _xpu(description: Description) -> dict[str, Fact]:
    """The properties that torch.xpu lists; XMX multiplies fp16, bf16 and int8 matrices."""
    if description.features is None:
        return _unknown("nothing lists this device's properties")
    xmx = "has_subgroup_matrix_multiply_accumulate" in description.features
    tf32 = "has_subgroup_matrix_multiply_accumulate_tensor_float32" in description.features
    units = dict.fromkeys(DTYPES, False) | {"matrix": xmx, "fp16": xmx, "bf16": xmx, "int8": xmx}
    facts = _table(units | {"tf32": tf32}, {"*": f"XMX units {'listed' if xmx else 'not listed'}"})
    silent = Fact(None, "unknown", "no property tells its rate")
    return facts | {"fp64": silent, "fp8": silent, "fp4": silent}


def _mps(description: Description) -> dict[str, Fact]:
    facts = _unknown("Apple publishes no rates by dtype: measure")
    no = Fact(False, "capability table", "the MPS backend has none")
    return facts | {"fp64": no, "tf32": no}


# Features by which a processor says that it computes in a format: x86 and Arm as in Linux's
# /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h; Documentation/arch/arm64/elf_hwcaps.rst), the
# FEAT names as in `sysctl hw.optional.arm` of macOS.
_ISA = {
    "matrix": ("amx_tile", "sme", "FEAT_SME"),
    "tf32": ("amx_tf32",),
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp", "FEAT_FP16"),
    "bf16": ("avx512_bf16", "amx_bf16", "bf16", "FEAT_BF16"),
    "fp8": ("amx_fp8", "f8fma"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "FEAT_DotProd", "FEAT_I8MM"),
}
TELLING_FLAGS = frozenset(flag for flags in _ISA.values() for flag in flags)


def _cpu(description: Description) -> dict[str, Fact]:
    facts = _unknown("nothing lists this processor's flags")
    half = Fact(False, "capability table", "a vector register holds half as many as of fp32")
    none = Fact(False, "capability table", "no processor's instructions take it")
    facts |= {"fp64": half, "fp4": none}
    if description.features is None:
        return facts
    for name, flags in _ISA.items():
        there = [flag for flag in flags if flag in description.features]
        said = f"lists {', '.join(there)}" if there else f"lists none of {', '.join(flags)}"
        facts[name] = Fact(bool(there), "ISA flag", said)
    return facts


_UNITS: dict[str, Callable[[Description], dict[str, Fact]]] = {
    "cuda": _cuda,
    "rocm": _rocm,
    "xpu": _xpu,
    "mps": _mps,
    "cpu": _cpu,
}
