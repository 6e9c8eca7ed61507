"""Checks of the bank's code questions on number formats."""

import torch

from labkit.labs.engine import Mistake, calls, check, number

LAB = "interview"

OTHER_CODE = (
    "`{call}` is {got}; 0x{want:04X} is wanted. The lower half is 0x{low:04X}, the upper half is "
    "{parity}."
)

_CODES = [
    0x00000000, 0x80000000, 0x3F800000, 0x3F800001, 0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000,
    0x3F82C000, 0x3FFF8000, 0x3DCCCCCD, 0xBDCCCCCD, 0xBF818000, 0xBF828000, 0x40490FDB, 0x402DF854,
    0x00000001, 0x00008000, 0x00018000, 0x007FFFFF, 0x7F7F0000, 0x7F7F7FFF, 0x7F7FFFFF, 0xFF7FFFFF,
]  # fmt: skip


def _by_torch(code: int) -> int:
    """The BF16 code that torch's cast from float32 gives."""
    signed = code - 2**32 if code >> 31 else code
    cast = torch.tensor([signed], dtype=torch.int32).view(torch.float32).bfloat16()
    return cast.view(torch.int16).item() % 2**16


@check(calls(_CODES), bits=True)
def check_bf16_code(codes):
    """Every float32 code becomes the BF16 code of torch's cast: ties, subnormals and the end."""
    for code, got in zip(_CODES, codes, strict=True):
        call = f"bf16_code(0x{code:08X})"
        got, want = number(got, call=call), _by_torch(code)
        if got != want:
            raise Mistake(
                OTHER_CODE,
                call=call,
                got=f"0x{int(got):04X}" if got.is_integer() and got >= 0 else got,
                want=want,
                low=code & 0xFFFF,
                parity="odd" if code >> 16 & 1 else "even",
            )


@check_bf16_code.wrong(
    "casts-truncate",
    "You keep the upper half as it is. What does the lower half say about the nearest value?",
)
def _(code):
    return code >> 16


@check_bf16_code.wrong(
    "ties-go-up", "At a lower half of 0x8000 the even upper half wins. Where do your ties go?"
)
def _(code):
    return (code + 0x8000) >> 16
