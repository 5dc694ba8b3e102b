"""Compiled programs as HLO text: their instructions, loops and sizes."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_ATTRIBUTE = re.compile(r"(\w+)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (.*)$")
_TRIP_COUNT = re.compile(r'known_trip_count"?:\{"?n"?:"?(\d+)')
_TYPE = re.compile(r"([a-z]+\d*\w*)\[([\d,<=]*)\](\{[^}]*\})?")


class Instruction(NamedTuple):
    """An instruction of a computation.

    Attributes:
      name: Its name, without the percent sign.
      type: Type of its result.
      opcode: What it does.
      operands: Names of its operands.
      rest: The arguments as text, and the attributes.
      is_root: Whether it is the result of its computation.
    """

    name: str
    type: str
    opcode: str
    operands: tuple[str, ...]
    rest: str
    is_root: bool

    def attributes(self) -> dict[str, str]:
        """Returns the attributes that are names or numbers."""
        return dict(_ATTRIBUTE.findall(self.rest))

    def branches(self) -> list[str]:
        """Returns the names of the computations of a conditional."""
        match = _BRANCHES.search(self.rest)
        names = re.findall(r"[\w.\-]+", match.group(1)) if match else []
        attributes = self.attributes()
        keys = "true_computation", "false_computation"
        return names + [attributes[key] for key in keys if key in attributes]


Computations = Mapping[str, Sequence[Instruction]]
"""The instructions of each computation of a module."""


def parse(text: str) -> tuple[Computations, str]:
    """Returns the computations of a module, and the name of the entry.

    Args:
      text: HLO text of a compiled program, `jax.stages.Compiled.as_text`.

    Raises:
      ValueError: The text has no entry computation.
    """
    computations: dict[str, list[Instruction]] = {}
    current, entry = None, None
    for line in text.splitlines():
        if header := _COMPUTATION.match(line):
            current = computations.setdefault(header.group(2), [])
            entry = header.group(2) if header.group(1) else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := _INSTRUCTION.match(line)):
            current.append(_instruction(*match.groups()))
    if entry is None:
        raise ValueError(
            "`text` must be that of an HLO module, got none with an entry; "
            "`compiled.as_text()` returns it."
        )
    return computations, entry


def trip_count(loop: Instruction, computations: Computations) -> int | None:
    """Returns the number of iterations of a loop, or None if it depends on values."""
    if known := _TRIP_COUNT.search(loop.rest):
        return int(known.group(1))
    # Loops of JAX with a fixed number of iterations count from 0 in steps of 1.
    instructions = list(computations.get(loop.attributes()["condition"], []))
    root = next(
        (instruction for instruction in instructions if instruction.is_root), None
    )
    while root is not None and root.opcode == "fusion":
        fused = computations.get(root.attributes()["calls"], [])
        instructions += fused
        root = next((instruction for instruction in fused if instruction.is_root), None)
    if root is None or root.opcode != "compare" or "direction=LT" not in root.rest:
        return None
    values = {
        instruction.rest.split(")")[0]
        for instruction in instructions
        if instruction.opcode == "constant"
        and instruction.type.startswith(("s32", "u32"))
    }
    value = values.pop() if len(values) == 1 else ""
    return int(value) if value.isdecimal() else None


def size_of(type_: str, *, off_chip: bool = False) -> int:
    """Returns the bytes of all arrays in a type.

    Args:
      type_: A type, possibly of a tuple.
      off_chip: Leave out arrays in the on-chip memory of a TPU.
    """
    total = 0
    for dtype, shape, layout in _TYPE.findall(type_):
        # `S(1)`, in a layout, is a memory space.
        if off_chip and "S(" in layout:
            continue
        bits = re.search(r"\d+", dtype)
        n_bits = int(bits.group()) if bits else {"pred": 8}.get(dtype, 0)
        sizes = [int(size.lstrip("<=")) for size in shape.split(",") if size]
        total += math.prod(sizes) * n_bits // 8
    return total


def _instruction(root, name, rest):
    # Types and layouts have parentheses: `(f32[8]{0:T(8,128)}, u32[])`.
    if rest.startswith("("):
        end = _closing_parenthesis(rest, 0) + 1
        type_, rest = rest[:end], rest[end + 1 :]
    else:
        type_, _, rest = rest.partition(" ")
    opcode, _, rest = rest.partition("(")
    arguments = rest[: _closing_parenthesis("(" + rest, 0) - 1]
    operands = tuple(re.findall(r"%([\w.\-]+)", arguments))
    return Instruction(name, type_, opcode, operands, rest, root is not None)


def _closing_parenthesis(text, start):
    """Returns the position of the parenthesis that closes the one at ``start``."""
    depth = 0
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)
