"""PBMC 3k of 10x Genomics with cell types, from two source archives on PyPI that carry it.

Counts are in PhenoGraph 1.5.7 (2,700 cells; genes found in at least 3 cells are kept, 13,714 of 32,738), names of
clusters for 2,638 cells in scplot 0.0.16. Cells without a name, which fail the usual quality filter, are "unassigned".

    python docs/benchmarks/pbmc3k.py PhenoGraph-1.5.7.tar.gz scplot-0.0.16.tar.gz pbmc3k.h5ad
"""

from __future__ import annotations

import argparse
import hashlib
import tarfile
import tempfile
from pathlib import Path

import anndata as ad
import scanpy as sc

CHECKSUMS = {
    "PhenoGraph-1.5.7": "46b28f9e043a00deba53bb5f35dd84793669ab2bd4ce78900bf7f15f1321515a",
    "scplot-0.0.16": "6f5978d6880f7d791569eee6326bbe407c4f4dbdde75a3247e3dca87425682a6",
}
COUNTS = "PhenoGraph-1.5.7/examples/data/filtered_gene_bc_matrices/hg19"
NAMES = "scplot-0.0.16/notebooks/pbmc3k.h5ad"


def unpack(archive: Path, name: str, folder: str) -> None:
    """Unpack an archive whose content is the one expected."""
    if hashlib.sha256(archive.read_bytes()).hexdigest() != CHECKSUMS[name]:
        raise ValueError(f"{archive} is not the source archive of {name}: its SHA-256 differs.")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phenograph", type=Path, help="source archive of PhenoGraph 1.5.7")
    parser.add_argument("scplot", type=Path, help="source archive of scplot 0.0.16")
    parser.add_argument("output", type=Path, help=".h5ad file to write")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        unpack(arguments.phenograph, "PhenoGraph-1.5.7", folder)
        unpack(arguments.scplot, "scplot-0.0.16", folder)
        cells = sc.read_10x_mtx(Path(folder, COUNTS))
        named = ad.read_h5ad(Path(folder, NAMES))
    sc.pp.filter_genes(cells, min_cells=3)
    if not cells.var_names.equals(named.raw.var_names):
        raise ValueError("The two archives do not hold the same genes.")
    names = named.obs["louvain"].astype(str)
    cells.obs["cell_type"] = names.reindex(cells.obs_names).fillna("unassigned").astype("category")
    cells.write_h5ad(arguments.output, compression="gzip")
    print(cells.obs["cell_type"].value_counts().to_string())


if __name__ == "__main__":
    main()
