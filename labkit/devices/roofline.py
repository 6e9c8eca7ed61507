"""The roofline: what bounds a piece of work on a device, and how long it takes at least.

Work is FLOP and bytes. A device computes and moves bytes at the same time, each at its peak rate,
so the least time is that of the slower of the two. Peaks are dense, those of the units that
multiply matrices fastest, and a figure that was not read in the vendor's own document says so.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass

from labkit.base.home import DATA
from labkit.formats.dtypes import DTYPE_NAMED


@dataclass(frozen=True)
class Roof:
    """Two rates of a device: how fast it computes in a dtype, and how fast it moves memory.

    Args:
        device, dtype: whose, and in what.
        flops: the peak, dense, in FLOP/s; of int8 in operations/s.
        bandwidth: in bytes/s.
        source: where both come from.
        verified: were they measured here, or read in the vendor's own document?

    Raises:
        ValueError: a rate is not above 0.

    >>> a100 = Roof("A100", "fp16", 312e12, 1555e9)
    >>> round(a100.ridge)
    201
    >>> a100.bound(flop=2 * 4096**3, bytes_moved=3 * 2 * 4096**2)
    'compute'
    """

    device: str
    dtype: str
    flops: float
    bandwidth: float
    source: str = ""
    verified: bool = False

    def __post_init__(self) -> None:
        if not (self.flops > 0 and self.bandwidth > 0):
            raise ValueError(
                f"flops={self.flops!r}, bandwidth={self.bandwidth!r}: both must be above 0"
            )

    @property
    def ridge(self) -> float:
        """The arithmetic intensity, in FLOP a byte, from which on computing is the bound."""
        return self.flops / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """FLOP/s at most at an arithmetic intensity in FLOP a byte."""
        return min(self.flops, intensity * self.bandwidth)

    def bound(self, *, flop: float, bytes_moved: float) -> str:
        """ "compute" or "memory", whichever takes longer; "compute" where both take the same."""
        return "compute" if flop / self.flops >= bytes_moved / self.bandwidth else "memory"

    def seconds(self, *, flop: float, bytes_moved: float) -> float:
        """The least time that the work takes."""
        return max(flop / self.flops, bytes_moved / self.bandwidth)


def matmul_work(m: int, n: int, k: int, dtype: str) -> tuple[int, float]:
    """FLOP and least bytes of an (m, k) by (k, n) product: read both once, write the result once.

    The result has the dtype of the operands, or bf16 where that is fp8 or fp4, int32 where it is
    int8.

    Raises:
        ValueError: a size below 1, or a dtype without a size.
    """
    if min(m, n, k) < 1:
        raise ValueError(f"sizes {(m, n, k)}: whole numbers from 1 on")
    sizes = {name: row.bytes for name, row in DTYPE_NAMED.items() if row.format or name == "int8"}
    if dtype not in sizes:
        raise ValueError(f"dtype={dtype!r}: one of {', '.join(sizes)}")
    each = sizes[dtype]
    result = 4 if dtype == "int8" else max(each, 2)
    return 2 * m * n * k, each * (m * k + k * n) + result * m * n


def roofs(dtype: str, *, devices: Iterable[str] | None = None) -> list[Roof]:
    """The devices of data/gpus.csv that have a published dense peak for the dtype, by file order.

    Args:
        dtype: "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4" or "int8".
        devices: names of the file; None for all of them.

    Raises:
        ValueError: a dtype without a column; a name that the file has not.
    """
    rows = _rows()
    columns = {name.split("_")[0]: name for name in rows[0] if name.endswith(("_tflops", "_tops"))}
    if dtype not in columns:
        raise ValueError(f"dtype={dtype!r}: the file has {', '.join(columns)}")
    column = columns[dtype]
    names = [row["device"] for row in rows]
    if unknown := [name for name in devices or () if name not in names]:
        raise ValueError(f"devices={unknown}: the file has {', '.join(names)}")
    wanted = names if devices is None else list(devices)
    return [
        Roof(
            device=row["device"],
            dtype=dtype,
            flops=float(row[column]) * 1e12,
            bandwidth=float(row["bandwidth_gb_s"]) * 1e9,
            source=row["source"],
            verified=row["verification"] == "read",
        )
        for row in rows
        if row["device"] in wanted and row[column]
    ]


def _rows() -> list[dict[str, str]]:
    with (DATA / "gpus.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
