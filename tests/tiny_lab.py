"""The source of a lab with one of each: a guess, a function, a number, twins."""

TINY = '''\
# %% [markdown]
# # 2. Tiny numbers
#
# You write one function and one number.
#
# *any laptop, no GPU · needs: nothing*

# %%
import math
from labkit.labs.engine import NumberGuess, predict


class guesses:
    ones = NumberGuess(id="ones", lab="02_tiny", question="How many ones has 7?")

# %% predict="ones"
@predict(guesses.ones)
def count():
    return bin(7).count("1")

# %% [markdown]
# 7 is $2^3 - 1$: three "ones", é.

# %% exercise="ulp"
def ulp(x: float) -> float:
    """Gap above x."""
    # `math.frexp` helps.
    ### BEGIN SOLUTION
    return 2.0 ** (math.frexp(x)[1] - 11)
    ### END SOLUTION

# %% check="ulp" points=2
assert ulp(1.0) == 2**-10

# %% exercise="gap"
gap = ...
### BEGIN SOLUTION
gap = 2
### END SOLUTION

# %% check="gap" points=1 seconds=3
assert gap == 2

# %% tags=["nbval-ignore-output"]
print(math.pi)

# %%
print("done")

# %%
print("done")
'''
