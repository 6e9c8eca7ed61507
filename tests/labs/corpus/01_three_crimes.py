# Answers to lab 01 that the author of its checks had not foreseen: see tests/corpus.py.
from collections import OrderedDict, defaultdict

import numpy as np

BYTES = {"weights": 4, "gradients": 4, "adam": 8, "copies": 2}


# %% right ledger: a defaultdict
def ledger(parameters, activations):
    found = defaultdict(int, activations=2 * activations)
    for item, each in BYTES.items():
        found[item] += each * parameters
    return found


# %% right ledger: an OrderedDict, in another order
def ledger(parameters, activations):
    return OrderedDict(
        activations=2 * activations,
        **{item: each * parameters for item, each in reversed(BYTES.items())},
    )


# %% right ledger: numpy's integers
def ledger(parameters, activations):
    counts = np.array([4, 4, 8, 2], dtype=np.int64) * parameters
    return {**dict(zip(BYTES, counts)), "activations": np.int64(2 * activations)}


# %% right ledger: floats
def ledger(parameters, activations):
    return {item: each * float(parameters) for item, each in BYTES.items()} | {
        "activations": 2.0 * activations
    }


# %% right ledger: a comprehension over pairs
def ledger(parameters, activations):
    pairs = [("weights", 4), ("gradients", 4), ("adam", 8), ("copies", 2)]
    return {item: each * parameters for item, each in pairs} | dict(activations=2 * activations)


# %% right ledger: from bits
def ledger(parameters, activations):
    bits = {"weights": 32, "gradients": 32, "adam": 64, "copies": 16}
    found = {item: each * parameters // 8 for item, each in bits.items()}
    return found | {"activations": 16 * activations // 8}


# %% wrong ledger: a list
#    says: a dict of weights, gradients, adam, copies, activations is wanted
def ledger(parameters, activations):
    return [4 * parameters, 4 * parameters, 8 * parameters, 2 * parameters, 2 * activations]


# %% wrong ledger: bytes of one
#    says: and so it is for every model
def ledger(parameters, activations):
    return {**BYTES, "activations": 2}


# %% wrong ledger: moments in 16 bits
#    idea: adam-keeps-one-number
def ledger(parameters, activations):
    return {item: each * parameters for item, each in BYTES.items()} | {
        "adam": 2 * 2 * parameters, "activations": 2 * activations
    }


# %% wrong ledger: the copies are forgotten in the sum and in the dict
#    says: `ledger(1, 0)`
def ledger(parameters, activations):
    return {item: BYTES[item] * parameters for item in ("weights", "gradients", "adam")}


# %% wrong ledger: ZeRO's 16 bytes a parameter
#    never: Not everything halves
def ledger(parameters, activations):
    each = {"weights": 2, "gradients": 2, "adam": 12, "copies": 0}
    return {item: n * parameters for item, n in each.items()} | {"activations": 2 * activations}


# %% wrong ledger: bits for bytes
def ledger(parameters, activations):
    return {item: 8 * each * parameters for item, each in BYTES.items()} | {
        "activations": 16 * activations
    }


# %% right causes: an OrderedDict with other capitals
causes = OrderedDict((key, cause.capitalize()) for key, cause in ours.causes.items())


# %% right pardon: an OrderedDict
pardon = OrderedDict(precision="bf16")


# %% wrong pardon: None
#    says: pardon is
pardon = None
