"""Names that options take, known without loading what they name; a test compares the two."""

from __future__ import annotations

from tvm_xengine.extensions.extended import extended


def _plugged(group: str) -> tuple[str, ...]:
    """Names that other packages add, which are not loaded."""
    return tuple(extended(f"tvm_xengine.{group}", {}))


NETWORK_NAMES = (
    *("lenet", "mlp", "resnet8", "resnet18", "resnet50", "vgg16", "mobilenetv2", "ds_cnn", "unet"),
    "gpt_nano",
)
SOLVER_NAMES = (
    *(
        "auto",
        "local-search",
        "astar",
        "miqp",
        "tight",
        "xengine",
        "checkmate",
        "checkmate-rounding",
    ),
    *("retention", "poet", "greedy", "keep-all", "recompute-all", "revolve", "rotor", "sqrt-n"),
    *_plugged("solvers"),
)
BACKEND_NAMES = ("highs", "scip", "gurobi", "cp-sat", *_plugged("backends"))
OBJECTIVE_NAMES = ("cost", "makespan", "energy")
COST_NAMES = ("active", "measured", "predicted", "roofline")
OPTIMIZER_NAMES = (
    *("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "adagrad", "lion"),
    *("nadam", "radam", "adamax", "adadelta"),
)
ENTRY_NAMES = ("train_step", "accumulate", "apply", "eval", "infer")
LABEL_TYPES = ("int64", "int32", "int16", "uint16", "int8", "uint8")
LAYOUT_NAMES = ("cmake", "zephyr", "arduino", "platformio", "esp-idf")
STORAGE_NAMES = ("none", "activations", "all")
ROUNDING_NAMES = ("nearest", "stochastic")
FROZEN_NAMES = ("float32", "int8")
PRECISION_NAMES = ("float16", "bfloat16")
SPLIT_NAMES = ("random", "family", "size", "unusual", "source", "processor")
UNSEEN_NAMES = ("families", "processors", "networks")
QUANTITY_NAMES = ("time", "energy", "memory")
