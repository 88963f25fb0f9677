from collections.abc import Iterator

import pytest
import tvm
from tvm.relax.ir.instrument import WellFormedInstrument


@pytest.fixture(autouse=True)
def _well_formed_before_and_after_every_pass() -> Iterator[None]:
    with tvm.transform.PassContext(instruments=[WellFormedInstrument()]):
        yield
