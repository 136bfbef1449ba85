"""The demonstration leaves a table, a figure and imputed counts that agree, and needs no extra of the package."""

from __future__ import annotations

import subprocess
import sys

import anndata
import numpy as np
import pandas as pd

from sccountsdiff.demo import HIDDEN_SHARE, N_DRAWS, SIMPLE_METHODS

EXTRAS = ("ForestDiffusion", "catboost", "diffusers", "igraph", "leidenalg", "lightgbm", "xgboost")
CODE = """
import sys
sys.modules.update(dict.fromkeys({extras}))  # packages of the extras can then not be imported
from sccountsdiff.demo import run_demo
run_demo({folder!r}, max_epochs=1)
print([name for name in ("images", "paper", "simulated") if f"sccountsdiff.benchmark.{{name}}" in sys.modules])
"""


def test_writes_table_figure_and_counts_with_core_dependencies_alone(tmp_path):
    folder = tmp_path / "new" / "folder"
    code = CODE.format(extras=EXTRAS, folder=str(folder))
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.endswith("[]\n"), "loads no other part of the benchmark"
    assert {path.name for path in folder.iterdir()} == {"table.csv", "demo.png", "imputed.h5ad"}
    table = pd.read_csv(folder / "table.csv", index_col=0)
    ours = ["CountsDiff, 1 draw", f"CountsDiff, mean of {N_DRAWS} draws", "CountsDiff, one-pass mean"]
    assert table.index.tolist() == [*SIMPLE_METHODS.values(), *ours]
    assert np.isfinite(table).all(axis=None)
    assert table.loc["zero", "RMSE"] > table.loc["gene mean", "RMSE"] > table.loc["cell-type mean", "RMSE"]
    assert (folder / "demo.png").stat().st_size > 10_000
    imputed = anndata.read_h5ad(folder / "imputed.h5ad")
    hidden = imputed.layers["hidden"]
    assert abs(hidden.mean() - HIDDEN_SHARE) < 0.01  # 5 standard errors of 107,100 entries are 0.008
    np.testing.assert_array_equal(imputed.layers["imputed"].toarray()[~hidden], imputed.X.toarray()[~hidden])
