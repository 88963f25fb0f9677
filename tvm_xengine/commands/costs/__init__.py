"""The verbs of ``tvm-xengine costs``."""
