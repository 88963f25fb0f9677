"""What a compiler or linker says: errors become one sentence, frames are read behind any path."""

from pathlib import Path

import pytest

from tvm_xengine.aot.package.code_size import measure_code
from tvm_xengine.aot.package.compiler_messages import reason
from tvm_xengine.aot.plan.kernels import Optimize
from tvm_xengine.aot.targets import embedded_target

OVERFLOW = """\
/usr/lib/gcc/arm-none-eabi/ld: selftest section `.bss' will not fit in region `RAM'
/usr/lib/gcc/arm-none-eabi/ld: region `RAM' overflowed by 12345 bytes
collect2: error: ld returned 1 exit status
"""


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        (OVERFLOW, "it needs 12345 bytes more RAM"),
        (
            "a.c: In function f:\na.c:3:1: error: expected ';'\n more",
            "a.c:3:1: error: expected ';'",
        ),
        ("", "no reason"),
    ],
)
def test_one_sentence(errors: str, said: str) -> None:
    assert said in reason(errors)
    assert "\n" not in reason(errors)


def test_a_package_may_lie_below_any_path(tmp_path: Path) -> None:
    found = []
    for folder in ("plain", "a\nline\tand more"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.c").write_text(
            "int f(int x) { volatile int y[64]; return y[x]; }\n"
        )
        found.append(
            measure_code(tmp_path / folder, ["a.c"], embedded_target("host"), Optimize.SPEED)
        )
    assert found[0] == found[1]
    assert found[0] is None or (found[0].stack_bytes or 0) >= 128
