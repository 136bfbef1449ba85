"""Which entries are hidden: seeded patterns that return a boolean matrix of sites, ``True`` = hidden.

A pattern is a small frozen object; called with counts, and optionally with the entries that may be hidden at all and with
groups of cells and of genes, it returns the sites. The same seed gives the same sites.
"""

from sccountsdiff.benchmark.missingness.base import MISSINGNESS, Missingness, get_missingness, register_missingness
from sccountsdiff.benchmark.missingness.entries import MAR, MCAR, MNARHigh, MNARLow, valid_sites
from sccountsdiff.benchmark.missingness.genes import CorrelatedPanel, Modality, Panel
from sccountsdiff.benchmark.missingness.molecules import SEEN_SHARE, Molecules, split_molecules

__all__ = [
    "MAR",
    "MCAR",
    "CorrelatedPanel",
    "Missingness",
    "MNARHigh",
    "MNARLow",
    "Modality",
    "Molecules",
    "Panel",
    "get_missingness",
    "register_missingness",
    "split_molecules",
    "valid_sites",
]
