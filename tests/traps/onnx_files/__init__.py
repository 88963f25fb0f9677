"""ONNX files that are legal and unusual: values as ONNX defines them, steps as PyTorch's, or refused."""
