"""``emulate_gpu()``: ordinary ``torch.amp`` code on a CPU follows a GPU's precision rules.

Read ``emulate`` first. Its tables: ``autocast_lists`` (which operation runs in which dtype) and
``tensor_core`` (what each operation rounds); ``flash_attention`` is attention as GPUs compute it.
"""

from labkit.emulation.emulate import emulate_gpu

__all__ = ["emulate_gpu"]
