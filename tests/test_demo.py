"""The demonstration leaves a table, a figure and imputed counts that agree with each other."""

from __future__ import annotations

import subprocess
import sys

import anndata
import numpy as np
import pandas as pd

from sccountsdiff.demo import HIDDEN_SHARE, N_DRAWS, SIMPLE_METHODS, run_demo

EXTRAS = ("ForestDiffusion", "catboost", "diffusers", "igraph", "leidenalg", "lightgbm", "xgboost")


def test_writes_table_figure_and_counts(tmp_path):
    table = run_demo(tmp_path / "new" / "folder", max_epochs=1)
    tmp_path = tmp_path / "new" / "folder"
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "demo.png", "imputed.h5ad"}
    ours = ["CountsDiff, 1 draw", f"CountsDiff, mean of {N_DRAWS} draws", "CountsDiff, one-pass mean"]
    assert table.index.tolist() == [*SIMPLE_METHODS.values(), *ours]
    assert np.isfinite(table).all(axis=None)
    np.testing.assert_allclose(pd.read_csv(tmp_path / "table.csv", index_col=0), table)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    imputed = anndata.read_h5ad(tmp_path / "imputed.h5ad")
    hidden = imputed.layers["hidden"]
    assert abs(hidden.mean() - HIDDEN_SHARE) < 0.01  # 5 standard errors of 107,100 entries are 0.008
    np.testing.assert_array_equal(imputed.layers["imputed"].toarray()[~hidden], imputed.X.toarray()[~hidden])
    assert table.loc["zero", "RMSE"] > table.loc["gene mean", "RMSE"] > table.loc["cell-type mean", "RMSE"]


def test_core_dependencies_are_enough(tmp_path):
    """With packages of the extras made impossible to import."""
    code = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS}))
from sccountsdiff.demo import run_demo
print([name for name in ("images", "paper", "simulated") if f"sccountsdiff.benchmark.{{name}}" in sys.modules])
print(run_demo({str(tmp_path)!r}, max_epochs=1).notna().all(axis=None))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("[]\n") and answer.stdout.endswith("True\n")
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "demo.png", "imputed.h5ad"}
