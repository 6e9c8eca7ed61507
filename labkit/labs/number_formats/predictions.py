"""The predictions of lab 02."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "02_number_formats"

step_at_2048 = NumberGuess(
    id="step-at-2048",
    lab=LAB,
    question="What is 2048 + 1 in FP16?",
    by_number={
        2049: (
            "FP16 holds no odd integer above 2048. The section on gaps shows why.",
            "integers-always-exact",
        ),
        2050: (
            "2049 lies midway between the FP16 values 2048 and 2050. The tie goes to the even "
            "mantissa, which is that of 2048."
        ),
        "inf": (
            "65504, the largest value, is far away. The sum is finite; what is missing is a value "
            "between 2048 and 2050."
        ),
        "nan": "NaN stands for a result that does not exist, such as inf - inf. This sum exists.",
    },
    otherwise="The FP16 values around the exact sum, 2049, are 2048 and 2050. It is one of them.",
)
below_one = NumberGuess(
    id="below-one",
    lab=LAB,
    question="Of the positive finite values of FP16, how many percent are below 1?",
    unit="%",
    slack=1,  # 48.4 %, and whole percent are asked for
    by_number={
        (0, 10): (
            "Below 1 lie 14 intervals from one power of two to the next, with 1024 values each, "
            "and 1023 subnormals: 15,359 of 31,743 values.",
            "range-is-spread-evenly",
        ),
        (10, 47): (
            "There are more: below 1 lie 14 intervals from one power of two to the next, with 1024 "
            "values each, and 1023 subnormals. At 1 and above lie 16 intervals."
        ),
        (49, 51): (
            "Nearly: 16 intervals from one power of two to the next lie at 1 and above, and 14 "
            "with 1023 subnormals below it."
        ),
        (51, 100): (
            "There are fewer: below 1 lie 14 intervals from one power of two to the next, with "
            "1024 values each, and 1023 subnormals. At 1 and above lie 16 intervals."
        ),
    },
    otherwise="A share lies between 0 and 100 %.",
)
near_the_top = NumberGuess(
    id="near-the-top",
    lab=LAB,
    question="What does `torch.tensor(65519.0).half()` give?",
    by_number={
        "inf": (
            "65519 is nearer to 65504 than to 65536, where the next value would be.",
            "overflow-starts-at-max",
        ),
        65519: (
            "Up there the values of FP16 are 32 apart, and 65519 is none of them.",
            "integers-always-exact",
        ),
        65536: "65536 is beyond the largest value, and 65519 is nearer to 65504.",
        "nan": "A cast gives NaN for NaN only.",
    },
    otherwise="Up there the values of FP16 are 32 apart: 65472, then 65504, which is the largest.",
)
loses_most = ChoiceGuess(
    id="loses-most",
    lab=LAB,
    question="Which of the three tensors loses the largest share of its values to zero in FP16?",
    by_choice={
        "weights": (
            "The smallest of these weights is about 2**-16. FP16 holds it, as a subnormal."
        ),
        "activations": (
            "An activation may be as large as 65504. Only values below 2**-25 become 0, and no "
            "activation here is so small, except those that were 0 before."
        ),
        "gradients": "",
    },
)
published = TickGuess(
    id="published",
    lab=LAB,
    question="Articles say these six sentences of number formats. Tick those that are right.",
    by_item={
        "BF16 is IEEE 754's binary16.": (
            "The two store 0.1 in different bits: 0x2E66 in binary16, 0x3DCD in BF16.",
            "bf16-is-binary16",
        ),
        (
            "FP16 ends at 65504 and E5M2 at 57344, so their dynamic ranges, subnormals included, "
            "are about the same."
        ): (
            "The range has a lower end too. FP16 has eight more mantissa bits, so its subnormals "
            "reach 2**8 times further down: 40 octaves against 32."
        ),
        "BF16 has exactly the range of FP32.": (
            "The exponents are the same, the range is not exactly so: 3.4e38 is finite in FP32 and "
            "inf in BF16, and the subnormals of FP32 reach further down.",
            "bf16-range-equals-fp32",
        ),
        "Every integer from 0 to 2048 passes through FP16 unchanged.": (
            "It holds: up to 2048 the gap of FP16 is at most 1."
        ),
        "BF16 is less precise than FP16, so its range is smaller.": (
            "Mantissa bits give precision, exponent bits give range. BF16 has fewer of the first "
            "and more of the second: it spans 261 octaves, FP16 40.",
            "fewer-bits-smaller-range",
        ),
        "E4M3, as the Open Compute Project defines it, has no inf.": (
            "It holds: E4M3 uses the codes that IEEE 754 keeps for inf as numbers, and one "
            "mantissa for NaN."
        ),
    },
)
