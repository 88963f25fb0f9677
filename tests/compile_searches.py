"""Compiles what numba compiles, once: else each test worker does it, and a test that solves waits.

Run as ``python -m tests.compile_searches`` before the tests; what is compiled is kept beside the sources.
"""

from tvm_xengine.scheduling.arena.order_search import compile_order_search
from tvm_xengine.scheduling.arena.packing import compile_packing
from tvm_xengine.solvers.first_use import compile_searches

if __name__ == "__main__":
    compile_packing()
    compile_order_search()
    compile_searches()
