"""How streams wait for each other: only who has cores of its own keeps them meanwhile."""

from collections.abc import Collection

import pytest

from tvm_xengine.runtime.events import KEEP, SLEEP, WAIT
from tvm_xengine.runtime.stream_threads import ways_to_wait
from tvm_xengine.scheduling.platform import Stream


@pytest.mark.parametrize(
    ("streams", "cores", "ways"),
    [
        ([("a",), ("b",)], [{0}, {1}], [KEEP, KEEP]),
        ([("a",), ("b",)], [{0, 1}, {1, 2}], [WAIT, WAIT]),
        ([("a",), ("b",)], [(), ()], [WAIT, WAIT]),
        ([("a",), ("b",)], [{0}, ()], [WAIT, WAIT]),
        ([("a",), ("b",), ("a", "b")], [{0}, {1}, {2}], [KEEP, KEEP, WAIT]),
        ([("a",), ("b",), ("a", "b")], [{0}, {1}, ()], [WAIT, WAIT, SLEEP]),
    ],
)
def test_only_who_has_cores_of_its_own_keeps_them(
    streams: list[Stream], cores: list[Collection[int]], ways: list[str]
) -> None:
    assert ways_to_wait(streams, cores) == ways
