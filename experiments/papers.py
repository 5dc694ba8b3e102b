"""The pages of results, with all tables and figures of the papers.

An experiment with published results has a dict ``PAPER`` from variants to results; each
of these variants is a cell of a table, which `tests/experiments/test_page.py` checks.
"""

from experiments import beyond, speed
from experiments.dlr import tables as dlr
from experiments.etsmlp import tables as etsmlp
from experiments.fru import tables as fru
from experiments.longssm import tables as longssm
from experiments.own_data import tables as own_data
from experiments.synthetic import tables as synthetic

PAPERS = {
    "dlr": dlr.PAPER,
    "etsmlp": etsmlp.PAPER,
    "fru": fru.PAPER,
    "longssm": longssm.PAPER,
}
"""The papers, by the name of their directory."""

PAGES = {
    **PAPERS,
    "beyond": beyond.PAPER,
    "synthetic": synthetic.PAPER,
    "own_data": own_data.PAPER,
    "speed": speed.PAPER,
}
"""The pages of ``experiments/results``, by name."""

HEADLINES = (
    "dlr/atomic:task=shift,size=small",
    "dlr/digits",
    "etsmlp/text:model=gate,size=small",
    "fru/mixture:curves=sines,model=fru,size=small",
    "fru/pixel_mnist:inputs=pixels,model=fru",
    "longssm/text:model=s5,length=16,state_init=carry,rows=32,size=small",
)
"""The results that the README shows."""
