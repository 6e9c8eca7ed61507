# Answers to lab 06 that the author of its checks had not foreseen: see tests/corpus.py.
import numpy as np


# %% right three-facts: numpy's truth values
def three_facts(dtype, capability):
    return tuple(np.array(ours.three_facts(dtype, capability)))


# %% wrong three-facts: no value for what it does not know
def three_facts(dtype, capability):
    return ours.three_facts(dtype, capability) if capability >= (7, 0) else None


# %% wrong speedup: after over before, in other words
#    idea: after-over-before
def speedup(seconds, faster):
    before = sum(seconds.values())
    after = sum(time / faster.get(part, 1.0) for part, time in seconds.items())
    return (1 / before) / (1 / after)
