"""Platform, problem and schedule files say what they mean, or are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.passes.small_step import small_problem, two_cpus
from tvm_xengine.errors import InvalidPlatformError, InvalidProblemError, InvalidScheduleError
from tvm_xengine.scheduling.graph import OpGraph
from tvm_xengine.scheduling.platform_file import read_platform
from tvm_xengine.scheduling.problem import problem_from_json, problem_to_json, read_problem
from tvm_xengine.scheduling.schedule import read_schedule, schedule_from_json
from tvm_xengine.scheduling.sizes import parse_bytes
from tvm_xengine.solvers.result import Limits
from tvm_xengine.solvers.solve import solve

PLATFORM = """
[[device]]
name = "cpu"
target = "llvm"
budget = "1GiB"
[[device]]
name = "flash"
budget = "1GiB"
[[link]]
src = "cpu"
dst = "flash"
both_ways = true
"""


@pytest.mark.parametrize("value", ['"no"', "0", "1", '"true"'])
def test_both_ways_is_true_or_false(value: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(PLATFORM.replace("both_ways = true", f"both_ways = {value}"))
    with pytest.raises(InvalidPlatformError, match="both_ways must be true or false"):
        read_platform(path)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_is_accepted(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(start + PLATFORM.encode())
    assert len(read_platform(tmp_path / "p.toml").links) == 2
    problem = small_problem(two_cpus())
    (tmp_path / "p.json").write_bytes(start + problem_to_json(problem).encode())
    assert read_problem(tmp_path / "p.json") == problem


@pytest.mark.parametrize("content", [b"\xff\xfe{\0", b"\x80", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_text_or_no_json_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(InvalidProblemError):
        read_problem(path)
    with pytest.raises(InvalidScheduleError):
        read_schedule(path)
    with pytest.raises(InvalidPlatformError):
        read_platform(path)


@pytest.mark.parametrize("schema", ["2", '"1"', "null", "[]"])
def test_a_schedule_of_another_schema_is_refused(schema: str) -> None:
    with pytest.raises(InvalidScheduleError, match="schema"):
        schedule_from_json(f'{{"schema": {schema}, "steps": []}}')


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ("tensors", "size_bytes", 1.5),
        ("tensors", "size_bytes", True),
        ("tensors", "size_bytes", "12"),
        ("tensors", "shape", ["a"]),
        ("tensors", "role", 3),
        ("ops", "inputs", "x"),
        ("ops", "recomputable", "no"),
        ("ops", "updates", [["a", "b", "c"]]),
        ("devices", "kernels", "tir"),
        ("devices", "power_w", True),
        ("links", "latency_us", "fast"),
        ("links", "colour", 1),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(table: str, field: str, value: object) -> None:
    document = json.loads(problem_to_json(small_problem(two_cpus())))
    document[table][0][field] = value
    with pytest.raises(InvalidProblemError, match="malformed"):
        problem_from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["9" * 400, "1" + "0" * 30 + "GiB", "9007199254740992"])
def test_sizes_that_no_machine_has_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"below 2\^53"):
        parse_bytes(text)


def test_a_graph_that_delivers_nothing_is_refused() -> None:
    problem = small_problem(two_cpus())
    graph = problem.graph
    ops = tuple(replace(op, updates=(), recomputable=True) for op in graph.ops)
    nothing = replace(problem, graph=OpGraph(graph.tensors, ops, outputs=()))
    with pytest.raises(InvalidProblemError, match="nothing to schedule"):
        solve(nothing, limits=Limits(1.0))
