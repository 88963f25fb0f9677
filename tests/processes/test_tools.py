"""Programs that are run to their end, and what is said of it."""

import subprocess
import sys

import pytest

from tvm_xengine.processes.tools import how_it_ended, run_tool


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of computing are Linux's")
def test_a_program_that_computes_too_long_is_ended() -> None:
    done = run_tool(python("while True: pass"), processor_s=1)
    assert how_it_ended(done).endswith("ended by SIGXCPU and said nothing")


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_tool(python("import threading; threading.Event().wait()"), wall_s=0.1)


def test_what_is_no_text_is_replaced_and_nothing_can_be_read() -> None:
    code = r"import sys; sys.stdout.buffer.write(b'a\xff' + sys.stdin.buffer.read())"
    assert run_tool(python(code)).stdout == "a\ufffd"


def test_an_end_is_told_by_name_code_and_last_lines() -> None:
    code = "import sys; print('to stdout'); sys.exit('\\n'.join('abcd'))"
    done = run_tool(python(code))
    assert how_it_ended(done).endswith(" ended with code 1: b; c; d")
    assert "/" not in how_it_ended(done)


def test_a_program_that_writes_to_stdout_alone_is_told_by_that() -> None:
    done = run_tool(python("import os; print('step 3: loss', flush=True); os.abort()"))
    assert how_it_ended(done).endswith(" ended by SIGABRT: step 3: loss")
