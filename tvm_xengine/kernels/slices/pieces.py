"""Take a kernel apart where all slices must be done before any can go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tvm import ir, tirx

from tvm_xengine.errors import UnsupportedModuleError
from tvm_xengine.kernels.inplace import num_outputs
from tvm_xengine.kernels.schedules.blocks import Block, read_blocks
from tvm_xengine.kernels.slices.sharing import Dimensions, Sharing, sharing_of
from tvm_xengine.relax_ir.kernel_attributes import inplace_pairs


@dataclass(frozen=True)
class Piece:
    """Some blocks of a kernel, which run once for each slice or once for all.

    Attributes
    ----------
    blocks
        Their numbers in the kernel.
    inputs, outputs
        Buffers of the kernel that the piece reads and leaves.
    is_whole
        Whether it runs once, on whole tensors.
    sums
        Outputs of which every slice makes a part, to be added.
    """

    blocks: tuple[int, ...]
    inputs: tuple[ir.Var, ...]
    outputs: tuple[ir.Var, ...]
    is_whole: bool
    sums: frozenset[ir.Var] = frozenset()


@dataclass(frozen=True)
class Division:
    """A kernel as pieces that follow one another.

    Attributes
    ----------
    parts
        Number of equal units, of which a slice is one or several in a row.
    blocks, shared
        The blocks of the kernel, and how the units share each of them out.
    sliced
        The dimensions that divide its buffers; others are whole.
    """

    kernel: tirx.PrimFunc
    parts: int
    blocks: tuple[Block, ...]
    shared: tuple[Sharing, ...]
    sliced: Dimensions
    pieces: tuple[Piece, ...]

    @property
    def is_one_piece(self) -> bool:
        """Whether each slice runs the kernel as it is, on less."""
        return len(self.pieces) == 1 and not self.pieces[0].is_whole


def divide(
    kernel: tirx.PrimFunc, sliced: Mapping[int, int], given: Collection[int], parts: int
) -> Division | None:
    """The pieces of a kernel some of whose inputs come in slices; None where that is not possible.

    A sum over all slices, such as a mean over the batch, ends a piece: what depends on it comes in
    a later one, and blocks of an earlier piece are repeated there rather than kept. The numbers
    are those of the whole kernel but for the order in which sums are added.

    Parameters
    ----------
    sliced
        By number of the input, the dimension that its slices divide.
    given
        Numbers of those inputs that are there as a whole, too. Sums over nothing else are not
        divided, so that no slice waits for another because of them.
    parts
        Number of equal units, of which a slice is one or several in a row.
    """
    blocks = read_blocks(kernel)
    if blocks is None or inplace_pairs(kernel):
        return None
    try:
        first_output = len(kernel.params) - num_outputs(kernel)
    except UnsupportedModuleError:
        return None
    inputs, outputs = kernel.params[:first_output], kernel.params[first_output:]
    reader = _Reader(blocks, tuple(inputs), tuple(outputs), parts)
    reader.sliced = {kernel.params[number]: dimension for number, dimension in sliced.items()}
    reader.given = {kernel.params[number] for number in given}
    if not all(map(reader.read, range(len(blocks)))):
        return None
    if not any(reader.is_slice(block) for block in range(len(blocks))):
        return None
    pieces = reader.pieces()
    return Division(kernel, parts, blocks, tuple(reader.shared), reader.sliced, pieces)


@dataclass
class _Reader:
    """Reads the blocks of a kernel in turn, and gathers them in pieces.

    Attributes
    ----------
    level
        By block: so many times all slices must have been added up before it can run.
    """

    blocks: tuple[Block, ...]
    inputs: tuple[ir.Var, ...]
    outputs: tuple[ir.Var, ...]
    parts: int
    sliced: dict[ir.Var, int] = field(default_factory=dict)
    given: set[ir.Var] = field(default_factory=set)
    shared: list[Sharing] = field(default_factory=list)
    level: list[int] = field(default_factory=list)
    made_by: dict[ir.Var, int] = field(default_factory=dict)

    def read(self, number: int) -> bool:
        """Place a block; False where it cannot be sliced."""
        block = self.blocks[number]
        sharing = sharing_of(block, self.sliced, self.parts)
        if sharing is None or not self.made_by.keys().isdisjoint(block.written):
            return False
        read = {load.buffer for load in block.loads}
        if sharing.is_sum and read & self.sliced.keys() <= self.given:
            sharing = Sharing()
        self.shared.append(sharing)
        self.sliced.update(sharing.stored)
        self.level.append(max([self._level_of(buffer) for buffer in read], default=0))
        self.made_by.update(dict.fromkeys(block.written, number))
        return True

    def _level_of(self, buffer: ir.Var) -> int:
        if (maker := self.made_by.get(buffer)) is None:
            return 0
        return self.level[maker] + self.shared[maker].is_sum

    def is_slice(self, block: int) -> bool:
        """Whether a block runs once for each slice."""
        return self.shared[block].axis is not None

    def pieces(self) -> tuple[Piece, ...]:
        """All pieces in the order in which they run."""
        found = []
        for level in range(max(self.level) + 1):
            found += [self._whole_piece(level), self._slice_piece(level)]
        return tuple(piece for piece in found if piece is not None)

    def _whole_piece(self, level: int) -> Piece | None:
        at_level = [
            number
            for number in range(len(self.blocks))
            if self.level[number] == level and not self.is_slice(number)
        ]
        ends = [number for number in at_level if level or self._is_end(number)]
        return self._piece(ends, is_whole=True)

    def _slice_piece(self, level: int) -> Piece | None:
        ends = [
            number
            for number in range(len(self.blocks))
            if self.level[number] == level
            and self.is_slice(number)
            and (self.shared[number].is_sum or self._makes_output(number))
        ]
        return self._piece(ends, is_whole=False)

    def _is_end(self, number: int) -> bool:
        """Whether a block that waits for nothing runs once and for all, not anew in each slice."""
        reads_given = any(load.buffer in self.given for load in self.blocks[number].loads)
        return reads_given or self._makes_output(number)

    def _makes_output(self, number: int) -> bool:
        return not self.blocks[number].written.isdisjoint(self.outputs)

    def _piece(self, ends: Sequence[int], *, is_whole: bool) -> Piece | None:
        if not ends:
            return None
        level = self.level[ends[0]]
        chosen, waiting = set(ends), list(ends)
        inputs: dict[ir.Var, None] = {}
        while waiting:
            for load in self.blocks[waiting.pop()].loads:
                maker = self.made_by.get(load.buffer)
                if maker is None or (maker not in chosen and self._is_left(maker, level, is_whole)):
                    inputs[load.buffer] = None
                elif maker not in chosen:
                    chosen.add(maker)
                    waiting.append(maker)
        blocks = tuple(sorted(chosen))
        outputs = [
            buffer
            for number in blocks
            for buffer in sorted(self.blocks[number].written, key=lambda buffer: buffer.name)
            if number in ends and self._is_needed(buffer, chosen)
        ]
        order = {buffer: place for place, buffer in enumerate(self.outputs)}
        outputs.sort(key=lambda buffer: order.get(buffer, len(order)))
        sums = frozenset(b for b in outputs if self.shared[self.made_by[b]].is_sum)
        return Piece(blocks, self._in_order(inputs), tuple(outputs), is_whole, sums)

    def _is_left(self, maker: int, level: int, is_whole: bool) -> bool:
        """Whether an earlier piece leaves what a block makes."""
        if self.is_slice(maker):
            is_earlier = self.level[maker] < level
            return self.shared[maker].is_sum or (is_earlier and self._makes_output(maker))
        if self.level[maker]:
            return not is_whole or self.level[maker] < level
        return self._is_end(maker) and not (is_whole and level == 0)

    def _is_needed(self, buffer: ir.Var, chosen: Collection[int]) -> bool:
        """Whether a buffer is a result, or is read outside the chosen blocks."""
        others = (block for number, block in enumerate(self.blocks) if number not in chosen)
        return (
            buffer in self.outputs
            or self.shared[self.made_by[buffer]].is_sum
            or any(load.buffer.same_as(buffer) for block in others for load in block.loads)
        )

    def _in_order(self, buffers: Collection[ir.Var]) -> tuple[ir.Var, ...]:
        """Inputs of the kernel first, as they were, then what the blocks make."""
        place = {buffer: at - len(self.inputs) for at, buffer in enumerate(self.inputs)}
        return tuple(sorted(buffers, key=lambda b: place[b] if b in place else self.made_by[b]))
