"""Frozen layers in int8: a rewrite of the forward function before it is differentiated.

Ranges come from samples (`calibrate`) or from a model that was quantized elsewhere (`qdq`). `layers` finds
what is quantized, `rewrite` writes it with the operators of :mod:`tvm_xengine.relax_ir.integer_ops`.
"""
