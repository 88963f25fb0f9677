"""Arduino's own builder compiles a library for an 8-bit processor, and its self-test passes there."""

import shutil
import subprocess
from pathlib import Path
from threading import Timer

import pytest

from tests.aot.examples import export, tiny_mlp

HARDWARE = Path("/usr/share/arduino/hardware")
TOOLS = Path("/usr/share/arduino-builder")
_SKETCH = """\
#include <tiny_mlp.h>
extern "C" int selftest(void);
void setup() {
  Serial.begin(9600);
  Serial.print(tiny_mlp_status_text(TINY_MLP_OK));
  Serial.print(", failed check ");
  Serial.println(selftest());
}
void loop() {}
"""
_BOARD = "arduino:avr:mega:cpu=atmega2560"
"""8 KiB of memory, an `int` of 16 bits, and constants that are copied to memory."""
# Debian's core for AVR needs a macro that its C library has in C only.
_PREFERENCE = "compiler.cpp.extra_flags=-DDECIMAL_DIG=17"
_MOST_S = 120
"""It takes a second."""


@pytest.mark.slow
def test_arduino_builds_a_library_that_trains_on_an_avr(tmp_path: Path) -> None:
    needed = {"arduino-builder": "arduino-builder", "qemu-system-avr": "qemu-system-misc"}
    missing = [package for program, package in needed.items() if shutil.which(program) is None]
    if not (HARDWARE / "arduino" / "avr").is_dir():
        missing.append("arduino-core-avr")
    if missing:
        pytest.skip(f"needs the Debian packages {', '.join(missing)}")
    library, sketch, build = (tmp_path / name for name in ("libraries", "sketch", "build"))
    root = library / "tiny_mlp"
    export(tiny_mlp(), root, target="cortex-m0", optimize="size", layout="arduino", time_limit_s=2)
    sketch.mkdir()
    build.mkdir()
    (sketch / "sketch.ino").write_text(_SKETCH)
    selftest = (root / "extras" / "tiny_mlp_selftest.c").read_text()
    (sketch / "selftest.c").write_text(f"#define main selftest\n{selftest}")
    command = [
        *("arduino-builder", "-compile", "-fqbn", _BOARD, "-warnings", "all"),
        *("-hardware", str(HARDWARE), "-hardware", str(TOOLS)),
        *("-tools", str(TOOLS), "-tools", "/usr/bin", "-prefs", _PREFERENCE),
        *("-libraries", str(library), "-build-path", str(build), str(sketch / "sketch.ino")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(root) not in done.stderr  # of which compilers would warn
    assert _serial_line(build / "sketch.ino.elf") == "success, failed check 0"


def _serial_line(program: Path) -> str:
    """The first line that a program writes on the emulated board, which never ends."""
    board = ("-machine", "mega2560", "-display", "none", "-monitor", "none", "-serial", "stdio")
    command = ["qemu-system-avr", *board, "-bios", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        limit = Timer(_MOST_S, running.kill)
        limit.start()
        try:
            return running.stdout.readline().strip()
        finally:
            limit.cancel()
            running.kill()
