"""The predictions of lab 06."""

from labkit.labs.engine import ChoiceGuess, NumberGuess, TickGuess

LAB = "06_hardware_and_benchmarks"

t4_bf16 = TickGuess(
    id="t4-bf16",
    lab=LAB,
    question="A Tesla T4 has compute capability 7.5. Tick what is true of it.",
    by_item={
        "its memory can hold a BF16 tensor": "Memory holds bytes, whatever they mean.",
        "it can add two BF16 tensors": (
            "torch converts BF16 to FP32, adds, and rounds the sum, slowly.",
            "no-units-means-not-computable",
        ),
        "its Tensor Cores multiply BF16 matrices": (
            "Tensor Cores take BF16 from capability 8.0 on. Those of the T4 take FP16.",
            "tensor-cores-take-every-16-bit-dtype",
        ),
        "`torch.cuda.is_bf16_supported()` returns `True`": (
            "By default this function only asks whether a BF16 tensor can be made."
        ),
    },
)
tf32_baseline = NumberGuess(
    id="tf32-baseline",
    lab=LAB,
    question=(
        "NVIDIA prints for the A100: 19.5 TFLOP/s in FP32, 156 in TF32, 312 in BF16. A team's "
        "float32 matmuls use TF32 already. By these peaks, how many times faster can BF16 make "
        "a matmul at most?"
    ),
    slack=0.05,
    by_number={
        16: "16 is 312 / 19.5, the ratio to FP32 without TF32. This team starts from 156.",
        8: "8 is 156 / 19.5, what TF32 has brought already. BF16 comes on top of it.",
    },
    otherwise="Divide the peak of BF16 by the peak that the matmuls use today.",
)
small_matmul = ChoiceGuess(
    id="small-matmul",
    lab=LAB,
    question=(
        "Many 512 x 512 matmuls in FP16 run one after another on an H100: 989 TFLOP/s, 3.35 TB/s. "
        "The host needs 5 us to launch one. What bounds the speed?"
    ),
    by_choice={
        "compute": (
            "2 * 512**3 operations at 989 TFLOP/s take 0.27 us, less than a launch.",
            "time-is-flop-over-peak",
        ),
        "memory": (
            "3 * 512**2 values of 2 bytes at 3.35 TB/s take 0.47 us: more than computing, but less "
            "than a launch.",
            "a-launch-takes-no-time",
        ),
        "overhead": "",
    },
)
amdahl = NumberGuess(
    id="amdahl",
    lab=LAB,
    question=(
        "Matmuls take 70 % of a step and become twice as fast; the rest stays as it is. How many "
        "times as fast is the whole step? Give two digits after the point."
    ),
    slack=0.01,  # 1 / 0.65 is 1.538...: 1.53 and 1.54 both come from the right sum
    by_number={
        2: ("30 % of the step is as slow as before.", "a-fast-part-is-a-fast-whole"),
        1.7: (
            "Speed-ups do not average by share; times add up: 0.3 + 0.7 / 2.",
            "speed-ups-average",
        ),
        1.4: (
            "The matmuls take less time, not more: 0.3 + 0.7 / 2 of the time remains.",
            "speed-ups-average",
        ),
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
    question=(
        "A launch takes 0.01 ms of the program, and the matmul keeps the device busy for 2 ms. "
        "What does this timer read?"
    ),
    unit="ms",
    slack=0.02,  # "0" and "almost nothing" are the launch too
    by_number={
        (1.9, 2.1): (
            "The device is busy for 2 ms, but the clock is read before it is done.",
            "a-call-that-returned-is-done",
        ),
    },
    otherwise="The timer reads either the launch alone, or the launch and the matmul.",
)
