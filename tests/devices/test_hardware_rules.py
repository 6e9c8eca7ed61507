"""What the rules say of devices that nobody here has."""

import pytest

from labkit.devices import DTYPES, Description, Tried, detect, device_of, recommend

XMX = frozenset({"has_fp16", "has_subgroup_matrix_multiply_accumulate"})
XMX_TF32 = XMX | {"has_subgroup_matrix_multiply_accumulate_tensor_float32", "has_fp64"}
AVX2 = frozenset({"fma", "avx2"})
ZEN4 = AVX2 | {"avx512f", "avx512_bf16", "avx512_vnni"}
SAPPHIRE_RAPIDS = ZEN4 | {"avx512_fp16", "amx_tile", "amx_bf16", "amx_int8"}
GRANITE_RAPIDS = SAPPHIRE_RAPIDS | {"amx_fp16"}
DIAMOND_RAPIDS = GRANITE_RAPIDS | {"amx_fp8", "amx_tf32"}
GRAVITON2 = frozenset({"fp", "asimd", "asimdhp", "asimddp"})
GRAVITON3 = GRAVITON2 | {"bf16", "i8mm", "sve"}
M1_CORES = frozenset({"FEAT_FP16", "FEAT_DotProd"})
M4_CORES = M1_CORES | {"FEAT_BF16", "FEAT_I8MM", "FEAT_SME"}

# name, kind, capability, features; what is accelerated besides fp32 (a ? for unknown), whether
# there are matrix units, and the recommended dtype. Sources: CUDA C++ Programming Guide (compute
# capabilities, arithmetic throughput), NVIDIA's whitepapers, AMD's and Intel's product pages.
DEVICES = [
    ("Tegra X1", "cuda", "5.3", None, "fp16", False, "fp32"),
    ("Tesla P100-SXM2-16GB", "cuda", "6.0", None, "fp16", False, "fp32"),
    ("NVIDIA GeForce GTX 1080", "cuda", "6.1", None, "int8", False, "fp32"),
    ("Tesla V100-SXM2-16GB", "cuda", "7.0", None, "fp16 int8", True, "fp16"),
    ("Tesla T4", "cuda", "7.5", None, "fp16 int8", True, "fp16"),
    ("NVIDIA GeForce GTX 1660", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
    ("NVIDIA GeForce GTX 1650 SUPER", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
    ("Quadro T1000", "cuda", "7.5", None, "fp16 int8", False, "fp32"),
    ("NVIDIA GeForce RTX 2080", "cuda", "7.5", None, "fp16 int8", True, "fp16"),
    ("NVIDIA GeForce RTX 3090", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
    ("NVIDIA A10", "cuda", "8.6", None, "tf32 fp16 bf16 int8", True, "bf16"),
    ("NVIDIA A100-SXM4-40GB", "cuda", "8.0", None, "fp64 tf32 fp16 bf16 int8", True, "bf16"),
    ("NVIDIA GeForce RTX 4090", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("NVIDIA L4", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("NVIDIA L40S", "cuda", "8.9", None, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("NVIDIA H100", "cuda", "9.0", None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("NVIDIA H200", "cuda", "9.0", None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("NVIDIA B200", "cuda", "10.0", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
    ("NVIDIA GeForce RTX 5090", "cuda", "12.0", None, "tf32 fp16 bf16 fp8 fp4 int8", True, "bf16"),
    ("AMD Instinct MI250X", "rocm", "gfx90a", None, "fp64 fp16 bf16 int8", True, "bf16"),
    ("AMD Instinct MI300X", "rocm", "gfx942", None, "fp64 tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("AMD Instinct MI355X", "rocm", "gfx950", None, "fp16 bf16 fp8 fp4 int8", True, "bf16"),
    ("AMD Radeon RX 7900 XTX", "rocm", "gfx1100", None, "fp16 bf16 int8", True, "bf16"),
    ("Intel Arc A770", "xpu", "", XMX, "fp16 bf16 int8 fp64? fp8? fp4?", True, "bf16"),
    ("Intel Max 1550", "xpu", "", XMX_TF32, "tf32 fp16 bf16 int8 fp64? fp8? fp4?", True, "bf16"),
    ("Intel Iris Xe", "xpu", "", frozenset(), "fp64? fp8? fp4?", False, "fp32"),
    ("Apple M1", "mps", "", None, "fp16? bf16? fp8? fp4? int8?", None, "fp32"),
    ("Apple M4", "mps", "", None, "fp16? bf16? fp8? fp4? int8?", None, "fp32"),
    ("Apple M1 cores", "cpu", "", M1_CORES, "fp16 int8", False, "fp32"),
    ("Apple M4 cores", "cpu", "", M4_CORES, "fp16 bf16 int8", True, "bf16"),
    ("Intel Core i5-8250U", "cpu", "", AVX2, "", False, "fp32"),
    ("AMD EPYC 9654", "cpu", "", ZEN4, "bf16 int8", False, "bf16"),
    ("Intel Xeon 8480+", "cpu", "", SAPPHIRE_RAPIDS, "fp16 bf16 int8", True, "bf16"),
    ("Intel Xeon 6980P", "cpu", "", GRANITE_RAPIDS, "fp16 bf16 int8", True, "bf16"),
    ("Diamond Rapids", "cpu", "", DIAMOND_RAPIDS, "tf32 fp16 bf16 fp8 int8", True, "bf16"),
    ("Graviton2", "cpu", "", GRAVITON2, "fp16 int8", False, "fp32"),
    ("Graviton3", "cpu", "", GRAVITON3, "fp16 bf16 int8", False, "bf16"),
    ("no list", "cpu", "", None, "tf32? fp16? bf16? fp8? int8?", None, "fp32"),
    ("a gfx of tomorrow", "rocm", "gfx1300",
     None, "fp64? tf32? fp16? bf16? fp8? fp4? int8?", None, "fp32"),
]  # fmt: skip


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


def test_mps_has_no_fp64_and_an_xpu_says_so_itself():
    assert device_of(described("Apple M1", "mps")).dtypes["fp64"].storable.answer is False
    arc, maximum = (device_of(described("xpu", "xpu", "", has)) for has in (XMX, XMX_TF32))
    assert arc.dtypes["fp64"].computable.answer is False
    assert maximum.dtypes["fp64"].computable.answer is True


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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "tpu"}, "kind='tpu'"),
        ({"capability": "8"}, "like '8.6'"),
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
