"""One call of a function of cuDNN or cuBLAS, with everything that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tvm import ir, tirx

from tvm_xengine.kernels.library.assembly import SCRATCH, checked_call
from tvm_xengine.kernels.library.stages import Stage


@dataclass(frozen=True)
class Word:
    """An address of this process, which compiled code reads from its context."""

    value: int


@dataclass(frozen=True)
class Tensor:
    """A parameter of the call, by its number, or `SCRATCH`."""

    number: int


@dataclass(frozen=True)
class Number:
    """A number in the code."""

    value: int
    dtype: str = "int32"


@dataclass(frozen=True)
class FunctionCall:
    """A call that computes all of a claim.

    Attributes
    ----------
    algorithm
        What the library runs; with the same name it computes the same bits.
    tensors_bytes
        Of operands and result.
    keeps
        What `Word`s lead to.
    """

    library: str
    function: str
    arguments: tuple[Word | Tensor | Number, ...]
    scratch_bytes: int
    algorithm: str
    tensors_bytes: int
    keeps: tuple[object, ...]

    @property
    def addresses(self) -> tuple[int, ...]:
        """The context: the words in order."""
        return tuple(each.value for each in self.arguments if isinstance(each, Word))

    @property
    def words(self) -> int:
        """Length of the context."""
        return len(self.addresses)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The call alone."""
        return (Stage(f"{self.library}:{self.algorithm}", False, self.tensors_bytes),)

    def statements(self, tensors: Mapping[int, ir.Expr], context: ir.Var) -> list[tirx.Stmt]:
        """The code of the call."""
        given: list[ir.Expr] = []
        position = 0
        for each in self.arguments:
            match each:
                case Word():
                    given.append(tirx.BufferLoad(context, [tirx.const(position, "int64")]))
                    position += 1
                case Tensor():
                    given.append(tensors[each.number])
                case Number():
                    given.append(tirx.const(each.value, each.dtype))
        return [checked_call(self.library, self.function, *given)]


def scratch(size_bytes: int) -> tuple[Tensor | Number, Number]:
    """The two arguments for temporary memory: its address and its size."""
    size = Number(size_bytes, "int64")
    return (Tensor(SCRATCH) if size_bytes else Number(0, "int64")), size
