"""Kernels of a compiled program and their memory traffic, read from its HLO text."""

from collections.abc import Callable, Sequence

from ssm_jax.aot.hlo import Computations, Instruction, parse, size_of, trip_count

# They read and write no memory of the device.
_NO_TRAFFIC = (
    "after-all",
    "bitcast",
    "constant",
    "get-tuple-element",
    "opt-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
)


def bytes_moved(text: str) -> int:
    """Returns the bytes that the kernels of a compiled program read and write.

    They are the operands and results of every operation that is not within a fusion,
    times the iterations of the loops around it. Arrays in the on-chip memory of a TPU
    count as none, a loop whose length depends on values as one iteration, and of a
    conditional the branch that moves most. Of an operand that is only sliced the slices
    count, and of an array that is updated in place the part that is written.

    Args:
      text: HLO text of a compiled program, `jax.stages.Compiled.as_text`.

    Returns:
      Bytes of one execution on one device.

    Raises:
      ValueError: The text has no entry computation.

    Example:
      >>> bytes_moved('''
      ... ENTRY %main (x: f32[8]) -> f32[8] {
      ...   %x = f32[8]{0} parameter(0)
      ...   ROOT %twice = f32[8]{0} add(%x, %x)
      ... }''')
      64
    """
    return _total(text, _instruction_bytes)


def kernels_run(text: str) -> int:
    """Returns the number of kernels that a compiled program runs.

    They are the operations that are not within a fusion, counted as by `bytes_moved`.
    On a TPU they are parts of one program, which run one after another.

    Args:
      text: HLO text of a compiled program, `jax.stages.Compiled.as_text`.

    Returns:
      Number of kernels of one execution on one device.

    Raises:
      ValueError: The text has no entry computation.
    """
    return _total(
        text, lambda instruction, *_: not instruction.opcode.endswith("-done")
    )


_Count = Callable[[Instruction, dict[str, str], Computations], int]


def _total(text: str, count: _Count) -> int:
    """Sums over all operations outside of fusions, times the iterations of loops."""
    computations, entry = parse(text)

    def computation_total(name):
        instructions = computations.get(name, [])
        types = {instruction.name: instruction.type for instruction in instructions}
        return sum(
            instruction_total(instruction, types) for instruction in instructions
        )

    def instruction_total(instruction, types):
        attributes = instruction.attributes()
        if instruction.opcode in _NO_TRAFFIC:
            return 0
        if instruction.opcode == "while":
            return (trip_count(instruction, computations) or 1) * computation_total(
                attributes["body"]
            )
        if instruction.opcode == "conditional":
            return max(map(computation_total, instruction.branches()))
        if instruction.opcode == "call":
            return computation_total(attributes["to_apply"])
        return count(instruction, types, computations)

    return computation_total(entry)


def _instruction_bytes(
    instruction: Instruction, types: dict[str, str], computations: Computations
) -> int:
    if instruction.opcode == "fusion-done":
        return 0
    if instruction.opcode in ("fusion", "fusion-start"):
        body = computations.get(instruction.attributes()["calls"], [])
        return _read_bytes(body, computations) + _written_bytes(body, computations)
    # As a fusion of this operation alone.
    body = [
        Instruction(name, types.get(name, ""), "parameter", (), "", False)
        for name in dict.fromkeys(instruction.operands)
    ]
    body.append(instruction._replace(is_root=True))
    # An asynchronous operation reads at its start and has written at its end.
    read = written = 0
    if not instruction.opcode.endswith("-done"):
        read = _read_bytes(body, computations)
    if not instruction.opcode.endswith("-start"):
        written = _written_bytes(body, computations)
    return read + written


def _read_bytes(body: Sequence[Instruction], computations: Computations) -> int:
    """Returns the bytes of its parameters that a fusion reads."""
    total = 0
    for parameter in body:
        if parameter.opcode == "parameter":
            whole = size_of(parameter.type, off_chip=True)
            total += min(_used_bytes(parameter, body, whole, computations), whole)
    return total


def _used_bytes(
    array: Instruction,
    body: Sequence[Instruction],
    whole: int,
    computations: Computations,
) -> int:
    total = 0
    for use in body:
        if array.name not in use.operands:
            continue
        if use.opcode == "bitcast":
            total += _used_bytes(use, body, whole, computations)
        elif use.opcode == "fusion":
            # Within another: it may slice what that one is given.
            inner = computations.get(use.attributes()["calls"], [])
            places = {i for i, name in enumerate(use.operands) if name == array.name}
            for parameter in inner:
                number = parameter.rest.partition(")")[0]
                if parameter.opcode == "parameter" and int(number) in places:
                    total += _used_bytes(parameter, inner, whole, computations)
        elif array.name in use.operands[1:]:
            return whole
        elif use.opcode in ("dynamic-slice", "slice", "gather"):
            total += size_of(use.type)
        elif use.opcode != "dynamic-update-slice":
            return whole
    return total


def _written_bytes(body: Sequence[Instruction], computations: Computations) -> int:
    """Returns the bytes of its result that a fusion writes."""
    by_name = {instruction.name: instruction for instruction in body}

    def result_bytes(instruction):
        operands = [by_name[name] for name in instruction.operands if name in by_name]
        if instruction.opcode == "tuple":
            return sum(map(result_bytes, operands))
        if instruction.opcode == "bitcast":
            return result_bytes(operands[0])
        if instruction.opcode == "dynamic-update-slice":
            return size_of(operands[1].type, off_chip=True)
        if instruction.opcode == "fusion":
            inner = computations.get(instruction.attributes()["calls"], [])
            return _written_bytes(inner, computations)
        return size_of(instruction.type, off_chip=True)

    return result_bytes(
        next(instruction for instruction in body if instruction.is_root)
    )
