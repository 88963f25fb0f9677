"""The calls of a self-test: steps, updates of accumulated samples, and evaluations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm_xengine.aot.check.batches import BatchInput, fill_loop
from tvm_xengine.aot.emit_c.prototypes import Argument, arguments
from tvm_xengine.aot.emit_c.types_in_c import stored_type
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
    def outputs(self) -> Mapping[str, Operand]:
        """What an evaluation makes, by name; nothing without one."""
        functions = self.package.functions
        found = [entry for entry in (Entry.EVAL, Entry.INFER) if entry in functions]
        return functions[found[0]].interface.results if found else {}

    def elements(self, output: str) -> int:
        """Of an output for a batch."""
        samples = 1 if Entry.EVAL in self.package.functions else self.batch
        return samples * math.prod(self.outputs[output].shape)

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
        given = self._given(entry, self._whole, sample="0")
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

    def _float(self, output: str) -> str:
        """The array of an output, whose elements are converted where they are no floats."""
        kind = stored_type(self.outputs[output].dtype)
        return f"{'' if kind == 'float' else '(float)'}eval_{output}"

    @property
    def _whole(self) -> dict[str, str]:
        """The arrays of the outputs."""
        return {name: f"eval_{name}" for name in self.outputs}

    def evaluations(self, compared: Mapping[str, int], tolerance: str) -> str:
        """Every forward function on the last batch; of each output so many elements are compared."""
        name, functions = self.package.name, self.package.functions
        compare = [
            f"  for (int i = 0; i < {compared[output]}; i++)\n"
            f"    if (differ({self._float(output)}[i], expected_{output}[i], {tolerance})) return 5;"
            for output in self.outputs
        ]
        parts = []
        if Entry.EVAL in functions:
            given = self._given(Entry.EVAL, self._whole)
            parts += [f"  if ({name}_eval(&ctx{given})) return 5;", *compare]
        if Entry.INFER in functions:
            parts += [*self._inferences(), *compare]
        return "\n".join(parts)

    def _inferences(self) -> list[str]:
        """The outputs for all samples of a batch; of a number, such as a loss, the mean."""
        shapes = {
            name: place.shape
            for name, place in self.package.functions[Entry.INFER].interface.results.items()
        }
        whole, numbers = self._whole, [name for name, shape in shapes.items() if not shape]
        where = {
            name: f"{whole[name]} + {math.prod(shape)}u * at" if shape else whole[name]
            for name, shape in shapes.items()
        }
        return [
            *(f"  memset({whole[n]}, 0, sizeof {whole[n]});" for n in shapes if n not in numbers),
            "  {",
            *(f"  float mean_{name} = 0.0f;" for name in numbers),
            f"  for (size_t at = 0; at < {self.batch}u; at++) {{",
            f"    if ({self.package.name}_infer(&ctx"
            f"{self._given(Entry.INFER, where, sample='at')})) return 5;",
            *(f"    mean_{name} += {whole[name]}[0] / {self.batch}.0f;" for name in numbers),
            "  }",
            *(f"  {whole[name]}[0] = mean_{name};" for name in numbers),
            "  }",
        ]

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
