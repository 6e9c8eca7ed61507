"""``import_onnxruntime``: ONNX Runtime and what exports to it, optional extras without a word."""

from types import ModuleType

from labkit.base.optional import import_quietly

_VERSIONS = {"onnx": "1.23.2", "onnxscript": "0.7.2", "onnxruntime": "1.32.0"}


def import_onnxruntime(module: str = "onnxruntime") -> ModuleType:
    """onnxruntime, or one of its modules, where torch can export to ONNX as well.

    Raises ImportError with a sentence that says what to do: where one of onnxruntime, onnx and
    onnxscript is not installed, and where it fails to import.
    """
    for package in ("onnx", "onnxscript"):
        import_quietly(package, package, version=_VERSIONS[package], settings={})
    return import_quietly("onnxruntime", module, version=_VERSIONS["onnxruntime"], settings={})
