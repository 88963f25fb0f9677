"""cuDNN and cuBLAS as a source of kernels for NVIDIA GPUs."""
