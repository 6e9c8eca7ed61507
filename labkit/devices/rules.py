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
        capability: CUDA's compute capability, such as "7.5", or (7, 5) as torch gives it; ROCm's
            architecture, such as "gfx942"; empty elsewhere. It is kept as a string.
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
        if isinstance(self.capability, tuple):
            object.__setattr__(self, "capability", ".".join(map(str, self.capability)))
        pattern = {"cuda": r"\d+\.\d", "rocm": r"gfx[0-9a-f]+"}.get(self.kind, "")
        if not isinstance(self.capability, str) or not re.fullmatch(pattern, self.capability):
            wanted = {"cuda": "like '8.6'", "rocm": "like 'gfx942'"}.get(self.kind, "empty")
            raise ValueError(f"capability={self.capability!r} of kind {self.kind!r}: {wanted}")


@dataclass(frozen=True)
class Device:
    """A device and what it does with each dtype of DTYPES.

    Args:
        name, kind, capability, memory: as in its Description.
        matrix_units: has it units that multiply matrices (Tensor Cores, Matrix Cores, XMX, AMX,
            SME)? WMMA on the vector ALUs of a GPU counts, BFMMLA and SMMLA in the vector registers
            of an Arm processor do not.
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
        computable = _computable(dtype, description, accelerated)
        return Support(never, computable, accelerated)
    tried = description.tried.get(dtype)
    if tried is None:
        storable = _storable(dtype, description)
        return Support(storable, _computable(dtype, description, accelerated), accelerated)
    if tried.trouble:
        silent = Fact(None, "unknown", tried.trouble)
        return Support(silent, silent, accelerated)
    what = "kept and read back" if tried.storable else "torch could not keep it"
    storable = Fact(tried.storable, "probe", what)
    if dtype == "fp4" and tried.storable:  # the trial keeps fp4 and multiplies nothing
        return Support(storable, _computable(dtype, description, accelerated), accelerated)
    operations = ", ".join(tried.operations) or "no operation gave the right result"
    return Support(storable, Fact(bool(tried.operations), "probe", operations), accelerated)


def _storable(dtype: str, description: Description) -> Fact:
    """Without a trial: what torch documents for this kind of device."""
    if description.kind == "mps" and dtype in _MPS_HAS_NONE:
        return Fact(False, "capability table", f"the MPS backend has no {_MPS_HAS_NONE[dtype]}")
    if description.kind == "mps" and dtype == "fp4":
        return Fact(None, "unknown", "no document says whether MPS keeps it: try it")
    return Fact(True, "capability table", "bytes are bytes")


def _computable(dtype: str, description: Description, accelerated: Fact) -> Fact:
    """As _storable. True means that torch has some kernel for it, not each one."""
    kind = description.kind
    if kind == "mps" and _storable(dtype, description).answer is not True:
        return _storable(dtype, description)
    if kind == "cuda" and wheel_for(description.capability) is None:
        gone = f"no current torch has code for {description.capability}: CUDA 12 dropped it"
        return Fact(False, "capability table", gone)
    if dtype == "fp64" and kind == "xpu" and description.features is not None:
        lists = "has_fp64" in description.features
        return Fact(
            lists, "capability table", f"the device {'lists' if lists else 'does not list'} fp64"
        )
    if dtype == "fp8" and kind == "cpu":
        # matmul and scaled_mm take float8 on every processor (torch 2.13), add does not.
        return Fact(True, "capability table", "torch multiplies FP8 matrices, without units for it")
    if dtype in ("tf32", "fp8", "fp4"):
        # torch has no arithmetic for them but a product that asks for the units.
        return accelerated
    if dtype == "bf16" and kind == "cuda" and _capability(description) < (7, 0):
        # CUBLAS_STATUS_NOT_SUPPORTED, pytorch/pytorch#57773.
        why = "elementwise, through fp32; many versions of cuBLAS refuse products below 7.0"
    elif dtype == "bf16" and kind == "mps":
        why = "from macOS 14 on, which MPS needs since torch 2.9"  # pytorch PRs 119641, 162921
    elif accelerated.answer is False and dtype in ("fp16", "bf16"):
        why = "through fp32, rounded after each operation"
    else:
        why = "torch has the operations"
    return Fact(True, "capability table", why)


# float8: pytorch/pytorch#148420, open in 2026.
_MPS_HAS_NONE = {"fp64": "float64", "fp8": "float8"}


def wheel_for(capability: str) -> str | None:
    """The index whose wheels of torch have code for a compute capability; None where none has.

    "" is the default index. Torch 2.11 to 2.14: the default wheels (CUDA 13) from 7.5 on; those of
    CUDA 12.6, on x86, from 5.0 on; CUDA 12.0 dropped 3.x (pytorch/pytorch#172663, #178665,
    #190355). 2.15 drops CUDA 12.6 (#190385).

    >>> wheel_for("7.0")
    'https://download.pytorch.org/whl/cu126'
    """
    at = tuple(map(int, capability.split(".")))
    if at < (5, 0):
        return None
    if at < (7, 5) and at not in _JETSON:
        return "https://download.pytorch.org/whl/cu126"
    return ""


# TX1, TX2 and Xavier. Torch's own wheels for Arm begin at 8.0; NVIDIA builds others for these.
_JETSON = ((5, 3), (6, 2), (7, 2))


def _capability(description: Description) -> tuple[int, ...]:
    return tuple(map(int, description.capability.split(".")))


# Accelerated, kind by kind

_FP32 = Fact(True, "capability table", "the rate that the others are compared with")


def _table(units: Mapping[str, bool | None], why: Mapping[str, str]) -> dict[str, Fact]:
    facts = {}
    for name in ("matrix", *DTYPES):
        answer = units[name]
        evidence = "unknown" if answer is None else "capability table"
        facts[name] = Fact(answer, evidence, why.get(name, why["*"]))
    return facts | {"fp32": _FP32}


def _unknown(why: str) -> dict[str, Fact]:
    return dict.fromkeys(("matrix", *DTYPES), Fact(None, "unknown", why)) | {"fp32": _FP32}


# Turing without Tensor Cores: the chips TU116 and TU117 also have compute capability 7.5.
_TURING_WITHOUT = re.compile(
    r"GTX 16\d0|\bMX[45]50\b|\bT[456][05]0\b|\bT[12][025]00\b|\bCMP 30HX\b"
)


# Hopper with 1 TFLOP/s of fp64 left, for the rules of export.
_HOPPER_WITHOUT_FP64 = re.compile(r"\bH20\b|\bH800\b")


def _cuda(description: Description) -> dict[str, Fact]:
    """CUDA C++ Programming Guide, "Compute Capabilities" and "Arithmetic Instructions".

    The guide's results per clock: fp16 twice fp32 at 5.3, 6.0, 6.2 and from 7.0 on, 2 against 128
    at 6.1. fp64 at fp32's rate: the Tensor Cores of 8.0 and 9.0 (A100 and H100 whitepapers). bf16,
    fp8 and fp4 as in Transformer Engine's support matrix, int8 as in TensorRT's (6.1: yes; 6.2:
    no). What holds for GeForce: the appendices
    of the Turing, Ampere GA102, Ada and RTX Blackwell whitepapers.
    """
    at = _capability(description)
    cores = at >= (7, 0) and not (at == (7, 5) and _TURING_WITHOUT.search(description.name))
    packed = at in ((5, 3), (6, 0), (6, 2)) or at >= (7, 0)
    geforce = cores and is_geforce(description.name)
    said = f"compute capability {description.capability}"
    if at >= (7, 0) and not cores:
        said += ", but a chip without Tensor Cores"
    units = {
        "matrix": cores,
        "fp64": at in ((8, 0), (9, 0)) and not _HOPPER_WITHOUT_FP64.search(description.name),
        "fp32": True,
        "tf32": cores and at >= (8, 0),
        "fp16": packed,
        "bf16": cores and at >= (8, 0),
        "fp8": cores and at >= (8, 9),
        "fp4": cores and at >= (10, 0),
        "int8": at >= (6, 1) and at != (6, 2),
    }
    fp16 = "Tensor Cores" if cores else _PACKED[packed]
    if at < (5, 3):
        fp16 = "FP16 arithmetic from 5.3 on"
    if geforce:
        fp16 += ", on a GeForce at half their rate where they accumulate in FP32"
    fp64 = "Tensor Cores take it at fp32's rate on 8.0 and 9.0"
    if at == (9, 0) and not units["fp64"]:
        fp64 = "cut to 1 TFLOP/s on this card"
    tf32 = "Tensor Cores take it from 8.0 on"
    if geforce and units["tf32"]:
        tf32 += ", on a GeForce with the same peak as FP32"
    return _table(
        units,
        {
            "*": said,
            "matrix": f"{said}; Tensor Cores from 7.0 on",
            "fp64": f"{said}; {fp64}",
            "tf32": f"{said}; {tf32}",
            "fp16": f"{said}; {fp16}",
            "bf16": f"{said}; Tensor Cores take it from 8.0 on",
            "fp8": f"{said}; Tensor Cores take it from 8.9 on",
            "fp4": f"{said}; Tensor Cores take it from 10.0 on",
            "int8": f"{said}; {_int8(at, cores=bool(cores))}",
        },
    )


def is_geforce(name: str) -> bool:
    """Is it one of NVIDIA's cards for games, whose Tensor Cores are held back?"""
    return "GeForce" in name


def _int8(at: tuple[int, ...], *, cores: bool) -> str:
    if at == (10, 3):  # dense, per GPU: verda.com/blog/gb300-nvl72-architecture, after NVIDIA's
        return "Tensor Cores, cut down: 0.15 POPS on a B300, where FP8 has 4.5 PFLOPS"
    if cores and at >= (7, 2):
        return "Tensor Cores take it from 7.2 on"
    if at < (6, 1) or at == (6, 2):
        return "dot products of four on 6.1 and from 7.0 on"
    return "dot products of four, without Tensor Cores"


_PACKED = {True: "pairs at twice fp32's rate, no Tensor Cores", False: "a fraction of fp32's rate"}


@dataclass(frozen=True)
class _Amd:
    """An architecture of AMD: its name, what multiplies matrices, and the accelerated dtypes."""

    name: str
    units: str
    dtypes: str
    matrix: bool = True


# CDNA: ROCm, "Data types and precision support"; fp64 by AMD's lab notes on Matrix Cores (MI250X:
# 256 FLOP a clock and CU in fp64 and in fp32; MI100: none in fp64) and AMD's product pages. CDNA4
# dropped TF32. RDNA: gpuopen.com/learn/using_matrix_core_amd_rdna4, FLOP a clock and CU of the
# RX 6950 XT, 7900 XTX and 9070 XT: fp16 256, 512, 1024; bf16 none, 512, 1024; int8 512, 512, 2048,
# beside 128, 256 and 256 in fp32. RDNA3 has no fp8 (llama.cpp#17495). gfx906: AMD's launch release
# of the MI50: 26.8, 13.4 and 6.7 TFLOP/s in fp16, fp32 and fp64.
_CDNA1 = _Amd("CDNA1", "Matrix Cores", "fp16 bf16 int8")
_CDNA2 = _Amd("CDNA2", "Matrix Cores", "fp64 fp16 bf16 int8")
_CDNA3 = _Amd("CDNA3", "Matrix Cores, fp8 of the FNUZ kind", "fp64 tf32 fp16 bf16 fp8 int8")
_CDNA4 = _Amd("CDNA4", "Matrix Cores, fp8 of OCP", "fp16 bf16 fp8 fp4 int8")
_VEGA20 = _Amd("Vega 20", "packed pairs and dot products, no matrix units", "fp16 int8", False)
_RDNA2 = _Amd("RDNA2", "packed pairs and dot products, no matrix units", "fp16 int8", False)
_RDNA3 = _Amd("RDNA3", "WMMA instructions, executed by the vector ALUs", "fp16 bf16 int8")
_RDNA35 = _Amd("RDNA3.5", "WMMA instructions, executed by the vector ALUs", "fp16 bf16 int8")
_RDNA4 = _Amd("RDNA4", "Matrix Cores, fp8 of OCP", "fp16 bf16 fp8 int8")
_ROCM = {
    "gfx906": _VEGA20,
    "gfx908": _CDNA1,
    "gfx90a": _CDNA2,
    "gfx942": _CDNA3,
    "gfx950": _CDNA4,
    **dict.fromkeys(("gfx1030", "gfx1031", "gfx1032", "gfx1034", "gfx1035", "gfx1036"), _RDNA2),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1103"), _RDNA3),
    **dict.fromkeys(("gfx1150", "gfx1151", "gfx1152", "gfx1153"), _RDNA35),
    **dict.fromkeys(("gfx1200", "gfx1201"), _RDNA4),
}


def _rocm(description: Description) -> dict[str, Fact]:
    if description.capability not in _ROCM:
        return _unknown(f"no table here knows {description.capability}")
    amd = _ROCM[description.capability]
    units = {"matrix": amd.matrix} | {dtype: dtype in amd.dtypes.split() for dtype in DTYPES}
    return _table(units, {"*": f"{description.capability}, {amd.name}: {amd.units}"})


_XPU_MAX = re.compile(r"\bMax 1\d\d0\b")
_XPU_ALCHEMIST = re.compile(r"\bA\d{3}[EM]?\b|\bFlex \d{3}\b")


def _xpu(description: Description) -> dict[str, Fact]:
    """The properties that torch.xpu lists, and what Intel publishes of the engines behind them.

    Vector engines compute fp16 at 2, int8 (DP4A) at 4 times fp32's rate: "Intel Xe GPU
    Architecture" of the oneAPI optimization guide. XMX multiplies fp16, bf16 and int8 matrices:
    "Intel AI Engines and Supported Datatypes" (article 000098346), which names no fp8. Xe-HPC, the
    Max cards, has fp64 at fp32's rate: 256 operations a clock and core each (Architecture Day
    2021).
    """
    if description.features is None:
        return _unknown("nothing lists this device's properties")
    xmx = "has_subgroup_matrix_multiply_accumulate" in description.features
    tf32 = "has_subgroup_matrix_multiply_accumulate_tensor_float32" in description.features
    older = not xmx or _XPU_MAX.search(description.name) or _XPU_ALCHEMIST.search(description.name)
    narrow = False if older else None
    said = f"XMX units {'listed' if xmx else 'not listed'}"
    vector = "vector engines, {} times fp32's rate; " + said
    silent = "no document names it" if narrow is None else "this XMX does not take it"
    fp64: bool | None = False
    why_fp64 = "fp64 not listed"
    if "has_fp64" in description.features:
        fp64 = True if _XPU_MAX.search(description.name) else None
        why_fp64 = "fp64 listed; " + ("at fp32's rate" if fp64 else "no property tells its rate")
    units = {
        "matrix": xmx,
        "fp64": fp64,
        "fp32": True,
        "tf32": tf32,
        "fp16": True,
        "bf16": xmx,
        "fp8": narrow,
        "fp4": narrow,
        "int8": True,
    }
    why = {"*": said, "fp64": why_fp64}
    if xmx:
        why |= {"fp8": f"{said}; {silent}", "fp4": f"{said}; {silent}"}
    else:
        why |= {"fp16": vector.format(2), "int8": vector.format(4)}
    return _table(units, why)


_APPLE = re.compile(r"\bApple M(\d+)\b")


def _mps(description: Description) -> dict[str, Fact]:
    """Apple publishes no rates by dtype: what others measured, and "measure" for the rest.

    M1 and M2: github.com/philipturner/metal-benchmarks (fp16 neither faster nor slower than fp32),
    and its author on bf16 of the M1 (metal-flash-attention#17). Neural Accelerators: Apple on the
    M5, measured on the A19 by T. Zakharko (fp16 4, int8 7 times fp32's rate).
    """
    no = Fact(False, "capability table", "the MPS backend has none")
    facts = _unknown("Apple publishes no rates by dtype: measure")
    facts |= {"fp64": no, "tf32": no, "fp8": no}
    chip = _APPLE.search(description.name)
    if chip is None:
        return facts

    def measured(answer: bool, why: str) -> Fact:
        return Fact(answer, "capability table", why)

    if int(chip.group(1)) >= 5:
        cores = measured(True, "a Neural Accelerator in each GPU core, from the M5 on")
        return facts | {"matrix": cores, "fp16": cores, "int8": cores}
    facts["matrix"] = measured(False, "the GPU cores of M1 to M4 have none")
    facts["fp16"] = measured(True, "at fp32's rate on M1 to M4: half the bytes, no faster sums")
    if chip.group(1) == "1":
        facts["bf16"] = measured(False, "the M1's GPU computes it through fp32")
    return facts


# Features by which a processor says that it computes in a format: x86 and Arm as in Linux's
# /proc/cpuinfo (arch/x86/include/asm/cpufeatures.h; Documentation/arch/arm64/elf_hwcaps.rst), the
# FEAT names as in `sysctl hw.optional.arm` of macOS.
_X86 = {
    "matrix": ("amx_tile",),
    "tf32": ("amx_tf32",),
    "fp16": ("avx512_fp16", "amx_fp16"),
    "bf16": ("avx512_bf16", "amx_bf16"),
    "fp8": ("amx_fp8",),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8"),
}
_ARM = {
    "matrix": ("sme",),
    "fp16": ("asimdhp",),
    "bf16": ("bf16",),
    "fp8": ("f8fma",),
    "int8": ("asimddp", "i8mm"),
}
_MAC = {
    "matrix": ("FEAT_SME",),
    "fp16": ("FEAT_FP16",),
    "bf16": ("FEAT_BF16",),
    "int8": ("FEAT_DotProd", "FEAT_I8MM"),
}
# Linux knows these bits and gives them no name in /proc/cpuinfo.
_NAMELESS = frozenset({"amx_fp16", "amx_tf32", "amx_fp8"})
TELLING_FLAGS = frozenset(
    flag for family in (_X86, _ARM, _MAC) for flags in family.values() for flag in flags
)


def _cpu(description: Description) -> dict[str, Fact]:
    facts = _unknown("nothing lists this processor's flags")
    half = Fact(False, "capability table", "a vector register holds half as many as of fp32")
    none = Fact(False, "capability table", "no processor's instructions take it")
    facts |= {"fp64": half, "fp4": none}
    if description.features is None:
        return facts
    family = _family(description.features)
    for name in ("matrix", "tf32", "fp16", "bf16", "fp8", "int8"):
        facts[name] = _by_flags(family.get(name, ()), description.features)
    return facts


def _family(features: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
    if any(feature.startswith("FEAT_") for feature in features):
        return _MAC
    return _ARM if "asimd" in features else _X86


def _by_flags(flags: tuple[str, ...], features: frozenset[str]) -> Fact:
    there = [flag for flag in flags if flag in features]
    if there:
        return Fact(True, "ISA flag", f"lists {', '.join(there)}")
    if not flags:
        return Fact(False, "capability table", "no instruction of this architecture takes it")
    if "amx_tile" in features and _NAMELESS.intersection(flags):
        names = ", ".join(sorted(_NAMELESS.intersection(flags)))
        return Fact(None, "unknown", f"has AMX, and Linux lists no {names} even where there is one")
    return Fact(False, "ISA flag", f"lists none of {', '.join(flags)}")


_UNITS: dict[str, Callable[[Description], dict[str, Fact]]] = {
    "cuda": _cuda,
    "rocm": _rocm,
    "xpu": _xpu,
    "mps": _mps,
    "cpu": _cpu,
}
