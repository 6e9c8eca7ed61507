"""The predictions of lab 08."""

from labkit.labs.engine import NumberGuess, TickGuess

LAB = "08_fp8_and_fp4"

wrong_scale = NumberGuess(
    id="wrong-scale",
    lab=LAB,
    question="The scale is 100 times too small. What is the SQNR in dB? (The right scale: 31.5.)",
    unit="dB",
    slack=2,
    by_number={
        (-40, 10): (
            "That is what INT8 does: its steps are equal, so a scale that is 100 times too small "
            "costs 40 dB. A float's steps shrink with the value.",
            "headroom-costs-bits-in-floats",
        ),
        (10, 24): (
            "Precision is lost only where values become subnormal. E4M3's normal values span 15 "
            "powers of two, and the scale moves the tensor down by fewer than 7."
        ),
        (24, 27): "25.6 dB is what E5M2 has with any of these scales: it has one bit less.",
    },
    otherwise="A scale that is too small cannot raise precision above that of the right scale.",
)
stochastic_once = NumberGuess(
    id="stochastic-once",
    lab=LAB,
    question="What is the SQNR in dB of one stochastic cast to NVFP4? (To nearest: 21.3.)",
    unit="dB",
    slack=1,
    by_number={
        (20.8, 21.8): (
            "Both choose one of the same two neighbours, but stochastic rounding often takes the "
            "one further away."
        ),
        (21.8, 80): (
            "No choice of a neighbour has a smaller error than the nearest one. Only the mean of "
            "many stochastic casts is closer.",
            "stochastic-rounding-is-more-precise",
        ),
        (-20, 12): (
            "The error is never more than one step of the format, where nearest has half a step: "
            "this costs a few dB, not ten."
        ),
    },
    otherwise="It costs a few dB: the further neighbour is chosen often, but it is a neighbour.",
)
rotation = TickGuess(
    id="rotation",
    lab=LAB,
    question="Which casts to four bits have a higher SQNR with the rotation than without it?",
    by_item={
        "one scale": "Rotation makes the largest magnitude smaller, and so the one scale finer.",
        "MXFP4": "The floor rule clips largest values by up to a quarter. Rotation spreads that.",
        "NVFP4": (
            "Each block's largest value lands almost exactly on 6 and is stored almost without "
            "error. Rotation mixes it with 15 others, so none of them is."
        ),
    },
    by_pattern={
        (True, True, True): (
            "Rotation makes outliers smaller, but NVFP4's block scale stores an outlier almost "
            "exactly already.",
            "rotation-always-helps",
        ),
        (False, False, False): (
            "A rotation loses nothing by itself and is undone exactly. It changes what the cast "
            "sees: the largest values become smaller."
        ),
    },
)
