"""Imputation from a file to a file: time, memory, and the same file after a kill.

    python docs/benchmarks/disk_to_disk.py --save docs/benchmarks/results/disk_to_disk.csv

Counts of 200,000 cells and 2,000 genes (simulated, negative binomial, a tenth of them above 0) are in an ``.h5ad`` file, of
which half of the cells lack a panel of 200 genes. A model that was trained on a few of the cells fills these in, with mean and
standard deviation, and writes them to another file. Memory is the peak of the process beyond what it has when model and file
are open. A second process is killed when half of the blocks are there, and the work done again by a third.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

from sccountsdiff import CountsDiffImputer
from sccountsdiff.files import digest_of_file, replacing

N_GENES, N_PANEL, N_TRAINING = 2000, 200, 1000
CHUNK = 5000


def cells(n_cells: int, first: int, rng: np.random.Generator) -> sp.csr_matrix:
    """Counts of some cells, of which every second lacks the panel."""
    means = np.exp(np.random.default_rng(0).normal(-3.3, 1.6, N_GENES))
    depth = rng.lognormal(0, 0.3, (n_cells, 1))
    counts = rng.poisson(rng.gamma(0.5, 2 * depth * means)).astype(np.float32)
    counts[(first + np.arange(n_cells)) % 2 == 0, :N_PANEL] = np.nan
    return sp.csr_matrix(counts)


def write_data(path: Path, n_cells: int) -> None:
    """Write the cells chunk by chunk."""
    rng = np.random.default_rng(1)
    names = {
        "obs": pd.DataFrame(index=[f"cell{i}" for i in range(n_cells)]),
        "var": pd.DataFrame(index=[f"gene{j}" for j in range(N_GENES)]),
    }
    first = min(CHUNK, n_cells)
    anndata.AnnData(cells(first, 0, rng), obs=names["obs"][:first], var=names["var"]).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        counts = anndata.io.sparse_dataset(file["X"])
        for start in range(first, n_cells, CHUNK):
            counts.append(cells(min(CHUNK, n_cells - start), start, rng))
        del file["obs"]
        anndata.io.write_elem(file, "obs", names["obs"])


def train(data: Path, model: Path) -> None:
    """Train on the first cells, in default settings but for few epochs: only the cost matters here."""
    some = anndata.read_h5ad(data, backed="r")[:N_TRAINING].to_memory()
    CountsDiffImputer.setup_anndata(some)
    trained = CountsDiffImputer(some)
    trained.train(max_epochs=3, enable_progress_bar=False)
    trained.save(model, overwrite=True)


def impute(data: Path, model: Path, out: Path) -> dict[str, float]:
    """Do the work in this process, and say what it took."""
    trained = CountsDiffImputer.load(model, adata=False)
    backed = anndata.read_h5ad(data, backed="r")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before, start = memory("VmRSS"), time.perf_counter()
    trained.impute(backed, out=out, silent=True)
    return {"seconds": time.perf_counter() - start, "GB beyond model": memory("VmHWM") - before}


def memory(name: str) -> float:
    """GB that this process holds (``VmRSS``), or has held at most (``VmHWM``); on Linux."""
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024 / 1e9


def start(*arguments: object) -> subprocess.Popen:
    """The work in a process of its own."""
    return subprocess.Popen(
        [sys.executable, __file__, "--work", *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


def kill_midway(folder: Path, out: Path, n_blocks: int, *arguments: object) -> int:
    """Start the work and kill it when half of the blocks are there; how many there were."""
    process = start(*arguments, out)
    blocks = folder / f".{out.name}.blocks"
    while process.poll() is None and len(list(blocks.glob("*.npz"))) < n_blocks // 2:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if out.exists():
        raise RuntimeError("The work was done before it was killed: take more cells.")
    return len(list(blocks.glob("*.npz")))


def main() -> None:
    """Measure, and save."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cells", type=int, default=200_000)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--work", nargs=3, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    logging.disable(logging.INFO)
    if arguments.work is not None:
        print(json.dumps(impute(*arguments.work)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, model = folder / "counts.h5ad", folder / "model"
        write_data(data, arguments.cells)
        train(data, model)
        process = start(data, model, folder / "whole.h5ad")
        found = json.loads(process.communicate()[0])
        found |= {"cells": arguments.cells, "genes": N_GENES, "GB read": data.stat().st_size / 1e9}
        found["GB written"] = (folder / "whole.h5ad").stat().st_size / 1e9
        n_blocks = -(-arguments.cells // 128)
        found["blocks kept after a kill"] = kill_midway(folder, folder / "killed.h5ad", n_blocks, data, model)
        start(data, model, folder / "killed.h5ad").communicate()
        same = digest_of_file(folder / "whole.h5ad") == digest_of_file(folder / "killed.h5ad")
        found["the same file"] = float(same)
    table = pd.DataFrame([found])
    print(table.T.to_string())
    if arguments.save:
        with replacing(arguments.save) as beside:
            table.to_csv(beside, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
