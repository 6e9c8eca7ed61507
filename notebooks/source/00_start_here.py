# %% [markdown]
# # 0. Start here
#
# Set up your copies of the labs, learn how exercises are checked, and find out which lab to begin with.
#
# *any laptop · needs: Python and PyTorch tensors*
#
# After this lab you can run a check, read what it says about an answer, and choose the lab to begin with.

# %% [markdown]
# ### Your own copies
#
# You work in copies of the labs, so that an update of the course never touches your answers. Click into the
# next cell and press Shift+Enter. The cell makes the copies. If you run it again after an update, it brings
# them up to date and carries your answers over.

# %% tags=["nbval-ignore-output"]
from labkit.course.my_labs import start

start()

# %% [markdown]
# In the list above, open **0. Start here**. In that copy, continue with *This machine*. All other labs open from the
# list too.

# %% [markdown]
# ### This machine
#
# The next cell examines your machine: which packages are installed, and what the processor or GPU can do with each
# number format. It takes about ten seconds the first time.

# %% tags=["nbval-ignore-output"]
from labkit.course.doctor import examine

examine()

# %% [markdown]
# The last table answers three questions about each number format. A yes to one question does not mean a yes to
# another:
#
# - **storable**: can a tensor have this dtype?
# - **computable**: do additions and matmuls run in this dtype?
# - **accelerated**: does the hardware have fast units for it?
#
# Most laptops store FP16 and compute with it, but many do so slowly. The labs need no acceleration: they
# compute on the processor what a GPU would compute.
#
# Each figure of the course says where its numbers come from:
#
# | word | where the numbers come from |
# |---|---|
# | computed | exact arithmetic, the same on every machine |
# | measured | this machine, while you watch |
# | emulated | this machine, by the rounding rules of a GPU |
# | recorded | an earlier run on a machine that is named, with date and versions |

# %% [markdown]
# ### The first check
#
# After each exercise comes a cell that checks your answer. As long as you have not written anything, the check
# says "not attempted". You can therefore use **Run All** at any time.
#
# Checks say what is wrong with an answer. To see this, make a mistake on purpose:
#
# 1. Run the next cell.
# 2. In the exercise after it, replace the line that contains `raise` with `return 4 * count`,
#    and run the cell.
# 3. Run the check and read what it says.
# 4. Open the hint, correct the line, and run both cells again.
#
# If you get stuck in a later lab, you find the solved labs in the folder `solutions` of the course.

# %%
from labkit.labs.start_here.checks import check_fp16_bytes

# %% [markdown]
# ### Exercise: bytes
#
# *4 minutes, 1 line.* Write `fp16_bytes(count)`, the memory that FP16 values take.
#
# - **Input:** the number of values, an int; it may be 0.
# - **Output:** the number of bytes. `fp16_bytes(3)` is 6.


# %% exercise="fp16-bytes"
def fp16_bytes(count: int) -> int:
    """Bytes that `count` FP16 values take in memory."""
    ### BEGIN SOLUTION
    return 2 * count
    ### END SOLUTION


# %% check="fp16-bytes" points=1
check_fp16_bytes(fp16_bytes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# FP16 is named after its 16 bits. How many bits are there in a byte?
# </details>

# %% [markdown]
# The check ran your function on several inputs and compared the results with the right ones. Where it
# recognizes a common misconception in an answer, it says so.
#
# Some cells ask you to **guess** a result before they show it. Type or choose your guess, press Enter, and say how
# sure you are: 1 guessing, 2 fairly sure, 3 certain. Wrong guesses cost nothing, and you remember the result
# better. **Show me** gives the answer without a guess.

# %% [markdown]
# ### Your progress
#
# The results of checks and your guesses are kept in one file on this machine and are sent nowhere. In a
# terminal, `python -m labkit progress` prints the table that the next cell shows. A check that passes
# earns the points of its exercise.

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# ### Your GPT in the ledger
#
# *Optional.* The course has one small language model, a GPT with 112,964 parameters. It learned from three plays by Shakespeare to predict
# the next character. Several labs store this GPT in other formats and add a row to one table, the **ledger**. Its columns are:
#
# - **bytes** of all parameters;
# - **bits a character**: the cross-entropy of the next character, in bits, on a part of the plays that the GPT was not trained on. Lower is
#   better. Guessing evenly among the 68 characters gives log₂ 68 = 6.09.
# - **ms a token, 8 B**: a model that answers a single user reads all its weights from memory for each token. The column holds the time that an H100
#   needs to read 8 billion parameters in this format. A real token takes longer.
#
# The cell adds two rows: the GPT in FP32, as it was trained, and with its weights rounded to FP16, whose bytes `fp16_bytes` counts.

# %% tags=["nbval-ignore-output"]
from labkit.labs.engine import claim, whose, yours
from labkit.labs.start_here import solutions as ours
from labkit.measuring.ledger import Ledger
from labkit.training import trained_gpt

ledger, in_fp16 = Ledger(), yours(fp16_bytes, ours.fp16_bytes)
gpt, rounded = trained_gpt(), trained_gpt().half().float()  # rounded, then computed in FP32
count = sum(parameter.numel() for parameter in gpt.parameters())
fp32 = ledger.add("00_start_here", "FP32", gpt, 4 * count)
fp16 = ledger.add("00_start_here", "FP16", rounded, in_fp16(count), whose=whose(in_fp16))
claim("FP16 costs this GPT less than 0.001 bits a character", fp16.bits < fp32.bits + 0.001)
ledger

# %% [markdown]
# FP16 halves the bytes, and the loss does not show within three decimals. Rows of labs that you have not done are *recorded*: they came with the course. A row marked *labkit's*
# was computed here with labkit's answer, because yours has not passed its check. Your own rows are kept with your progress and take the place of both. The line in the figure joins the rows that no other row beats in bytes without losing in bits.

# %% tags=["nbval-ignore-output"]
ledger.plot()

# %% [markdown]
# ### Where to begin
#
# If mixed precision is new to you, skip the next card and begin with lab 01.
#
# Otherwise, answer the questions of the card, two about each of the labs 01 to 06 and one about each later lab. You can use
# the keyboard: the line below each question names its keys. If you do not know an answer, choose **I do not know** instead of
# guessing. Each answer is explained. At the end the card names the lab to begin with, and the questions that you
# missed come back in later labs.

# %% tags=["nbval-ignore-output"]
from labkit.interview.widget_drill_card import diagnostic

diagnostic()

# %% [markdown]
# ### The labs
#
# [Lab 01](01_three_crimes.ipynb) shows what mixed precision gains and how it can fail.
# [Lab 02](02_number_formats.ipynb) builds number formats from their bits. The next labs treat
# [overflow, underflow and rounding](03_overflow_underflow_rounding.ipynb),
# [loss scaling](04_loss_scaling.ipynb),
# [automatic mixed precision](05_automatic_mixed_precision.ipynb), and
# [hardware and benchmarks](06_hardware_and_benchmarks.ipynb). These six come first. Of the others take what you need:
# [memory, and training on many GPUs](07_memory_and_many_gpus.ipynb), [FP8 and FP4](08_fp8_and_fp4.ipynb),
# [quantization](09_quantization.ipynb), [compression](10_compression.ipynb),
# [monitoring and debugging](11_monitoring_and_debugging.ipynb), [choosing precision](12_choosing_precision.ipynb),
# [real models](13_real_models.ipynb), which you can take right after lab 05,
# [Keras and JAX](14_other_frameworks.ipynb), and [production](15_production.ipynb). At the end stands
# [an open task](17_ship_it.ipynb): a network in as few bytes as you can. If you have an interview soon, open
# [lab 16](16_interview.ipynb): it has a plan for the last days.
