"""The predictions of lab 06."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "06_hardware_and_benchmarks"

gtx_1660 = TickGuess(
    id="gtx-1660",
    lab=LAB,
    question=("A GTX 1660 is a card of 2019 with compute capability 7.5. Tick what is true of it."),
    by_item={
        "it has Tensor Cores": (
            "Cards of capability 7.5 exist with Tensor Cores and without. The GTX 16 series has "
            "none.",
            "capability-7-means-tensor-cores",
        ),
        "it stores BF16": "Memory holds bytes, whatever they mean.",
        "it computes BF16": (
            "torch computes BF16 there through float32, slowly.",
            "no-units-means-not-computable",
        ),
        "it accelerates BF16": "No unit of this chip takes BF16.",
    },
)
small_matmul = ChoiceGuess(
    id="small-matmul",
    lab=LAB,
    question=(
        "Two 512 x 512 matrices in FP16 are multiplied on the H100. What is the bound: its units, "
        "or its memory of 3.35 TB/s?"
    ),
    by_choice={
        "compute": (
            "At this size 3 x 2 bytes are moved for every 2 x 512 FLOP: too few for the units.",
            "time-is-flop-over-peak",
        ),
        "memory": "",
    },
)
amdahl = NumberGuess(
    id="amdahl",
    lab=LAB,
    question="How many times as fast is the step? Two digits after the point.",
    slack=0.01,  # 1 / 0.65 is 1.538...: 1.53 and 1.54 both come from the right sum
    by_number={
        2: ("30 % of the step is as slow as before.", "a-fast-part-is-a-fast-whole"),
        1.7: (
            "Speed-ups do not average by share; times add up: 0.3 + 0.7 / 2.",
            "speed-ups-average",
        ),
        1.4: ("0.7 times 2 is no time. What remains is 0.3 + 0.7 / 2.", "speed-ups-average"),
        1.35: "0.35 of the time is saved. The speed-up is the old time over the new one: 1 / 0.65.",
        0.65: "That is the time that remains. The speed-up is the old time over it: 1 / 0.65.",
        0.35: "That is the time saved. The speed-up is the old time over the new one: 1 / 0.65.",
        (1.48, 1.6): "Nearly: 1 / (0.3 + 0.7 / 2).",
    },
    otherwise="Add up what remains of the time: 0.3 + 0.7 / 2. The speed-up is 1 over it.",
)
launches = NumberGuess(
    id="launches",
    lab=LAB,
    question="What does this timer read?",
    unit="ms",
    slack=0.02,  # the launch alone: "0" and "almost nothing" are that too
    by_number={
        (1.9, 2.1): (
            "The device is busy for 2 ms. The clock was read before it was done.",
            "a-call-that-returned-is-done",
        ),
    },
    otherwise="It reads either the launch, or the launch and the product.",
)
