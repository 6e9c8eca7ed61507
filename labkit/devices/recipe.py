"""Which precision to train in on a device, with the reasons and the lines of code.

A recipe follows from the three facts of ``labkit.devices.rules``. It recommends what is
accelerated, BF16 before FP16 because BF16 needs no loss scale, and it says "measure" where nobody
published an answer.
"""

from dataclasses import dataclass

from labkit.devices.rules import Device, is_geforce, wheel_for
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
        code: the lines to paste, complete; the first says which wheel of torch they need, where
            the default one has no code for the device.
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
    wheel = wheel_for(device.capability) if device.kind == "cuda" else ""
    reasons = [_WHEEL[wheel is None].format(device.capability)] if wheel != "" else []
    if has["bf16"]:
        dtype = "bf16"
        reasons.append(f"BF16 is accelerated: {device.dtypes['bf16'].accelerated.why}.")
        reasons.append("BF16 has the exponents of FP32: no loss scale.")
    elif has["fp16"] and device.matrix_units.answer:
        dtype = "fp16"
        reasons.append(f"FP16 is accelerated: {device.dtypes['fp16'].accelerated.why}.")
        reasons.append(_why_not_bf16(device))
        reasons.append("FP16 ends at 65504 and at 2**-24: scale the loss.")
    else:
        dtype = "fp32"
        reasons.append(_why_fp32(device))
    tf32 = has["tf32"] if device.kind in ("cuda", "rocm") else None
    if tf32 and is_geforce(device.name):
        reasons.append(
            "TF32 is accelerated, but its peak on a GeForce is that of FP32: let the float32 "
            "products that remain use it if that measures faster."
        )
    elif tf32:
        reasons.append("TF32 is accelerated: let the float32 products that remain use it.")
    if device.kind == "mps" and dtype == "fp32":
        reasons.append('To try it: torch.autocast("mps") takes torch.float16 and torch.bfloat16.')
    if has["fp8"]:
        reasons.append("FP8 is accelerated: try it where large linear layers take the time.")
    code = _code(device.kind, dtype, tf32=bool(tf32))
    return Recipe(
        dtype=dtype,
        scaler=dtype == "fp16",
        tf32=tf32,
        fp8=bool(has["fp8"]),
        reasons=tuple(reasons),
        code=f"# pip install torch --index-url {wheel}\n{code}" if wheel else code,
    )


_WHEEL = {
    False: "The default wheels of torch have no code for {}: install one of CUDA 12.6, built for "
    "torch up to 2.14.",
    True: "No current torch has code for {}: use the processor.",
}


def _why_not_bf16(device: Device) -> str:
    bf16 = device.dtypes["bf16"].accelerated
    if bf16.answer is None:
        return f"Whether BF16 is, is unknown ({bf16.why}): it needs no loss scale."
    return f"BF16 is not: {bf16.why}."


def _why_fp32(device: Device) -> str:
    fp16, bf16 = (device.dtypes[dtype].accelerated for dtype in ("fp16", "bf16"))
    if fp16.answer:
        return (
            f"FP16 is accelerated ({fp16.why}), but no matrix unit multiplies it: AMP saves memory "
            "here; measure before you expect time."
        )
    if None in (fp16.answer, bf16.answer):
        return f"Whether 16 bits are accelerated is unknown ({fp16.why}): measure."
    return f"No 16-bit dtype is accelerated: {fp16.why}."


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
