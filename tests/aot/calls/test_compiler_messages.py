"""What a compiler or linker says becomes one sentence."""

import pytest

from tvm_xengine.aot.package.compiler_messages import reason

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
