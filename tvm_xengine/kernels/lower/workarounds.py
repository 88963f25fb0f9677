"""The table of workarounds for the behaviour of TVM 0.27.

Each entry has a canary in ``tests/kernels/lower/test_workarounds.py`` that fails once TVM behaves
otherwise; the code named here can be deleted then.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workaround:
    """One behaviour of TVM and the code that lives with it.

    Attributes
    ----------
    name
        Name of the canary, without ``test_``.
    symptom
        What goes wrong without the code.
    places
        Modules, and files outside the package, that hold the code.
    threads
        Related threads upstream; empty where a search found none.
    """

    name: str
    symptom: str
    places: tuple[str, ...]
    threads: tuple[str, ...] = ()


WORKAROUNDS = (
    Workaround(
        "iter_map_simplify_divides_wrongly",
        "FlattenBuffer and schedules simplify indices that divide to wrong ones: where a loop variable"
        " is subtracted, and under conditions on remainders",
        (
            "tvm_xengine.kernels.lower.hidden_indices",
            "tvm_xengine.kernels.lower.flatten_buffers",
            "tvm_xengine.kernels.schedules.gpu_rules",
            "tvm_xengine.training.build",
            "tvm_xengine.session.pipeline",
        ),
        (
            "https://github.com/apache/tvm/issues/19524",
            "https://github.com/apache/tvm/pull/20169",
        ),
    ),
    Workaround(
        "single_conditions_of_sums_are_lost",
        "LowerCrossThreadReduction keeps a condition of a block only as part of a conjunction: threads"
        " without a sum write behind the tensor",
        ("tvm_xengine.kernels.lower.gpu_lowering",),
        ("https://github.com/apache/tvm/pull/15374",),
    ),
    Workaround(
        "any_sum_over_two_tensors_is_scheduled_as_a_product",
        "dlight's schedule of products pads every sum over two tensors with zeros, also where terms of"
        " zeros are not zero",
        ("tvm_xengine.kernels.schedules.gpu_rules",),
    ),
    Workaround(
        "comparisons_and_products_are_simplified_without_nan",
        "not (a < b) becomes a >= b, a != a is taken for false, and a product with the number zero for"
        " zero",
        (
            "tvm_xengine.kernels.te.truth",
            "tvm_xengine.kernels.te.indexing.scan",
            "tvm_xengine.passes.lowering.name_kernels",
            "tvm_xengine.frontends.torch.aten.arithmetic",
        ),
        ("https://github.com/apache/tvm/pull/17158",),
    ),
    Workaround(
        "quotients_of_floats_by_a_known_zero_are_refused",
        "TIR has no quotient by a zero that it knows, also where it is an infinity",
        ("tvm_xengine.passes.lowering.name_kernels", "tvm_xengine.training.composites"),
        (
            "https://github.com/apache/tvm/pull/13348",
            "https://github.com/apache/tvm/issues/17745",
        ),
    ),
    Workaround(
        "values_of_bfloat16_that_are_bound_stay",
        "BF16ComputeLegalize rewrites no Bind and no value of a Let: bits of bfloat16 are compared and"
        " converted as integers",
        ("tvm_xengine.kernels.lower.store_short_bindings",),
        ("https://github.com/tile-ai/tvm/pull/70",),
    ),
    Workaround(
        "nested_lets_compile_for_ever",
        "the LLVM code generator substitutes the values of nested lets: time and memory are"
        " exponential in their depth",
        ("tvm_xengine.kernels.lower.store_nested_lets",),
        ("https://github.com/apache/tvm/pull/9117", "https://github.com/apache/tvm/pull/17278"),
    ),
    Workaround(
        "a_let_of_a_variable_is_bound_twice",
        "LowerIntrin refuses a let of a variable that stands in a condition",
        ("tvm_xengine.kernels.lower.inline_trivial_lets",),
    ),
    Workaround(
        "assertions_take_the_condition_first",
        "the Python signature of AssertStmt names its first two parameters the wrong way round",
        ("tvm_xengine.kernels.library.assembly",),
    ),
    Workaround(
        "unsigned_products_do_not_wrap_around",
        "LLVM is told that unsigned products do not wrap around, and comparisons of them are decided"
        " too early",
        ("tvm_xengine.kernels.te.randomness",),
        ("https://github.com/apache/tvm/issues/12383",),
    ),
    Workaround(
        "fuse_tir_drops_functions_without_callers",
        "FuseTIR drops a fused function that no other function calls",
        ("tvm_xengine.kernels.library.rest",),
        (
            "https://github.com/apache/tvm/pull/16471",
            "https://github.com/apache/tvm/pull/16565",
        ),
    ),
    Workaround(
        "errors_of_a_pass_lose_their_class",
        "an exception that a Python pass raises arrives as a RuntimeError unless its class is"
        " registered",
        ("tvm_xengine.passes",),
    ),
    Workaround(
        "tvm_accepts_an_ffi_that_it_crashes_with",
        "apache-tvm 0.27 allows apache-tvm-ffi 0.1.15, with which saving TIR as JSON ends the process",
        ("pyproject.toml",),
    ),
    Workaround(
        "thread_pools_read_only_the_environment",
        "a pool starts with half of the cores and binds its threads, unless variables of the"
        " environment say otherwise",
        ("tvm_xengine.kernels.threads.settings", "tvm_xengine.kernels.threads.pool"),
    ),
    Workaround(
        "scripts_are_parsed_with_the_sources_of_all_callers",
        "``T.prim_func`` reads the source lines of every caller, twice, which takes most of its time",
        ("tvm_xengine.kernels.te.script",),
    ),
)
