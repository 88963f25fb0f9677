"""float16 in C: the processor's conversions and ours give the same bits."""

from pathlib import Path

import pytest

from tests.aot.examples import need_tools
from tvm_xengine.aot.check.emulation import compile_program, run_program
from tvm_xengine.aot.emit_c.math_functions import helper_definitions
from tvm_xengine.aot.targets import embedded_target

MAIN = """
/* Every half but NaN, and five million floats around the halves' range and anywhere. */
int main(void) {
  uint32_t random = 1;
  for (uint32_t half = 0; half < 65536; half++) {
    if ((half & 0x7c00) == 0x7c00 && (half & 1023)) continue;
    float mine = soft_xe_load_float16((uint16_t)half), theirs = xe_load_float16((uint16_t)half);
    if (memcmp(&mine, &theirs, 4)) return 1;
  }
  for (int i = 0; i < 5000000; i++) {
    float value;
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    uint32_t bits = i & 1 ? (random & 0x807fffffu) | ((100u + (random >> 23) % 50u) << 23) : random;
    memcpy(&value, &bits, 4);
    if (value == value && soft_xe_store_float16(value) != xe_store_float16(value)) return 2;
  }
  return 0;
}
"""


@pytest.mark.parametrize("target", ["aarch64", "armhf", "cortex-m4", "cortex-m7"])
def test_conversions_agree(target: str, tmp_path: Path) -> None:
    need_tools(target)
    mixed = "\n".join(helper_definitions({"xe_load_float16", "xe_store_float16"}))
    assert mixed.count("#if defined(__ARM_FP16") == 2
    soft = mixed.replace("__ARM_FP16_FORMAT_IEEE", "NO_SUCH_FORMAT").replace("xe_", "soft_xe_")
    text = f"#include <stdint.h>\n#include <string.h>\n{mixed}\n{soft}\n{MAIN}"
    (tmp_path / "main.c").write_text(text)
    machine = embedded_target(target)
    compile_program(
        machine, [tmp_path / "main.c"], [*machine.flags, "-O2", "-std=c11"], tmp_path / "main"
    )
    assert run_program(tmp_path / "main", machine).returncode == 0
