"""Changes to an ONNX graph before it is imported."""
