"""The command line does what the model does, and says in one line what is wrong."""

import subprocess
import sys

import anndata
import numpy as np
import pytest

from sccountsdiff import CountsDiffImputer, datasets
from sccountsdiff.cli import main
from sccountsdiff.diffusion import Fisher
from sccountsdiff.nn import Softplus, Transformer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small .h5ad file with a mask of observed counts, and a model trained on it through the command."""
    folder = tmp_path_factory.mktemp("cli")
    adata = datasets.pbmc68k()[:80, :40].copy()
    adata.layers["observed"] = np.random.default_rng(0).random(adata.shape) < 0.8
    adata.write_h5ad(folder / "data.h5ad")
    train = ["train", str(folder / "data.h5ad"), str(folder / "model"), "--covariate", "cell_type"]
    assert main([*train, "--mask-layer", "observed", "--max-epochs", "2"]) == 0
    return folder


def test_impute_writes_what_the_model_imputes(files):
    output = files / "imputed.h5ad"
    arguments = ["impute", str(files / "data.h5ad"), str(files / "model"), str(output), "--n-samples", "2"]
    assert main([*arguments, "--n-steps", "3", "--seed", "5", "--key-added", "filled"]) == 0
    adata = anndata.read_h5ad(files / "data.h5ad")
    expected = CountsDiffImputer.load(files / "model", adata=False).impute(
        adata, n_samples=2, n_steps=3, seed=5, silent=True, key_added=None
    )
    written = anndata.read_h5ad(output)
    assert (written.layers["filled"] != expected).nnz == 0
    observed = adata.layers["observed"]
    np.testing.assert_array_equal(written.layers["filled"].toarray()[observed], adata.X.toarray()[observed])


def test_what_impute_can_be_told(files):
    output = files / "told.h5ad"
    arguments = ["impute", str(files / "data.h5ad"), str(files / "model"), str(output), "--n-samples", "3"]
    assert main([*arguments, "--n-steps", "2", "--known", "noised", "--quantiles", "0.1", "0.9"]) == 0
    adata = anndata.read_h5ad(files / "data.h5ad")
    options = {"n_samples": 3, "n_steps": 2, "seed": 0, "silent": True}
    model = CountsDiffImputer.load(files / "model", adata=False)
    model.impute(adata, known="noised", quantiles=[0.1, 0.9], **options)
    written = anndata.read_h5ad(output)
    for layer in ("imputed", "imputed_sd", "imputed_q0.1", "imputed_q0.9"):
        assert (written.layers[layer] != adata.layers[layer]).nnz == 0
    clean = model.impute(adata, key_added=None, **options)
    assert (clean != adata.layers["imputed"]).nnz > 0, "known matters"


def test_zeros_are_filled_in_in_as_many_folds_as_asked_for(files):
    everything = files / "everything.h5ad"
    adata = anndata.read_h5ad(files / "data.h5ad")
    adata.layers["observed"][:] = True
    adata.write_h5ad(everything)
    arguments = ["impute", str(everything), str(files / "model"), str(files / "zeros.h5ad"), "--n-samples", "1"]
    assert main([*arguments, "--n-steps", "1", "--n-folds", "2"]) == 0
    assert anndata.read_h5ad(files / "zeros.h5ad").uns["sccountsdiff"]["imputed"]["n_folds"] == 2


def test_what_train_can_be_told(files):
    settings = ["--backbone", "transformer", "--schedule", "fisher", "--head", "softplus", "--no-observed-training"]
    arguments = ["train", str(files / "data.h5ad"), str(files / "other"), "--max-epochs", "1"]
    assert main([*arguments, *settings]) == 0
    module = CountsDiffImputer.load(files / "other", adata=False).module
    assert isinstance(module.denoiser.backbone, Transformer) and isinstance(module.schedule, Fisher)
    assert isinstance(module.denoiser.head, Softplus) and not module.observed_training


def test_mean_needs_no_draws(files):
    output = files / "mean.h5ad"
    assert main(["impute", str(files / "data.h5ad"), str(files / "model"), str(output), "--mean"]) == 0
    assert "imputed_sd" not in anndata.read_h5ad(output).layers


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "nowhere.h5ad", "new"], "nowhere.h5ad"),
        (["train", "{data}", "{model}"], "already exists"),
        (["train", "{data}", "new", "--layer", "umi"], "umi"),
        (["train", "{data}", "new", "--covariate", "celltype"], "cell_type"),
        (["impute", "{data}", "{model}", "out.h5ad", "--attrition", "2"], "attrition"),
        (["impute", "{data}", "{model}", "out.h5ad", "--known", "seen"], "`known` must be 'clean' or 'noised'"),
        (["impute", "{data}", "{model}", "out.h5ad", "--n-folds", "0"], "`n_folds` must be a whole number"),
        (["impute", "{data}", "{model}", "out.h5ad", "--quantiles", "5"], "`quantiles` must be within [0, 1]"),
        (["impute", "{data}", "{model}", "out.h5ad", "--mean", "--quantiles", "0.5"], "`quantiles` need draws"),
        (["train", "{data}", "new", "--schedule", "cosin"], "did you mean 'cosine'"),
        (["train", "{data}", "new", "--head", "zinb"], "Unknown head 'zinb'"),
        (["impute", "{data}", "{model}", "no_such_folder/out.h5ad"], "does not exist"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(files, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    arguments = [a.format(data=files / "data.h5ad", model=files / "model") for a in arguments]
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()[-1:]
    assert line.startswith("sccountsdiff: ")
    assert message in line
    assert not list(tmp_path.iterdir())


def test_help_does_not_wait_for_torch():
    code = "import sys\nfrom sccountsdiff.cli import main\ntry:\n    main(['--help'])\nfinally:\n    print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "benchmark" in answer
    assert answer.endswith("False\n")
