"""Numbers of oneDNN's C API, named as in ``dnnl_types.h`` of oneDNN 3.x."""

# Kinds of propagation.
FORWARD_TRAINING = 64
FORWARD_INFERENCE = 96
BACKWARD = 128

# Algorithms.
CONVOLUTION_DIRECT = 1
SOFTMAX_ACCURATE = 0x30000
BINARY_ADD = 0x1FFF0
POOLING_MAX = 0x1FF
ELTWISE_LINEAR = 0x26
ELTWISE_POW = 0x30

# Flags of normalizations.
USE_SCALE_AND_SHIFT = 0x2 | 0x4

# What a primitive descriptor can be asked for.
QUERY_IMPLEMENTATION = 8
QUERY_SRC = 129
QUERY_DIFF_SRC = 130
QUERY_WEIGHTS = 131
QUERY_DIFF_WEIGHTS = 132
QUERY_DST = 133
QUERY_DIFF_DST = 134
QUERY_WORKSPACE = 135
QUERY_SCRATCHPAD = 136

# Arguments of an execution.
ARG_SRC = 1
ARG_SRC_1 = 2
ARG_DST = 17
ARG_WEIGHTS = 33
ARG_BIAS = 41
ARG_MEAN = 49
ARG_VARIANCE = 50
ARG_SCALE = 51
ARG_SHIFT = 52
ARG_WORKSPACE = 64
ARG_SCRATCHPAD = 80
ARG_DIFF_SRC = 129
ARG_DIFF_DST = 145
ARG_DIFF_WEIGHTS = 161
ARG_DIFF_SCALE = 255
ARG_DIFF_SHIFT = 256
_ARG_POST_OPERATION = 32_768


def arg_added(number: int) -> int:
    """The argument of tensor `number` of those that are added to a result."""
    return _ARG_POST_OPERATION * (number + 1) | ARG_SRC_1
