"""The predictions of lab 02."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "02_number_formats"

step_at_2048 = NumberGuess(
    id="step-at-2048",
    lab=LAB,
    question="What is 2048 + 1 in FP16?",
    by_number={
        2049: (
            "FP16 has no odd integer above 2048. The exact sum, 2049, must be rounded to 2048 "
            "or 2050.",
            "integers-always-exact",
        ),
        2050: (
            "2049 lies halfway between the FP16 values 2048 and 2050. Such a tie goes to the value "
            "whose mantissa field is even, and that is 2048."
        ),
        "inf": ("The largest FP16 value is 65504, so a sum near 2048 does not overflow."),
        "nan": "NaN is the result of an operation that has no answer, such as inf - inf. This sum "
        "has one.",
    },
    otherwise="The result is one of the two FP16 values next to the exact sum: 2048 or 2050.",
)
below_one = NumberGuess(
    id="below-one",
    lab=LAB,
    question="What percentage of the positive finite FP16 values are below 1?",
    unit="%",
    slack=1,  # 48.4 %, and whole percent are asked for
    by_number={
        (0, 10): (
            "The values are not evenly spread from 0 to 65504. Each interval from one power of two "
            "to the next holds 1024 of them, and 14 such intervals lie below 1.",
            "range-is-spread-evenly",
        ),
        (10, 47): (
            "There are more. 14 intervals from one power of two to the next lie below 1, and 16 "
            "lie above. Each holds 1024 values, and below 1 there are 1023 subnormals besides."
        ),
        (49, 51): (
            "Nearly. 14 intervals from one power of two to the next lie below 1, with 1023 "
            "subnormals besides, and 16 lie above. So it is a little less than half."
        ),
        (51, 100): (
            "There are fewer. 14 intervals from one power of two to the next lie below 1, with "
            "1023 subnormals besides, and 16 lie above. Each interval holds 1024 values."
        ),
    },
    otherwise="A percentage lies between 0 and 100.",
)
near_the_top = NumberGuess(
    id="near-the-top",
    lab=LAB,
    question="What does `torch.tensor(65519.0).half()` give?",
    by_number={
        "inf": (
            "65519 lies above the largest value, but the cast rounds first. 65519 is nearer to "
            "65504 than to 65536, where the next value would be.",
            "overflow-starts-at-max",
        ),
        65519: (
            "Near 65504 the FP16 values are 32 apart, and 65519 is not one of them.",
            "integers-always-exact",
        ),
        65536: "65536 is no FP16 value: the largest is 65504. And 65519 is nearer to 65504.",
        "nan": "A cast to FP16 returns NaN only if its input is NaN.",
    },
    otherwise="Near the top the FP16 values are 32 apart: 65472, then 65504, the largest.",
)
loses_most = ChoiceGuess(
    id="loses-most",
    lab=LAB,
    question="Which of the three tensors loses the largest share of its values to zero in FP16?",
    by_choice={
        "weights": (
            "The smallest of these weights is about 2**-16, or 1.5e-5. FP16 holds it as a "
            "subnormal."
        ),
        "activations": (
            "Only nonzero values of at most 2**-25, about 3e-8, become 0. The activations of this "
            "layer are either exactly 0 before the cast or much larger than that."
        ),
        "gradients": "",
    },
)
published = TickGuess(
    id="published",
    lab=LAB,
    question="Which of these six statements about number formats are right?",
    by_item={
        "BF16 is IEEE 754's binary16.": (
            "The two store 0.1 in different bits: 0x2E66 in binary16, 0x3DCD in BF16.",
            "bf16-is-binary16",
        ),
        (
            "FP16 ends at 65504 and E5M2 at 57344, so their dynamic ranges, subnormals included, "
            "are about the same."
        ): (
            "Their normal ranges are about the same. But FP16 has eight more mantissa bits, so its "
            "subnormals reach further down by 2**8: a factor of 2**40 against 2**32."
        ),
        "BF16 has exactly the range of FP32.": (
            "It is nearly the range of FP32. But 3.4e38 is finite in FP32 and inf in BF16, and the "
            "subnormals of FP32 reach further down.",
            "bf16-range-equals-fp32",
        ),
        "Every integer from 0 to 2048 passes through FP16 unchanged.": (
            "It is right: up to 2048 the gap of FP16 is at most 1."
        ),
        "BF16 is less precise than FP16, so its range is smaller.": (
            "Mantissa bits determine the precision and exponent bits the range. BF16 has fewer of "
            "the first and more of the second: it spans a factor of 2**261, FP16 one of 2**40.",
            "fewer-bits-smaller-range",
        ),
        "E4M3, as the Open Compute Project defines it, has no inf.": (
            "It is right: E4M3 uses the codes that IEEE 754 would reserve for inf as numbers."
        ),
    },
)
