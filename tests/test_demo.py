"""The demonstration needs no extra of the package; what it writes is tested with the command."""

import subprocess
import sys

EXTRAS = ("ForestDiffusion", "catboost", "diffusers", "igraph", "leidenalg", "lightgbm", "xgboost")


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
