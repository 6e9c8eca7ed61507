"""What the rules say of devices that nobody here has."""

import pytest

from labkit.devices import DTYPES, Description, Tried, detect, device_of, recommend
from labkit.devices.rules import KINDS

XMX = frozenset({"has_fp16", "has_subgroup_matrix_multiply_accumulate"})
XMX_FP64 = XMX | {"has_fp64"}
XMX_TF32 = XMX_FP64 | {"has_subgroup_matrix_multiply_accumulate_tensor_float32"}
AVX2 = frozenset({"fma", "avx2"})
ICE_LAKE = AVX2 | {"avx512f", "avx512_vnni"}
ALDER_LAKE = AVX2 | {"avx_vnni"}
ZEN4 = ICE_LAKE | {"avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN4 | {"avx_vnni", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"}
NEOVERSE_N1 = frozenset({"fp", "asimd", "asimdhp", "asimddp"})
NEOVERSE_V1 = NEOVERSE_N1 | {"bf16", "i8mm", "sve"}
M1_CORES = frozenset({"FEAT_FP16", "FEAT_DotProd"})
M2_CORES = M1_CORES | {"FEAT_BF16", "FEAT_I8MM"}
M4_CORES = M2_CORES | {"FEAT_SME"}

# By source: name, kind, capability, features; the dtypes besides fp32 that are accelerated
# (? for unknown), whether there are matrix units, and the recommended dtype.
#
# Capabilities: developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus.
# [guide] CUDA C++ Programming Guide, "Arithmetic Instructions": FP16 results a clock of 5.3 to 7.x,
#   256, 128, 2, 256, 128, beside FP32's 128, 64, 128, 128, 64.
# [trt] TensorRT's "Hardware and Precision": int8 yes on 6.1, 7.0 and from 7.2 on, no on 5.3, 6.0
#   and 6.2; TF32 from 8.0 on. TensorRT-RTX's: BF16 no on 7.5, yes on 8.6; FP8 no on 8.6, yes on
#   8.9; FP4 no on 8.9, yes on 12.0.
# [te] Transformer Engine's support matrix: BF16 from 8.0, FP8 from 8.9, NVFP4 on 10.0, 10.3, 12.0.
SOURCES = {
    "[guide], [trt]; K80 and M60: no FP16 arithmetic, and int8 needs 6.1 (PTX ISA, dp4a)": [
        ("Tesla K80", "cuda", "3.7", None, "", False, "fp32"),
        ("Tesla M60", "cuda", "5.2", None, "", False, "fp32"),
        ("Tegra X1", "cuda", "5.3", None, "fp16", False, "fp32"),
        ("Tesla P100-SXM2-16GB", "cuda", "6.0", None, "fp16", False, "fp32"),
        ("NVIDIA GeForce GTX 1080", "cuda", "6.1", None, "int8", False, "fp32"),
        ("Tesla P40", "cuda", "6.1", None, "int8", False, "fp32"),
        ("NVIDIA Tegra X2", "cuda", "6.2", None, "fp16", False, "fp32"),
        ("Tesla V100-SXM2-16GB", "cuda", "7.0", None, "fp16 int8", True, "fp16"),
        ("NVIDIA TITAN V", "cuda", "7.0", None, "fp16 int8", True, "fp16"),
        ("Xavier", "cuda", "7.2", None, "fp16 int8", True, "fp16"),
        ("Tesla T4", "cuda", "7.5", None, "fp16 int8", True, "fp16"),
        ("NVIDIA GeForce RTX 2080", "cuda", "7.5", None, "fp16 int8", True, "fp16"),
        ("Quadro RTX 6000", "cuda", "7.5", None, "fp16 int8", True, "fp16"),
    ],
    "Turing whitepaper: TU116 and TU117 without Tensor Cores, FP16 at twice FP32's rate": [
        ("NVIDIA GeForce GTX 1660", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
        ("NVIDIA GeForce GTX 1650 SUPER", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
        ("NVIDIA GeForce GTX 1630", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
        ("Quadro T1000", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
        ("NVIDIA T400 4GB", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
        ("NVIDIA GeForce MX450", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
        ("NVIDIA CMP 30HX", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
    ],
    "[trt], [te]; A100 whitepaper: fp64 19.5 beside fp32 19.5; GA102 whitepaper: fp64 1/64": [
        ("NVIDIA A100-SXM4-40GB", "cuda", "8.0", None, "fp64 tf32 fp16 bf16 int8", True, "bf16"),
        ("NVIDIA A30", "cuda", "8.0", None, "fp64 tf32 fp16 bf16 int8", True, "bf16"),
        ("NVIDIA GeForce RTX 3060", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
        ("NVIDIA GeForce RTX 3090", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
        ("NVIDIA RTX A6000", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
        ("NVIDIA A10", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
        ("NVIDIA A40", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
        ("Orin", "cuda", "8.7", None, "tf32 fp16 bf16 int8", True, "bf16"),
    ],
    "[trt], [te]; Ada whitepaper: fp64 1/64; H100 data sheet: fp64 67 beside fp32 67": [
        ("NVIDIA GeForce RTX 4060", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA GeForce RTX 4070", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA GeForce RTX 4090", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA L4", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA L40", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA L40S", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA H100 PCIe", "cuda", "9.0", None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA H100 80GB HBM3", "cuda", "9.0",
         None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA H200", "cuda", "9.0", None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ],
    "H20 and H800: fp64 1 (zangshuxian.com after NVIDIA's sheet, philisun.com)": [
        ("NVIDIA H20", "cuda", "9.0", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("NVIDIA H800", "cuda", "9.0", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ],
    "[te]; HGX B200 sheet: fp64 37 beside fp32 75; GB300: fp64 1.3; consumer Blackwell: 1/64": [
        ("NVIDIA B200", "cuda", "10.0", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
        ("NVIDIA GB200", "cuda", "10.0", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
        ("NVIDIA B300 SXM6 AC", "cuda", "10.3", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
        ("NVIDIA Thor", "cuda", "11.0", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
        ("NVIDIA GeForce RTX 5090", "cuda", "12.0",
         None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "cuda", "12.0",
         None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
        ("NVIDIA GB10", "cuda", "12.1", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
    ],
    "ROCm, Data types and precision support; AMD lab notes on Matrix Cores; product pages": [
        ("AMD Instinct MI50", "rocm", "gfx906", None, "fp16 int8", False, "fp32"),
        ("AMD Instinct MI100", "rocm", "gfx908", None, "fp16 bf16 int8", True, "bf16"),
        ("AMD Instinct MI210", "rocm", "gfx90a", None, "fp64 fp16 bf16 int8", True, "bf16"),
        ("AMD Instinct MI250X", "rocm", "gfx90a", None, "fp64 fp16 bf16 int8", True, "bf16"),
        ("AMD Instinct MI300X", "rocm", "gfx942",
         None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("AMD Instinct MI325X", "rocm", "gfx942",
         None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
        ("AMD Instinct MI355X", "rocm", "gfx950", None, "fp16 bf16 fp8 fp4 int8", True, "bf16"),
    ],
    "gpuopen.com/learn/using_matrix_core_amd_rdna4: FLOP a clock and CU": [
        ("AMD Radeon RX 6950 XT", "rocm", "gfx1030", None, "fp16 int8", False, "fp32"),
        ("AMD Radeon RX 7900 XTX", "rocm", "gfx1100", None, "fp16 bf16 int8", True, "bf16"),
        ("AMD Radeon 780M", "rocm", "gfx1103", None, "fp16 bf16 int8", True, "bf16"),
        ("AMD Radeon 890M", "rocm", "gfx1150", None, "fp16 bf16 int8", True, "bf16"),
        ("AMD Radeon 8060S", "rocm", "gfx1151", None, "fp16 bf16 int8", True, "bf16"),
        ("AMD Radeon RX 9070 XT", "rocm", "gfx1201", None, "fp16 bf16 fp8 int8", True, "bf16"),
    ],
    "Intel: 000098346 (XMX: FP16, BF16, INT8), oneAPI guide (without: FP16 2, DP4A 4 times FP32),"
    " Architecture Day 2021 (Xe-HPC fp64 256 = fp32 256 a clock); Battlemage's fp8, fp4: nothing": [
        ("Intel(R) Iris(R) Xe Graphics", "xpu", "", frozenset(), "fp16 int8", False, "fp32"),
        ("Intel(R) Arc(TM) Graphics", "xpu", "", frozenset(), "fp16 int8", False, "fp32"),
        ("Intel(R) Arc(TM) A770 Graphics", "xpu", "", XMX, "fp16 bf16 int8", True, "bf16"),
        ("Intel(R) Arc(TM) B580 Graphics", "xpu", "",
         XMX_FP64, "fp64? fp16 bf16 int8 fp8? fp4?", True, "bf16"),
        ("Intel(R) Data Center GPU Max 1100", "xpu", "",
         XMX_TF32, "fp64 tf32 fp16 bf16 int8", True, "bf16"),
        ("Intel(R) Data Center GPU Max 1550", "xpu", "",
         XMX_TF32, "fp64 tf32 fp16 bf16 int8", True, "bf16"),
    ],
    "philipturner/metal-benchmarks and metal-flash-attention#17 (M1); Apple on the M5": [
        ("Apple M1", "mps", "", None, "fp16 fp4? int8?", False, "fp32"),
        ("Apple M2 Pro", "mps", "", None, "fp16 bf16? fp4? int8?", False, "fp32"),
        ("Apple M3", "mps", "", None, "fp16 bf16? fp4? int8?", False, "fp32"),
        ("Apple M4 Max", "mps", "", None, "fp16 bf16? fp4? int8?", False, "fp32"),
        ("Apple M5", "mps", "", None, "fp16 bf16? fp4? int8", True, "fp16"),
        ("a GPU without a number", "mps", "", None, "fp16? bf16? fp4? int8?", None, "fp32"),
    ],
    "flags of /proc/cpuinfo and sysctl; Linux's cpufeatures.h: no name there for the AMX kinds of"
    " fp16, tf32 and fp8": [
        ("Apple M1 cores", "cpu", "", M1_CORES, "fp16 int8", False, "fp32"),
        ("Apple M2 cores", "cpu", "", M2_CORES, "fp16 bf16 int8", False, "bf16"),
        ("Apple M4 cores", "cpu", "", M4_CORES, "fp16 bf16 int8", True, "bf16"),
        ("Intel Core i5-8250U", "cpu", "", AVX2, "", False, "fp32"),
        ("Intel Core i7-12700", "cpu", "", ALDER_LAKE, "int8", False, "fp32"),
        ("Intel Xeon 8380", "cpu", "", ICE_LAKE, "int8", False, "fp32"),
        ("AMD EPYC 9654", "cpu", "", ZEN4, "bf16 int8", False, "bf16"),
        ("Intel Xeon 8480+", "cpu", "", SAPPHIRE_RAPIDS, "tf32? fp16 bf16 fp8? int8", True, "bf16"),
        ("Intel Xeon 6980P", "cpu", "", SAPPHIRE_RAPIDS, "tf32? fp16 bf16 fp8? int8", True, "bf16"),
        ("Graviton2", "cpu", "", NEOVERSE_N1, "fp16 int8", False, "fp32"),
        ("Graviton3", "cpu", "", NEOVERSE_V1, "fp16 bf16 int8", False, "bf16"),
        ("Graviton4", "cpu", "", NEOVERSE_V1, "fp16 bf16 int8", False, "bf16"),
    ],
    "nothing to go by": [
        ("no list", "cpu", "", None, "tf32? fp16? bf16? fp8? int8?", None, "fp32"),
        ("no properties", "xpu", "",
         None, "fp64? tf32? fp16? bf16? fp8? fp4? int8?", None, "fp32"),
        ("a gfx of tomorrow", "rocm", "gfx1300",
         None, "fp64? tf32? fp16? bf16? fp8? fp4? int8?", None, "fp32"),
    ],
}  # fmt: skip
DEVICES = [row for rows in SOURCES.values() for row in rows]


def described(name, kind, capability="", features=None, **more):
    return Description(name=name, kind=kind, capability=capability, features=features, **more)


@pytest.mark.parametrize("row", DEVICES, ids=lambda row: row[0])
def test_documented_answers(row):
    *what, said, matrix, dtype = row
    device = device_of(described(*what))
    words = ["fp32", *said.split()]
    expected = {name: name in words or None if f"{name}?" in words else name in words
                for name in DTYPES}  # fmt: skip
    assert {n: s.accelerated.answer for n, s in device.dtypes.items()} == expected
    assert device.matrix_units.answer is matrix
    assert recommend(device).dtype == dtype
    assert recommend(device).scaler is (dtype == "fp16")
    assert recommend(device).fp8 is (expected["fp8"] is True)


@pytest.mark.parametrize("row", DEVICES, ids=lambda row: row[0])
def test_every_fact_says_why_and_tf32_is_never_stored(row):
    device = device_of(described(*row[:4]))
    for support in device.dtypes.values():
        for fact in (support.storable, support.computable, support.accelerated):
            assert fact.why
            assert (fact.answer is None) == (fact.evidence == "unknown")
    assert device.dtypes["tf32"].storable.answer is False
    assert row[0] in device.describe()


def test_the_table_holds_sixty_devices_and_each_kind():
    assert len({row[:3] for row in DEVICES}) == len(DEVICES) > 60
    assert {row[1] for row in DEVICES} == set(KINDS)


# Storable and computable


def test_mps_has_no_fp64_and_an_xpu_says_so_itself():
    m1 = device_of(described("Apple M1", "mps")).dtypes
    assert [m1[name].storable.answer for name in ("fp64", "fp8", "bf16")] == [False, False, True]
    assert "macOS 14" in m1["bf16"].computable.why
    arc, maximum = (device_of(described("xpu", "xpu", "", has)) for has in (XMX, XMX_TF32))
    assert arc.dtypes["fp64"].computable.answer is False
    assert arc.dtypes["fp64"].accelerated.answer is False
    assert maximum.dtypes["fp64"].computable.answer is True


def test_the_table_and_the_probe_agree_on_this_processor():
    here = next(device for device in detect() if device.kind == "cpu")
    table = device_of(described(here.name, "cpu", features=AVX2))
    for name in set(DTYPES) - {"tf32"}:  # which is not tried
        for fact in ("storable", "computable"):
            tried, said = (getattr(d.dtypes[name], fact).answer for d in (here, table))
            assert tried == said, (name, fact)


@pytest.mark.parametrize(
    ("capability", "wheel"),
    [("3.7", None), ("5.0", "cu126"), ("7.0", "cu126"), ("7.5", ""), ("8.7", ""), ("12.1", "")],
)
def test_which_wheel_of_torch_has_code_for_a_card(capability, wheel):
    # pytorch/pytorch#178665: cu126 holds 5.0 to 9.0; #172663: CUDA 13 begins at 7.5.
    device = device_of(described("a card", "cuda", capability))
    assert device.dtypes["fp32"].computable.answer is (wheel is not None)
    recipe = recommend(device)
    if wheel == "cu126":
        assert recipe.code.startswith("# pip install torch --index-url https://download.pytorch")
        assert f"no code for {capability}" in recipe.reasons[0]
    else:
        assert "pip" not in recipe.code
    assert ("No current torch" in recipe.reasons[0]) is (wheel is None)


def test_bf16_on_turing_is_computed_though_not_accelerated():
    bf16 = device_of(described("Tesla T4", "cuda", "7.5")).dtypes["bf16"]
    assert (bf16.computable.answer, bf16.accelerated.answer) == (True, False)
    assert "through fp32" in bf16.computable.why


def test_a_trial_outweighs_the_table_for_two_facts_of_three():
    tried = {"fp16": Tried(storable=True, operations=("add",)), "bf16": Tried()}
    tried["fp8"] = Tried(trouble="the trial ended by signal 11")
    device = device_of(described("Tesla T4", "cuda", "7.5", tried=tried))
    fp16, bf16, fp8 = (device.dtypes[dtype] for dtype in ("fp16", "bf16", "fp8"))
    assert (fp16.storable.evidence, fp16.computable.why) == ("probe", "add")
    assert fp16.accelerated.evidence == "capability table"
    assert (bf16.storable.answer, bf16.computable.answer) == (False, False)
    assert (fp8.storable.answer, fp8.computable.answer) == (None, None)
    assert "signal 11" in fp8.computable.why


def test_a_trial_of_fp4_keeps_it_and_leaves_computing_to_the_table():
    tried = {"fp4": Tried(storable=True)}
    fp4 = device_of(described("NVIDIA B200", "cuda", "10.0", tried=tried)).dtypes["fp4"]
    assert (fp4.storable.evidence, fp4.computable.answer) == ("probe", True)
    assert fp4.computable.evidence == "capability table"


# What the reasons say


@pytest.mark.parametrize(
    ("name", "capability", "dtype", "said", "unsaid"),
    [
        ("NVIDIA GeForce RTX 4060", "8.9", "tf32", "same peak as FP32", None),
        ("NVIDIA L4", "8.9", "tf32", "from 8.0 on", "same peak"),
        ("NVIDIA GeForce RTX 4060", "8.9", "fp16", "half their rate", None),
        ("NVIDIA RTX A6000", "8.6", "fp16", "Tensor Cores", "half their rate"),
        ("Tesla T4", "7.5", "int8", "Tensor Cores take it", "dot products"),
        ("NVIDIA B200", "10.0", "int8", "Tensor Cores take it", "cut down"),
        ("NVIDIA B300 SXM6 AC", "10.3", "int8", "cut down", "dot products"),
        ("NVIDIA GeForce GTX 1660", "7.5", "int8", "without Tensor Cores", None),
        ("Tesla V100-SXM2-16GB", "7.0", "int8", "without Tensor Cores", None),
        ("NVIDIA H20", "9.0", "fp64", "1 TFLOP/s", None),
    ],
)
def test_a_reason_names_what_does_it(name, capability, dtype, said, unsaid):
    why = device_of(described(name, "cuda", capability)).dtypes[dtype].accelerated.why
    assert said in why
    assert unsaid is None or unsaid not in why


def test_rdna3_has_instructions_for_matrices_and_no_matrix_cores():
    for name in ("gfx1100", "gfx1151"):
        units = device_of(described("x", "rocm", name)).matrix_units
        assert units.answer is True
        assert "WMMA" in units.why and "vector ALUs" in units.why and "Cores" not in units.why


def test_tf32_of_a_geforce_is_not_sold_as_speed():
    geforce, l4 = (
        " ".join(recommend(device_of(described(name, "cuda", "8.9"))).reasons)
        for name in ("NVIDIA GeForce RTX 4060", "NVIDIA L4")
    )
    assert "its peak on a GeForce is that of FP32" in geforce
    assert "GeForce" not in l4


def test_a_mac_learner_is_told_what_autocast_takes():
    recipe = recommend(device_of(described("Apple M2 Pro", "mps")))
    said = " ".join(recipe.reasons)
    assert 'torch.autocast("mps")' in said and "at fp32's rate" in said


def test_a_capability_may_be_torchs_pair():
    pair, text = (Description(name="x", kind="cuda", capability=c) for c in ((9, 0), "9.0"))
    assert pair == text and device_of(pair) == device_of(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "tpu"}, "kind='tpu'"),
        ({"capability": "8"}, "like '8.6'"),
        ({"capability": (8,)}, "like '8.6'"),
        ({"capability": 8.6}, "like '8.6'"),
        ({"kind": "rocm"}, "like 'gfx942'"),
        ({"kind": "cpu"}, "empty"),
        ({"tried": {"fp12": Tried()}}, "fp12"),
    ],
)
def test_a_description_that_cannot_be(change, said):
    with pytest.raises(ValueError, match=said):
        Description(**({"name": "x", "kind": "cuda", "capability": "8.6"} | change))


@pytest.mark.parametrize("row", DEVICES, ids=lambda row: row[0])
def test_the_lines_to_paste_compile_and_name_what_is_recommended(row):
    recipe = recommend(device_of(described(*row[:4])))
    compile(recipe.code, row[0], "exec")
    assert ("GradScaler" in recipe.code) is recipe.scaler
    assert ("autocast" in recipe.code) is (recipe.dtype != "fp32")
    assert ('"tf32"' in recipe.code) is bool(recipe.tf32)
    assert "allow_tf32" not in recipe.code
    assert recipe.reasons


def test_injected_descriptions_start_no_process(monkeypatch):
    monkeypatch.setattr("subprocess.run", None)
    assert [d.name for d in detect([described("NVIDIA H100", "cuda", "9.0")])] == ["NVIDIA H100"]
