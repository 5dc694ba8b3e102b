"""Faults apply to the code of today."""

from pathlib import Path

import pytest

from tests.faults.faults import FAULTS, Fault

_ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_changes_its_file(fault: Fault):
    source = (_ROOT / fault.file).read_text()
    assert fault.applied(source) != source
