"""``onnx_served``: a model exported to ONNX and run by ONNX Runtime, an optional extra."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from labkit.base.onnxruntime import import_onnxruntime


def onnx_served(
    model: nn.Module, tokens: Tensor, *, int8: bool = False
) -> Callable[[Tensor], Tensor]:
    """The model as ONNX Runtime computes it on the CPU: tokens, int64, N x T -> logits.

    Args:
        model: takes tokens, N x T; the export is of its dtypes.
        tokens: int64, 2 or more x T. Another N may come later, and the same T.
        int8: weights and activations of matmuls are then quantized by
            ``onnxruntime.quantization.quantize_dynamic``.

    Raises:
        ImportError: onnxruntime, onnx or onnxscript is not installed; the message says how.
        Exception: ONNX Runtime's own, such as NotImplemented where it has no kernel for a dtype.
    """
    runtime = import_onnxruntime()
    with TemporaryDirectory() as folder, _quiet():
        path = Path(folder, "model.onnx")
        shapes = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(model, (tokens,), path, dynamic_shapes=shapes, verbose=False)
        if int8:
            quantization = import_onnxruntime("onnxruntime.quantization")
            path = Path(folder, "int8.onnx")
            quantization.quantize_dynamic(path.with_stem("model"), path)
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = (wanted.name for wanted in session.get_inputs())
    return lambda x: torch.from_numpy(session.run(None, {name: x.numpy()})[0])


@contextmanager
def _quiet() -> Iterator[None]:
    """No word of the exporter on packages that the model does not use."""
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
