# %% [markdown]
# # 0. Start here
#
# Your machine is checked, your own copies of the labs exist, you have failed once, and you know where to begin.
# After this lab you can run a check, read what it says of an answer, and choose the lab to begin with.
#
# *any laptop · needs: Python and PyTorch tensors*

# %% [markdown]
# ### Your own copies
#
# Work in copies, so that an update of the course never touches your answers. Click into the next cell
# and press Shift+Enter. It makes them, and brings them up to date whenever you run it again.

# %% tags=["nbval-ignore-output"]
from labkit.course.my_labs import start

start()

# %% [markdown]
# Open **0. Start here** from that list and go on there. Every other lab opens from the list as well.

# %% [markdown]
# ### This machine

# %% tags=["nbval-ignore-output"]
from labkit.course.doctor import examine

examine()

# %% [markdown]
# Three facts about each number format, and they differ. **Storable**: a tensor can have it.
# **Computable**: arithmetic in it runs. **Accelerated**: the hardware has fast units for it. A laptop
# stores FP16 and computes with it, slowly. The labs need no acceleration.
#
# Every figure of the course says how its numbers were come by:
#
# | word | what it means |
# |---|---|
# | computed | exact arithmetic, the same on every machine |
# | measured | taken on this machine, while you watch |
# | emulated | computed here by the rules of a GPU |
# | recorded | taken earlier on a named machine, with date and versions |

# %% [markdown]
# ### The first check
#
# Below every exercise stands a check. Before it has your answer it says "not attempted". So **Run All**
# works on the first day: red lines under checks are invitations, nothing is broken.
#
# Fail once on purpose. Run the next cell. In the exercise below it, replace the `raise` line by
# `return 4 * count`. Run it, run the check, and read its sentence. Open the hint, mend the line, and run
# both cells again. The solved labs stand in the course's folder `solutions`.

# %%
from labkit.labs.start_here.checks import check_fp16_bytes

# %% [markdown]
# ### Exercise: bytes
#
# *4 minutes, 1 line.* How many bytes do `count` values in FP16 take? `count` may be 0.


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
# FP16 is named after its 16 bits. How many bits has a byte?
# </details>

# %% [markdown]
# The check ran your function on several counts and compared the results exactly. A mistake that
# the course knows by name is called by its name.
#
# Sometimes a cell asks for a **guess** before it shows what it computed. Type or choose it, press Enter, and say how
# sure you are: 1 guessing, 2 fairly sure, 3 certain. A wrong guess costs nothing and helps you remember.
# **Show me** gives the answer, and no guess is recorded.

# %% [markdown]
# ### How far you are
#
# Passed checks and guesses are kept in one file on this machine. Nothing leaves it. In a terminal,
# `python -m labkit progress` shows the same table.

# %% tags=["nbval-ignore-output"]
from labkit.course.progress_panel import progress_panel

progress_panel()

# %% [markdown]
# ### Where to begin
#
# Two questions on each lab; the card says how long they take. It works by keyboard: numbers choose, Enter answers,
# h gives a hint. "I do not know" is an honest answer, and here the useful one. Each answer
# is explained, and what you missed comes back in later labs. New to all this? Skip the card and begin with lab 01.

# %% tags=["nbval-ignore-output"]
from labkit.interview.widget_drill_card import diagnostic

diagnostic()

# %% [markdown]
# ### Where to go
#
# In [lab 01](01_three_crimes.ipynb) three runs fail, and you find out why. [Lab 02](02_number_formats.ipynb) builds a
# number system from sixteen codes. Rounding, loss scaling, automatic mixed precision and hardware follow in
# [03](03_overflow_underflow_rounding.ipynb), [04](04_loss_scaling.ipynb), [05](05_automatic_mixed_precision.ipynb) and
# [06](06_hardware_and_benchmarks.ipynb). An interview soon? [Lab 16](16_interview.ipynb) has a plan for Friday.
