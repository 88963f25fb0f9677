"""Kernels written in TVMScript, parsed while a step is built."""

from __future__ import annotations

import sys
from collections.abc import Callable

import tvm
from tvm.script.parser._core import parse, utils


def prim_func(
    *, private: bool, s_tir: bool
) -> Callable[[Callable[..., object]], tvm.tirx.PrimFunc]:
    """Parse the decorated function as ``T.prim_func`` does, in a fraction of the time.

    It is called as ``script.prim_func``: the parser knows decorators by an attribute of this name.
    TVM's decorator reads the sources of all callers, twice, to know what annotations name. Here
    these are variables of the function around the kernel.

    Parameters
    ----------
    private, s_tir
        As in ``T.prim_func``; the parser reads them from the source.
    """
    around = sys._getframe(1).f_locals

    def parsed(function: Callable[..., object]) -> tvm.tirx.PrimFunc:
        named = {
            name
            for annotation in function.__annotations__.values()
            for name in compile(str(annotation), function.__name__, "eval").co_names
        }
        annotated = {name: around[name] for name in named & around.keys()}
        return parse(function, {**annotated, **utils.inspect_function_capture(function)})

    parsed.dispatch_token = "tirx"  # type: ignore[attr-defined]  # by which the parser knows it
    return parsed
