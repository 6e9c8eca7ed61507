"""The predictions of lab 03."""

from labkit.labs.engine import predict

LAB = "03_overflow_underflow_rounding"


triage = predict(
    "triage",
    lab=LAB,
    form=6,
    usual={
        (True,) * 6: (
            "Three of them stay ill with more exponent bits.",
            "nan-and-stall-are-one-illness",
        ),
        (False,) * 6: (
            "Three of them are cured by exponent bits alone.",
            "nan-and-stall-are-one-illness",
        ),
    },
)
masked_row = predict(
    "masked-row",
    lab=LAB,
    form="number",
    usual={
        0: ("-1e9 is -inf in FP16, and -inf - (-inf) is NaN.", "mask-constant-overflows"),
        0.33: ("So it is in float32. In FP16 -1e9 is -inf.", "mask-constant-overflows"),
        0.333: ("So it is in float32. In FP16 -1e9 is -inf.", "mask-constant-overflows"),
        1 / 3: ("So it is in float32. In FP16 -1e9 is -inf.", "mask-constant-overflows"),
        "inf": "The weights are a quotient; both of its parts went wrong.",
    },
)
late_upcast = predict(
    "late-upcast",
    lab=LAB,
    form="number",
    usual={
        131072: ("That is the exact sum. It met FP16 before the cast.", "upcast-too-late"),
        65504: ("FP16 rounds to inf from 65520 on; it does not stop at max.", "overflow-saturates"),
    },
)
torch_sum = predict(
    "torch-sum",
    lab=LAB,
    form="number",
    usual={
        256: (
            "A loop of adds stops there. `sum` keeps its running sum in float32.",
            "sum-adds-in-its-dtype",
        ),
        10000: "The float32 sum was exact. Then it became a BF16 value, and 10000 is none.",
    },
)
remedies = predict(
    "remedies",
    lab=LAB,
    form=5,
    usual={(True,) * 5: "Three of them cure nothing.", (False,) * 5: "Two of them work."},
)
