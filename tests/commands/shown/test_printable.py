"""What a file calls its tensors cannot steer the terminal."""

import io

import pytest
from rich.table import Table

from tvm_xengine.checks.printable import printable
from tvm_xengine.commands.entry import main
from tvm_xengine.commands.printable_console import PrintableConsole

STEERING = "a\x1b]0;title\x07\x9b31m\u202eb"


def test_characters_of_control_are_marked_and_others_kept() -> None:
    assert printable(STEERING) == "a\ufffd]0;title\ufffd\ufffd31m\ufffdb"
    assert printable("ß\t漢\n\u200d") == "ß\t漢\n\u200d"


def test_a_table_has_only_the_control_of_its_own_style() -> None:
    out = io.StringIO()
    console = PrintableConsole(file=out, force_terminal=True, color_system="standard", width=80)
    table = Table("[red]name[/red]")
    table.add_row(STEERING)
    console.print(table)
    assert "31mname" in out.getvalue()
    assert "title" in out.getvalue()
    assert not [one for one in ("\x1b]", "\x07", "\x9b", "\u202e") if one in out.getvalue()]


def test_a_message_has_no_characters_of_control(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", STEERING]) == 2
    said = capsys.readouterr().err
    assert printable(said) == said
