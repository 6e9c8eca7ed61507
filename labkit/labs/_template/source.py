# %% [markdown]
# # 99. The title: what the lab is about
#
# One sentence: what the reader does in this lab and what comes out of it.
#
# *any laptop · needs: the labs and the knowledge that this lab builds on*
#
# After this lab you can:
#
# - do one thing, in half a line: README's table of labs shows this one;
# - do another.

# %% [markdown]
# The first code cell imports what the lab needs, in five lines at most.

# %%
import math
from labkit.labs.engine import predict, yours
from labkit.labs.new_topic.checks import check_gap
from labkit.labs.new_topic import predictions as guesses, solutions as ours
from labkit.formats import FP16, spacing

# %% [markdown]
# Say that these are questions from earlier labs, and that they take 90 seconds at most.

# %% tags=["nbval-ignore-output"]
from labkit.interview import warm_up

warm_up("99_new_topic")

# %% [markdown]
# ### The problem, in a heading that can be understood before the section
#
# Start from a problem that the reader has. Show one case with numbers, state the rule in the field's words, give its
# reason and its limit. One or two sentences before a cell say what it computes and what to look at.


# %% predict="gap-at-2048"
@predict(guesses.gap_at_2048)
def gap_above_2048():
    return spacing(2048.0, FP16)


# %% [markdown]
# This cell is the explanation: the next 11 bits after the leading one end at 2, so the gap is 2. It stands behind the
# guess, and not in the notebook.

# %% [markdown]
# One or two sentences after a cell say what its output showed and what follows from it.

# %% [markdown]
# ### Exercise: the gap above x
#
# *5 minutes, about 1 line.* Write `gap(x)`, the distance from |x| to the next larger FP16 value.
#
# - **Input:** a float that FP16 holds exactly, positive or negative; not 0, inf, NaN or ±65504.
# - **Output:** a float. `gap(3.0)` is 2⁻⁹, because FP16 divides the interval from 2 to 4 into 1024 steps.
# - **Edge cases:** a negative x has the gap of |x|. Below 2⁻¹⁴ the gap is always 2⁻²⁴.


# %% exercise="gap"
def gap(x: float) -> float:
    """The distance from |x| to the next larger FP16 value."""
    ### BEGIN SOLUTION
    return 2.0 ** (max(math.frexp(x)[1], -13) - 11)
    ### END SOLUTION


# %% check="gap" points=1
check_gap(gap)

# %% [markdown]
# Cells below an exercise never call the learner's `gap` itself, since it may still be empty. They call what `yours`
# gives: the learner's answer once it has passed, and labkit's until then.

# %%
any_gap = yours(gap, ours.gap)
[any_gap(x) for x in (1.0, 1024.0, 2048.0)]

# %% [markdown]
# ### Say it
#
# Ask for the answer aloud, as to a colleague. The questions are those of the bank whose `section` is one of this lab.

# %% tags=["nbval-ignore-output"]
from labkit.interview import say_it

say_it("99_new_topic")

# %% [markdown]
# ### Sources
#
# The papers, specifications and pages that the lab's numbers come from; then the next lab.
