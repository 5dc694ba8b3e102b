"""The collectives of a compiled program, counted in its HLO text."""

from collections.abc import Iterator
from dataclasses import dataclass

from ssm_jax.aot.hlo import parse, size_of, trip_count

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
"""The collectives of XLA."""


@dataclass(frozen=True)
class Collective:
    """The executions of one kind of collective.

    Attributes:
      kind: One of `KINDS`; asynchronous forms count as the kind that they start.
      count: Number of executions.
      bytes: Bytes of all executions on one device: of the operands or of the results
        of each, whichever are more.
    """

    kind: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Traffic:
    """What a program sends between devices in one execution.

    Attributes:
      collectives: The kinds that occur, in the order of `KINDS`.
      loops: Number of iterations of each loop of the program; None if it depends on
        values. A loop inside of another is listed once.
      exact: Whether all loops with collectives have a known number of iterations. Their
        bodies count once otherwise, so that counts and bytes are lower bounds.
    """

    collectives: tuple[Collective, ...]
    loops: tuple[int | None, ...]
    exact: bool


def traffic(text: str) -> Traffic:
    """Counts the collectives of one execution of a compiled program.

    The body of a loop counts as often as it is executed, and of the branches of a
    conditional the one that sends most.

    Args:
      text: HLO text of a compiled program, `jax.stages.Compiled.as_text`.

    Returns:
      The collectives and the loops.

    Raises:
      ValueError: The text has no entry computation.

    Example:
      >>> found = traffic('''
      ... ENTRY %main (x: f32[8]) -> f32[8] {
      ...   %x = f32[8]{0} parameter(0)
      ...   ROOT %sum = f32[8]{0} all-reduce(%x), replica_groups={}, to_apply=%add
      ... }''')
      >>> found.collectives
      (Collective(kind='all-reduce', count=1, bytes=32),)
    """
    computations, entry = parse(text)
    loops: dict[str, int | None] = {}
    counts, exact = _Counter(computations, loops).of(entry)
    ordered = (Collective(kind, *counts[kind]) for kind in KINDS if kind in counts)
    return Traffic(tuple(ordered), tuple(loops.values()), exact)


class _Counter:
    """Counts collectives through the calls of a module."""

    def __init__(self, computations, loops):
        self._computations, self._loops = computations, loops

    def of(self, name):
        """Returns ``{kind: (count, bytes)}`` of a computation, and if it is exact."""
        instructions = self._computations.get(name, [])
        types = {instruction.name: instruction.type for instruction in instructions}
        total, exact = {}, True
        for instruction in instructions:
            if kind := _kind(instruction.opcode):
                if _is_start(instruction, instructions):
                    _add(total, {kind: (1, _payload(instruction, types))})
                continue
            for counts, is_exact in self._callees(instruction):
                _add(total, counts)
                exact &= is_exact
        return total, exact

    def _callees(self, instruction) -> Iterator[tuple[dict, bool]]:
        attributes = instruction.attributes()
        if instruction.opcode == "while":
            n_iterations = trip_count(instruction, self._computations)
            self._loops[instruction.name] = n_iterations
            for part in (attributes["body"], attributes["condition"]):
                counts, exact = self.of(part)
                scaled_counts = {
                    kind: (n * (n_iterations or 1), size * (n_iterations or 1))
                    for kind, (n, size) in counts.items()
                }
                yield scaled_counts, exact and not (counts and n_iterations is None)
        elif instruction.opcode == "conditional":
            parts = [self.of(name) for name in instruction.branches()]
            yield max(parts, key=lambda part: _total_bytes(part[0]), default=({}, True))
        elif instruction.opcode in ("fusion", "async-start"):
            yield self.of(attributes["calls"])
        elif instruction.opcode == "call":
            yield self.of(attributes["to_apply"])


def _kind(opcode):
    """The collective that an opcode is or starts, or None; its end counts as none."""
    name = opcode.removesuffix("-start")
    return name if name in KINDS else None


def _is_start(instruction, instructions):
    """Whether a collective begins here.

    The TPU compiler writes one that runs beside other operations into the fusion that
    starts it, those that run meanwhile and the one that ends it, with one number.
    """
    if "chain_id=" not in instruction.rest:
        return True
    return any('"AsyncCollectiveStart"' in other.rest for other in instructions)


def _payload(instruction, types):
    result = instruction.type
    # Types of asynchronous forms hold the operands, the results and contexts.
    if (
        instruction.opcode.endswith("-start")
        and instruction.opcode != "all-reduce-start"
    ):
        result = _elements(result)[1]
    operand_bytes = sum(size_of(types.get(name, "")) for name in instruction.operands)
    return max(operand_bytes, size_of(result))


def _elements(type_):
    """The types in a tuple type."""
    types, depth, start = [], 0, 1
    for position, letter in enumerate(type_):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(letter, 0)
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            types.append(type_[start:position])
            start = position + 1
    return types


def _add(total, counts):
    for kind, (n, size) in counts.items():
        count, so_far = total.get(kind, (0, 0))
        total[kind] = count + n, so_far + size


def _total_bytes(counts):
    return sum(size for _, size in counts.values())
