"""ONNX operators as operators of Relax, where TVM's importer lacks them or differs."""

from tvm_xengine.frontends.onnx.converters.table import converters

__all__ = ["converters"]
