"""Kernels of a compiled program and their memory traffic, read from its HLO text."""

from collections.abc import Callable, Sequence

from ssm_jax.aot.hlo import Computations, Instruction, parse, size_of, trip_count

# They read and write no memory of the device.
_FREE = (
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
    return _total(text, _moved)


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
    return _total(text, lambda each, *_: not each.opcode.endswith("-done"))


_Count = Callable[[Instruction, dict[str, str], Computations], int]


def _total(text: str, count: _Count) -> int:
    """Sums over all operations outside of fusions, times the iterations of loops."""
    computations, entry = parse(text)

    def of(name):
        instructions = computations.get(name, [])
        types = {each.name: each.type for each in instructions}
        return sum(counted(each, types) for each in instructions)

    def counted(each, types):
        named = each.attributes()
        if each.opcode in _FREE:
            return 0
        if each.opcode == "while":
            return (trip_count(each, computations) or 1) * of(named["body"])
        if each.opcode == "conditional":
            return max(map(of, each.branches()))
        if each.opcode == "call":
            return of(named["to_apply"])
        return count(each, types, computations)

    return of(entry)


def _moved(each: Instruction, types: dict[str, str], computations: Computations) -> int:
    if each.opcode == "fusion-done":
        return 0
    if each.opcode in ("fusion", "fusion-start"):
        body = computations.get(each.attributes()["calls"], [])
        return _read(body) + _written(body)
    # As a fusion of this operation alone.
    body = [
        Instruction(name, types.get(name, ""), "parameter", (), "", False)
        for name in dict.fromkeys(each.operands)
    ]
    body.append(each._replace(is_root=True))
    # An asynchronous operation reads at its start and has written at its end.
    read = 0 if each.opcode.endswith("-done") else _read(body)
    return read + (0 if each.opcode.endswith("-start") else _written(body))


def _read(body: Sequence[Instruction]) -> int:
    """Returns the bytes of its parameters that a fusion reads."""
    total = 0
    for parameter in body:
        if parameter.opcode == "parameter":
            whole = size_of(parameter.type, off_chip=True)
            total += min(_used(parameter, body, whole), whole)
    return total


def _used(array: Instruction, body: Sequence[Instruction], whole: int) -> int:
    total = 0
    for use in body:
        if array.name not in use.operands:
            continue
        if use.opcode == "bitcast":
            total += _used(use, body, whole)
        elif array.name in use.operands[1:]:
            return whole
        elif use.opcode in ("dynamic-slice", "slice", "gather"):
            total += size_of(use.type)
        elif use.opcode != "dynamic-update-slice":
            return whole
    return total


def _written(body: Sequence[Instruction]) -> int:
    """Returns the bytes of its result that a fusion writes."""
    by_name = {each.name: each for each in body}

    def of(each):
        operands = [by_name[name] for name in each.operands if name in by_name]
        if each.opcode == "tuple":
            return sum(map(of, operands))
        if each.opcode == "bitcast":
            return of(operands[0])
        if each.opcode == "dynamic-update-slice":
            return size_of(operands[1].type, off_chip=True)
        return size_of(each.type, off_chip=True)

    return of(next(each for each in body if each.is_root))
