"""The one table of dtypes, beside torch's and ml_dtypes' own figures."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch

from labkit.devices import DTYPES
from labkit.formats.dtypes import DTYPE_NAMED, dtype_of, format_of, name_of

ROWS = list(DTYPE_NAMED.values())
FLOATS = [row for row in ROWS if row.format]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.short)
def test_the_bytes_are_those_that_torch_takes(row):
    values_an_element = 2 if row.short == "fp4" else 1
    assert row.bytes * values_an_element == row.torch.itemsize
    assert type(row.bytes) is (float if row.short == "fp4" else int)


@pytest.mark.parametrize("row", FLOATS, ids=lambda row: row.short)
def test_the_format_has_the_range_of_the_dtype(row):
    if row.short == "fp4":
        numpys = ml_dtypes.finfo(ml_dtypes.float4_e2m1fn)
    elif row.short == "tf32":  # the range of float32; its gap is that of fp16
        assert (row.format.smallest_normal, row.format.eps) == (
            torch.finfo(torch.float32).tiny,
            torch.finfo(torch.float16).eps,
        )
        return
    else:
        numpys = torch.finfo(row.torch)
    assert (row.format.max, row.format.eps) == (float(numpys.max), float(numpys.eps))
    assert row.format.smallest_normal == float(numpys.tiny)
    assert row.format.storage_bits == 8 * row.bytes


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.short)
def test_a_torch_dtype_leads_back_to_its_row(row):
    assert name_of(row.torch) == row.name == str(row.torch)[len("torch.") :]
    assert dtype_of(row.torch) == (DTYPE_NAMED["fp32"] if row.short == "tf32" else row)


def test_the_hardware_speaks_of_these_dtypes():
    assert set(DTYPES) <= set(DTYPE_NAMED)


def test_a_dtype_outside_the_table_is_named_with_those_inside():
    with pytest.raises(ValueError, match=r"torch\.complex64: one of float64, float32, float16"):
        dtype_of(torch.complex64)
    with pytest.raises(ValueError, match=r"torch\.int8: integers"):
        format_of(torch.int8)


def test_what_is_no_dtype_keeps_its_own_words():
    assert name_of(3) == "3"
    assert name_of(np.dtype("float16")) == "float16"


def test_the_table_does_not_load_torch():
    code = "import sys, labkit.formats.dtypes, labkit.devices.recipe; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
