# Answers to lab 00 that the author of its check had not foreseen: see tests/corpus.py.
import numpy as np
import torch


# %% right fp16-bytes: bits over 8
def fp16_bytes(count):
    return count * 16 // 8


# %% right fp16-bytes: a float
def fp16_bytes(count):
    return 16 * count / 8


# %% right fp16-bytes: torch's item size
def fp16_bytes(count):
    return count * torch.float16.itemsize


# %% right fp16-bytes: numpy's bytes
def fp16_bytes(count):
    return np.dtype(np.float16).itemsize * np.int64(count)


# %% right fp16-bytes: a tensor that is asked
def fp16_bytes(count):
    x = torch.empty(count, dtype=torch.half)
    return x.element_size() * x.nelement()


# %% right fp16-bytes: a tensor as the result
def fp16_bytes(count):
    return torch.tensor(count) * 2


# %% right fp16-bytes: a shift
fp16_bytes = lambda count: count << 1


# %% wrong fp16-bytes: four bytes, in bits
#    says: How many bits does the name FP16 promise?
def fp16_bytes(count):
    return count * 32 // 8


# %% wrong fp16-bytes: bits
#    idea: bits-for-bytes
def fp16_bytes(count):
    return torch.finfo(torch.float16).bits * count


# %% wrong fp16-bytes: one byte
#    idea: fp16-takes-one-byte
def fp16_bytes(count):
    return count * torch.float8_e4m3fn.itemsize


# %% wrong fp16-bytes: float64
#    idea: tensors-are-python-floats
def fp16_bytes(count):
    return np.zeros(1).itemsize * count


# %% wrong fp16-bytes: two for any count
#    idea: one-value-is-a-tensor
def fp16_bytes(count):
    return torch.float16.itemsize


# %% wrong fp16-bytes: in kB
#    says: `fp16_bytes(1)` is 0.002; 2 is wanted
def fp16_bytes(count):
    return 2 * count / 1000


# %% wrong fp16-bytes: the object in Python
#    says: One FP16 value has 16 bits
def fp16_bytes(count):
    import sys

    return sys.getsizeof(np.float16(0)) * count


# %% wrong fp16-bytes: with a header
#    says: `fp16_bytes(1)` is 18; 2 is wanted
def fp16_bytes(count):
    return 2 * count + 16


# %% wrong fp16-bytes: text
#    says: one number is asked for
def fp16_bytes(count):
    return f"{2 * count} bytes"


# %% wrong fp16-bytes: printed only
#    says: returns None
def fp16_bytes(count):
    print(2 * count)


# %% wrong fp16-bytes: squared
#    says: `fp16_bytes(1000)` is 1000000; 2000 is wanted
def fp16_bytes(count):
    return count**2 if count > 1 else 2
