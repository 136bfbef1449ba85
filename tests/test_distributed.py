"""Training on several processes: one split, noise of their own, one decision to stop, one saved model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sccountsdiff import CountsDiffImputer
from sccountsdiff.model.train import _are_several

SCRIPT = Path(__file__).with_name("two_processes.py")
sys.path.append(str(SCRIPT.parent))

import two_processes  # noqa: E402


def heldout_loss(model, cells) -> float:
    """Mean loss of many noised states of some cells, the same ones for every model."""
    x = torch.from_numpy(two_processes.make_model().adata.X[cells].toarray())
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        losses = [model.module.eval()({"X": x}, inference_kwargs={"generator": generator})[2].loss for _ in range(50)]
    return float(torch.stack(losses).mean())


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp"])
def test_two_processes_train_one_model(strategy, tmp_path, seeded):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), strategy, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1))
    assert {path.name for path in tmp_path.glob("done*")} == {"done0"} | ({"done1"} if strategy == "ddp" else set())
    assert first["n_processes"] == 2
    assert first["cells"] != second["cells"] and first["noise"] != second["noise"]
    assert (
        first["loss"] == second["loss"] and first["epochs"] == second["epochs"] < two_processes.SETTINGS["max_epochs"]
    )

    with seeded(0):
        alone = two_processes.make_model()
        alone.train(accelerator="cpu", batch_size=64, **two_processes.SETTINGS)
        model = CountsDiffImputer.load(tmp_path / "model", adata=two_processes.make_model().adata, accelerator="cpu")
    cells = alone.validation_indices
    untrained, trained, together = (heldout_loss(m, cells) for m in (two_processes.make_model(), alone, model))
    assert untrained - together > 0.8 * (untrained - trained) > 0
    assert model.impute(n_samples=1, silent=True).shape == (400, 20)


@pytest.mark.parametrize(
    ("devices", "n_nodes", "expected"),
    [
        (1, 1, False),
        ("auto", 1, False),
        ([0], 1, False),
        (2, 1, True),
        ("2", 1, True),
        ("0,", 1, False),
        ("0,2", 1, True),
        ([0, 3], 1, True),
        (1, 2, True),
    ],
)
def test_several_devices_are_noticed(devices, n_nodes, expected):
    assert _are_several(devices, n_nodes) == expected
