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
    found, exact = _Counter(computations, loops).of(entry)
    ordered = (Collective(kind, *found[kind]) for kind in KINDS if kind in found)
    return Traffic(tuple(ordered), tuple(loops.values()), exact)


class _Counter:
    """Counts collectives through the calls of a module."""

    def __init__(self, computations, loops):
        self._computations, self._loops = computations, loops

    def of(self, name):
        """Returns ``{kind: (count, bytes)}`` of a computation, and if it is exact."""
        instructions = self._computations.get(name, [])
        types = {each.name: each.type for each in instructions}
        total, exact = {}, True
        for each in instructions:
            if kind := _kind(each.opcode):
                if _is_start(each, instructions):
                    _add(total, {kind: (1, _payload(each, types))})
                continue
            for found, is_exact in self._called(each):
                _add(total, found)
                exact &= is_exact
        return total, exact

    def _called(self, each) -> Iterator[tuple[dict, bool]]:
        named = each.attributes()
        if each.opcode == "while":
            times = trip_count(each, self._computations)
            self._loops[each.name] = times
            for part in (named["body"], named["condition"]):
                found, exact = self.of(part)
                times_found = {
                    kind: (n * (times or 1), size * (times or 1))
                    for kind, (n, size) in found.items()
                }
                yield times_found, exact and not (found and times is None)
        elif each.opcode == "conditional":
            parts = [self.of(name) for name in each.branches()]
            yield max(parts, key=lambda part: _total_bytes(part[0]), default=({}, True))
        elif each.opcode in ("fusion", "async-start"):
            yield self.of(named["calls"])
        elif each.opcode == "call":
            yield self.of(named["to_apply"])


def _kind(opcode):
    """The collective that an opcode is or starts, or None; its end counts as none."""
    name = opcode.removesuffix("-start")
    return name if name in KINDS else None


def _is_start(each, instructions):
    """Whether a collective begins here.

    The TPU compiler writes one that runs beside other operations into the fusion that
    starts it, those that run meanwhile and the one that ends it, with one number.
    """
    if "chain_id=" not in each.rest:
        return True
    return any('"AsyncCollectiveStart"' in other.rest for other in instructions)


def _payload(each, types):
    result = each.type
    # Types of asynchronous forms hold the operands, the results and contexts.
    if each.opcode.endswith("-start") and each.opcode != "all-reduce-start":
        result = _elements(result)[1]
    given = sum(size_of(types.get(name, "")) for name in each.operands)
    return max(given, size_of(result))


def _elements(type_):
    """The types in a tuple type."""
    found, depth, start = [], 0, 1
    for position, letter in enumerate(type_):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(letter, 0)
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            found.append(type_[start:position])
            start = position + 1
    return found


def _add(total, found):
    for kind, (n, size) in found.items():
        count, so_far = total.get(kind, (0, 0))
        total[kind] = count + n, so_far + size


def _total_bytes(found):
    return sum(size for _, size in found.values())
