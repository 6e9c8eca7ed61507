"""Which precision to train in on a device, with the reasons and the lines of code.

A recipe follows from the three facts of ``labkit.devices.rules``. It recommends what is
accelerated, BF16 before FP16 because BF16 needs no loss scale, and it says "measure" where nobody
published an answer.
"""

from dataclasses import dataclass

from labkit.devices.rules import Device
from labkit.formats.dtypes import DTYPE_NAMED


@dataclass(frozen=True)
class Recipe:
    """What to ask for on a device.

    Args:
        dtype: what autocast computes in: "bf16", "fp16", or "fp32" for no autocast.
        scaler: does the loss need a scale?
        tf32: may float32 products be TF32? None where the device has no such switch.
        fp8: are FP8 products worth a trial, by a library made for them?
        reasons: a sentence each.
        code: the lines to paste, complete.
    """

    dtype: str
    scaler: bool
    tf32: bool | None
    fp8: bool
    reasons: tuple[str, ...]
    code: str


def recommend(device: Device) -> Recipe:
    """The recipe for a device, from its three facts.

    >>> from labkit.devices import Description, device_of
    >>> t4 = device_of(Description(name="Tesla T4", kind="cuda", capability="7.5"))
    >>> recommend(t4).dtype, recommend(t4).scaler
    ('fp16', True)
    """
    has = {dtype: support.accelerated.answer for dtype, support in device.dtypes.items()}
    reasons = []
    if has["bf16"]:
        dtype = "bf16"
        reasons.append(f"BF16 is accelerated: {device.dtypes['bf16'].accelerated.why}.")
        reasons.append("BF16 has the exponents of FP32: no loss scale.")
    elif has["fp16"] and device.matrix_units.answer:
        dtype = "fp16"
        reasons.append(f"FP16 is accelerated: {device.dtypes['fp16'].accelerated.why}.")
        reasons.append(f"BF16 is not: {device.dtypes['bf16'].accelerated.why}.")
        reasons.append("FP16 ends at 65504 and at 2**-24: scale the loss.")
    else:
        dtype = "fp32"
        reasons.append(_why_fp32(device))
    tf32 = has["tf32"] if device.kind in ("cuda", "rocm") else None
    if tf32:
        reasons.append("TF32 is accelerated: let the float32 products that remain use it.")
    if has["fp8"]:
        reasons.append("FP8 is accelerated: try it where large linear layers take the time.")
    return Recipe(
        dtype=dtype,
        scaler=dtype == "fp16",
        tf32=tf32,
        fp8=bool(has["fp8"]),
        reasons=tuple(reasons),
        code=_code(device.kind, dtype, tf32=bool(tf32)),
    )


def _why_fp32(device: Device) -> str:
    answers = [device.dtypes[dtype].accelerated for dtype in ("fp16", "bf16")]
    if any(fact.answer for fact in answers):
        return (
            "FP16 is fast in pairs, but nothing multiplies matrices of it: AMP saves memory here; "
            "measure before you expect time."
        )
    if any(fact.answer is None for fact in answers):
        return f"Whether 16 bits are accelerated is unknown ({answers[0].why}): measure."
    return f"No 16-bit dtype is accelerated: {answers[0].why}."


def _code(kind: str, dtype: str, *, tf32: bool) -> str:
    device = "cuda" if kind == "rocm" else kind
    lines = []
    if tf32:
        lines += [
            'torch.backends.cuda.matmul.fp32_precision = "tf32"',
            'torch.backends.cudnn.conv.fp32_precision = "tf32"',
        ]
    if dtype == "fp16":
        lines.append(f'scaler = torch.amp.GradScaler("{device}")')
    lines += ["for inputs, targets in batches:", "    optimizer.zero_grad()"]
    forward = "loss = loss_fn(model(inputs), targets)"
    if dtype == "fp32":
        lines += [f"    {forward}"]
    else:
        autocast = f'torch.autocast("{device}", dtype=torch.{DTYPE_NAMED[dtype].name})'
        lines += [f"    with {autocast}:", f"        {forward}"]
    if dtype == "fp16":
        lines += [
            "    scaler.scale(loss).backward()",
            "    scaler.step(optimizer)",
            "    scaler.update()",
        ]
    else:
        lines += ["    loss.backward()", "    optimizer.step()"]
    return "\n".join(lines)
