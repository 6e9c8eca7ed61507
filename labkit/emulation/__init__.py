"""``emulate_gpu()``: ordinary ``torch.amp`` code on a CPU follows a GPU's precision rules.

Read ``emulate`` first. Its tables: ``autocast_lists`` (which operation runs in which dtype) and
``tensor_core`` (what each operation rounds); ``flash_attention`` is attention as GPUs compute it.

``as_on_cuda()`` stands apart: ``F.scaled_mm`` on a CPU refuses the operands that CUDA refuses.
"""

from labkit.emulation.emulate import emulate_gpu
from labkit.emulation.scaled_matmul import as_on_cuda

__all__ = ["as_on_cuda", "emulate_gpu"]
