"""The calls of a self-test: steps, updates of accumulated samples, and evaluations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_xengine.aot.check.batches import BatchInput, fill_loop
from tvm_xengine.aot.emit_c.prototypes import Argument, arguments
from tvm_xengine.aot.entries import Entry
from tvm_xengine.aot.package.contents import Package
from tvm_xengine.program.step_program import Operand


@dataclass(frozen=True)
class SelftestCalls:
    """C text for the entry points that a package has; `inputs` are those of the batch."""

    package: Package
    inputs: Sequence[BatchInput]

    @property
    def batch(self) -> int:
        """Samples in a batch."""
        first = self.inputs[0].shape
        return first[0] if first else 1

    @property
    def output(self) -> Operand:
        """What an evaluation makes; the loss of a package without one."""
        functions = self.package.functions
        for entry in (Entry.EVAL, Entry.INFER):
            if entry in functions:
                return functions[entry].interface.results["output"]
        return next(iter(functions.values())).interface.results["loss"]

    @property
    def output_size(self) -> int:
        """Elements of the output for a batch."""
        samples = 1 if Entry.EVAL in self.package.functions else self.batch
        return samples * math.prod(self.output.shape)

    def functions(self) -> str:
        """The function that accumulates the samples of a batch and updates the state."""
        if not self.package.accumulates:
            return ""
        name, batch = self.package.name, self.batch
        given = self._given(Entry.ACCUMULATE, {"loss": "&loss"}, sample="at")
        refused = self._busy()
        return f"""\
/* The samples of a batch one by one, and an update; `mean` is the mean of their losses. */
static int one_by_one({name}_ctx *ctx, float *mean) {{
  *mean = 0.0f;
  if ({name}_apply(ctx) != {self.package.macro}_EEMPTY) return 7;
  for (size_t at = 0; at < {batch}u; at++) {{
    float loss = 0.0f;
    if ({name}_accumulate(ctx{given})) return 2;
    *mean += loss / {batch}.0f;
  }}
{refused}  return {name}_apply(ctx) ? 2 : 0;
}}

"""

    def _busy(self) -> str:
        if Entry.TRAIN_STEP not in self.package.functions:
            return ""
        given = self._given(Entry.TRAIN_STEP, {})
        macro = self.package.macro
        return f"  if ({self.package.name}_train_step(ctx{given}) != {macro}_EBUSY) return 7;\n"

    def refused_without_state(self) -> str:
        """A call that comes too early."""
        entry = next(iter(self.package.functions))
        given = self._given(entry, {"output": "eval_output"}, sample="0")
        return (
            f"  if ({self.package.name}_{entry.value}(&ctx{given}) != {self.package.macro}_EINVAL)"
            " return 7; /* there is no state yet */"
        )

    def run(self, steps: int) -> str:
        """All steps; every second one over single samples where the package has both."""
        fills = "\n".join(
            fill_loop(self.package.name, entry, array_of(entry)) for entry in self.inputs
        )
        if not steps:
            return fills
        name, macro = self.package.name, self.package.macro
        whole = f"{name}_train_step(&ctx{self._given(Entry.TRAIN_STEP, {'loss': '&loss'})})"
        if not self.package.accumulates:
            step = f"    if ({whole}) return 2;"
        elif Entry.TRAIN_STEP not in self.package.functions:
            step = "    { int status = one_by_one(&ctx, &loss); if (status) return status; }"
        else:
            step = f"""\
    if (step % 2) {{
      int status = one_by_one(&ctx, &loss);
      if (status) return status;
    }} else if ({whole}) return 2;"""
        return f"""\
  for (int step = 0; step < {steps}; step++) {{
    int byte = step % 2 ? 0xff : 0xa5; /* 0xff is NaN */
    float loss = 0.0f, tolerance = allowed[step];
#ifdef {macro}_LOSS_TOLERANCE
    tolerance = {macro}_LOSS_TOLERANCE;
#endif
{fills}
    poison(byte);
{step}
#ifdef {macro}_SELFTEST_PRINT
    uint32_t bits;
    memcpy(&bits, &loss, sizeof bits);
    printf("%08lx\\n", (unsigned long)bits);
#endif
    if (differ(loss, expected_loss[step], tolerance)) return 3;
    if (!guards_intact(byte)) return 4;
    if (!step && updates_differ()) return 8;
  }}"""

    def evaluations(self, count: int, tolerance: str) -> str:
        """Every forward function on the last batch."""
        name, functions = self.package.name, self.package.functions
        compare = f"""\
  for (int i = 0; i < {count}; i++)
    if (differ(eval_output[i], expected_output[i], {tolerance})) return 5;"""
        parts = []
        if Entry.EVAL in functions:
            given = self._given(Entry.EVAL, {"output": "eval_output"})
            parts += [f"  if ({name}_eval(&ctx{given})) return 5;", compare]
        if Entry.INFER in functions:
            parts += [*self._inferences(), compare]
        return "\n".join(parts) or "  (void)eval_output, (void)expected_output;"

    def _inferences(self) -> list[str]:
        """The outputs for all samples of a batch, or their mean where the model returns its loss."""
        shape = self.package.functions[Entry.INFER].interface.results["output"].shape
        where = f"eval_output + {math.prod(shape)}u * at" if shape else "eval_output"
        given = self._given(Entry.INFER, {"output": where}, sample="at")
        loop = f"  for (size_t at = 0; at < {self.batch}u; at++) {{"
        call = f"    if ({self.package.name}_infer(&ctx{given})) return 5;"
        if shape:
            return ["  memset(eval_output, 0, sizeof eval_output);", loop, call, "  }"]
        add = f"    mean += eval_output[0] / {self.batch}.0f;"
        begin, end = "  float mean = 0.0f;", "  eval_output[0] = mean;"
        return ["  {", begin, loop, call, add, "  }", end, "  }"]

    def _given(self, entry: Entry, results: dict[str, str], sample: str = "") -> str:
        """The arguments behind the context; of the inputs of a batch, the sample `sample`."""
        if entry not in self.package.functions:
            return ""
        texts = []
        for one in arguments(self.package, entry):
            if one.is_result:
                texts.append(results.get(one.model_name, "NULL"))
            else:
                texts.append(self._input(one, sample if entry.takes_one_sample else ""))
        return "".join(f", {text}" for text in texts)

    def _input(self, one: Argument, sample: str) -> str:
        (whole,) = [entry for entry in self.inputs if entry.name == one.model_name]
        if not sample or whole.count == one.count:
            return array_of(whole)
        return f"{array_of(whole)} + {one.count}u * {sample}"


def array_of(given: BatchInput) -> str:
    """The array with an input; inputs may be called as variables of the self-test are."""
    return f"in_{given.c_name}"
