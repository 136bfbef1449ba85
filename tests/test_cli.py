"""The command line does what Python does, says in one line what is wrong, and keeps standard output for its summary."""

import inspect
import json
import os
import signal
import subprocess
import sys

import anndata
import mudata
import numpy as np
import pandas as pd
import pytest

from sccountsdiff import CountsDiffImputer, datasets, io
from sccountsdiff.cli import COMMANDS, METHODS, main
from sccountsdiff.diffusion import Fisher
from sccountsdiff.nn import Softplus, Transformer
from sccountsdiff.options import arguments_of

KEYS = {"categorical_covariate_keys": ["cell_type"], "mask_layer": "observed"}
LIKEWISE = ("train", "load", "impute", "denoise", "generate")
SMALL = ["--n-hidden", "8", "--n-layers", "1", "--max-epochs", "2", "--accelerator", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small .h5ad file with a mask of observed counts, and a model trained on it through the command."""
    folder = tmp_path_factory.mktemp("cli")
    adata = datasets.pbmc68k()[:80, :40].copy()
    adata.layers["observed"] = np.random.default_rng(0).random(adata.shape) < 0.8
    adata.write_h5ad(folder / "data.h5ad")
    train = ["train", str(folder / "data.h5ad"), str(folder / "model"), "--categorical-covariate-keys", "cell_type"]
    assert main([*train, "--mask-layer", "observed", "--seed", "3", *SMALL]) == 0
    return folder


@pytest.fixture
def run(files, tmp_path):
    """Run a command with the model, and with the file if it reads one: the path of what it wrote."""

    def run(command, *options, output="out.h5ad"):
        data = [] if command == "generate" else [files / "data.h5ad"]
        given = [command, *data, files / "model", tmp_path / output, "--accelerator", "cpu", *options]
        assert main(list(map(str, given))) == 0
        return tmp_path / output

    return run


@pytest.fixture
def model(files):
    return CountsDiffImputer.load(files / "model", adata=False, accelerator="cpu")


@pytest.fixture
def adata(files):
    return anndata.read_h5ad(files / "data.h5ad")


class TestSameAsInPython:
    def test_train_and_impute(self, run, seeded, adata):
        with seeded(3):
            CountsDiffImputer.setup_anndata(adata, **KEYS)
            model = CountsDiffImputer(adata, n_hidden=8, n_layers=1)
            model.train(max_epochs=2, accelerator="cpu", enable_progress_bar=False)
        model.impute(n_samples=2, n_steps=3, seed=5, quantiles=[0.5], silent=True)
        written = io.read(run("impute", "--n-samples", 2, "--n-steps", 3, "--seed", 5, "--quantiles", 0.5))
        for layer in ("imputed", "imputed_sd", "imputed_q0.5"):
            assert (written.layers[layer] != adata.layers[layer]).nnz == 0
        observed = adata.layers["observed"]
        np.testing.assert_array_equal(written.layers["imputed"].toarray()[observed], adata.X.toarray()[observed])

    def test_denoise(self, run, model, adata):
        written = io.read(run("denoise", "--depth", 3, "--final", "log_mean"))
        expected = model.denoise(adata, depth=3, final="log_mean", silent=True)
        np.testing.assert_array_equal(written.layers["denoised"], expected)
        assert written.uns["sccountsdiff"]["denoised"]["depth"] == 3

    def test_normalize(self, run, model, adata):
        written = io.read(run("normalize", "--library-size", 100, "--n-folds", 3, "--key-added", "scaled"))
        expected = model.get_normalized_expression(adata, library_size=100, n_folds=3, silent=True)
        np.testing.assert_array_equal(written.layers["scaled"], expected)

    def test_some_genes_by_a_file_of_names(self, run, model, adata, tmp_path):
        genes = adata.var_names[[7, 2]].tolist()
        (tmp_path / "genes.txt").write_text("\n".join(genes))
        layer = io.read(run("normalize", "--gene-list", tmp_path / "genes.txt")).layers["normalized"]
        expected = model.get_normalized_expression(adata, gene_list=genes, silent=True)
        np.testing.assert_array_equal(layer[:, [7, 2]], expected)
        assert np.isnan(np.delete(layer, [7, 2], axis=1)).all(), "nothing is made up for the others"

    @pytest.mark.parametrize("command", ["denoise", "normalize"])
    def test_genes_that_the_data_lacks_are_left_out(self, files, model, adata, tmp_path, command):
        few = adata[:, [4, 0, *range(8, adata.n_vars)]].copy()
        few.var_names = [*few.var_names[:-1], "no gene of the model"]
        few.write_h5ad(tmp_path / "few.h5ad")
        given = [command, str(tmp_path / "few.h5ad"), str(files / "model"), str(tmp_path / "out.h5ad"), "--quiet"]
        assert main(given) == 0
        predict = model.denoise if command == "denoise" else model.get_normalized_expression
        expected = np.asarray(predict(few, silent=True))[:, pd.Index(model.gene_names).get_indexer(few.var_names[:-1])]
        (layer,) = io.read(tmp_path / "out.h5ad").layers.keys() - few.layers.keys()
        written = io.read(tmp_path / "out.h5ad").layers[layer]
        np.testing.assert_array_equal(written[:, :-1], expected)
        assert np.isnan(written[:, -1]).all()

    def test_generate(self, run, model, adata, tmp_path):
        kinds = adata.obs["cell_type"].iloc[:4].tolist()
        written = io.read(run("generate", "--n-cells", 4, "--covariates", f"cell_type={kinds[0]}", "--seed", 9))
        expected = model.generate(4, {"cell_type": kinds[0]}, seed=9, silent=True)
        assert (written.X != expected.X).nnz == 0 and set(written.obs["cell_type"]) == {kinds[0]}
        pd.DataFrame({"cell_type": kinds}).to_csv(tmp_path / "cells.csv", index=False)
        options = ["--n-cells", 4, "--covariates", tmp_path / "cells.csv", "--seed", 9]
        written = io.read(run("generate", *options, output="out.zarr"))
        expected = model.generate(4, {"cell_type": kinds}, seed=9, silent=True)
        assert (written.X != expected.X).nnz == 0 and written.obs["cell_type"].tolist() == kinds

    @pytest.mark.parametrize("method", [*METHODS.values(), "setup_anndata", "setup_mudata", *LIKEWISE])
    def test_options_are_the_arguments(self, method):
        """Read from the file or asked of Python, names and defaults are the same."""
        found = getattr(CountsDiffImputer, method.rpartition(".")[2])
        others = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        real = {p.name: p.default for p in inspect.signature(found).parameters.values() if p.kind not in others}
        read = {argument.name: argument for argument in arguments_of("sccountsdiff.model", method)}
        real = {name: default for name, default in real.items() if name not in ("self", "cls")}
        assert {name: argument.default for name, argument in read.items()} == real and list(read) == list(real)
        assert all(argument.doc for argument in read.values())


class TestFiles:
    def test_what_train_can_be_told(self, files, tmp_path):
        settings = ["--backbone", "transformer", "--schedule", "fisher", "--head", "softplus", "--no-observed-training"]
        arguments = ["train", str(files / "data.h5ad"), str(tmp_path / "other"), "--max-epochs", "1"]
        assert main([*arguments, *settings, "--plan-kwargs", "lr=0.01", "--n-hidden", "8"]) == 0
        module = CountsDiffImputer.load(tmp_path / "other", adata=False).module
        assert isinstance(module.denoiser.backbone, Transformer) and isinstance(module.schedule, Fisher)
        assert isinstance(module.denoiser.head, Softplus) and not module.observed_training

    def test_several_modalities_in_one_model(self, adata, tmp_path, capsys):
        parts = {"rna": adata[:, 10:].copy(), "prot": adata[20:, :10].copy()}
        mudata.MuData(parts).write(tmp_path / "data.h5mu")
        data, model, output = (str(tmp_path / name) for name in ("data.h5mu", "model", "out.h5mu"))
        assert main(["train", data, model, *SMALL]) == 2
        assert (
            "say which hold counts, as in --modalities layer=rna or, for several, layer=rna,prot."
            in capsys.readouterr().err
        )
        assert main(["train", data, model, "--modalities", "layer=rna,prot", *SMALL]) == 0
        assert main(["impute", data, model, output, "--accelerator", "cpu"]) == 0
        assert "imputed_prot" in io.read(output).obsm and "imputed" in io.read(output).mod["rna"].layers
        assert main(["denoise", output, model, output, "--overwrite", "--accelerator", "cpu"]) == 0
        assert main(["normalize", output, model, output, "--overwrite", "--accelerator", "cpu"]) == 0
        written = io.read(output)
        assert {"imputed", "denoised", "normalized"} <= set(written.mod["prot"].layers)
        assert written.obsm["normalized_prot"].shape == (adata.n_obs, 10)

    def test_mudata(self, files, adata, tmp_path):
        mudata.MuData({"rna": adata}).write(tmp_path / "data.h5mu")
        data, model, output = (str(tmp_path / name) for name in ("data.h5mu", "model", "out.h5mu"))
        assert main(["train", data, model, "--modalities", "layer=rna", *SMALL]) == 0
        assert main(["denoise", data, model, output]) == 0
        layer = io.read(output).mod["rna"].layers["denoised"]
        assert layer.shape == adata.shape and np.isfinite(layer).all()

    def test_the_input_may_be_replaced_if_asked_for(self, files, adata, tmp_path, capsys):
        adata.write_h5ad(tmp_path / "data.h5ad")
        given = ["denoise", str(tmp_path / "data.h5ad"), str(files / "model"), str(tmp_path / "data.h5ad")]
        assert main(given) == 2 and "--overwrite" in capsys.readouterr().err
        assert main([*given, "--overwrite"]) == 0
        assert "denoised" in io.read(tmp_path / "data.h5ad").layers
        assert [path.name for path in tmp_path.iterdir()] == ["data.h5ad"]

    def test_a_model_is_replaced_only_if_asked_for(self, files, tmp_path, capsys):
        given = ["train", str(files / "data.h5ad"), str(tmp_path / "model"), *SMALL]
        (tmp_path / "model").mkdir()
        assert main(given) == 2 and "--overwrite" in capsys.readouterr().err
        assert main([*given, "--overwrite"]) == 0
        assert CountsDiffImputer.load(tmp_path / "model", adata=False).is_trained


class TestWhatIsPrinted:
    def test_json_alone_on_standard_output(self, files, tmp_path, capsys):
        given = ["train", str(files / "data.h5ad"), str(tmp_path / "model"), *SMALL, "--json"]
        assert main(given) == 0
        printed = capsys.readouterr()
        summary = json.loads(printed.out)
        assert summary["epochs"] == 2 and summary["cells"] == 80 and summary["genes"] == 40
        assert summary["best_validation_loss"] <= summary["validation_loss"] and "Training" in printed.err

    def test_quiet(self, run, capsys):
        run("denoise", "--quiet")
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err == ""
        run("impute", "--quiet", "--json", "--overwrite", "--n-samples", 1, "--n-steps", 1)
        printed = capsys.readouterr()
        assert json.loads(printed.out)["layers"] == ["imputed"] and printed.err == ""

    def test_inspect_a_model(self, files, capsys):
        assert main(["inspect", str(files / "model"), "--json"]) == 0
        about = json.loads(capsys.readouterr().out)
        assert about["genes"] == 40 and about["setup"]["mask_layer"] == "observed" and about["training"]["epochs"] == 2
        assert "CD19+ B" in about["covariates"]["cell_type"] and about["arguments"]["n_hidden"] == 8
        assert main(["inspect", str(files / "model")]) == 0
        assert "best_validation_loss: " in capsys.readouterr().out

    def test_inspect_data(self, run, capsys):
        output = run("impute", "--n-samples", 2, "--n-steps", 1)
        capsys.readouterr()
        assert main(["inspect", str(output), "--json"]) == 0
        about = json.loads(capsys.readouterr().out)
        assert (about["cells"], about["genes"]) == (80, 40) and set(about["obs"]) == {"cell_type"}
        # 5 standard errors of 3,200 entries are 0.035
        assert about["matrices"]["observed"]["false_share"] == pytest.approx(0.2, abs=0.035)
        assert about["made_by_sccountsdiff"]["imputed"]["n_steps"] == 1


BAD = [
    ([], "required: command"),
    (["trian"], "invalid choice: 'trian'"),
    (["train", "{data}"], "required: model"),
    (["train", "nowhere.h5ad", "new"], "There is no file or folder 'nowhere.h5ad'"),
    (["train", "{model}", "new"], "is of no known format"),
    (["train", "{text}", "new"], "cannot be read"),
    (["train", "{data}", "{model}"], "already exists"),
    (["train", "{data}", "no/such/folder"], "does not exist"),
    (["train", "{data}", "new", "--layer", "umi"], "umi"),
    (["train", "{data}", "new", "--categorical-covariate-keys", "celltype"], "cell_type"),
    (["train", "{data}", "new", "--schedule", "cosin"], "did you mean 'cosine'"),
    (["train", "{data}", "new", "--head", "zinb"], "Unknown head 'zinb'"),
    (["train", "{data}", "new", "--max-epochs", "0"], "`max_epochs` must be"),
    (["train", "{data}", "new", "--max-epochs", "many"], "--max-epochs: invalid int value: 'many'"),
    (["train", "{data}", "new", "--train-size", "2"], "train_size"),
    (["train", "{data}", "new", "--seed", "-1"], "--seed: must be a whole number of at least 0, not -1"),
    (["train", "{data}", "new", "--plan-kwargs", "lr"], "'lr' must be KEY=VALUE"),
    (["train", "{data}", "new", "--modalities", "layer=rna"], "--modalities is for MuData"),
    (["train", "{data}", "new", "--max-epoch", "1"], "unrecognized arguments: --max-epoch"),
    (["impute", "{data}", "{model}", "out.h5ad", "--attrition", "2"], "attrition"),
    (["impute", "{data}", "{model}", "out.h5ad", "--known", "seen"], "`known` must be 'clean' or 'noised'"),
    (["impute", "{data}", "{model}", "out.h5ad", "--n-folds", "0"], "`n_folds` must be a whole number"),
    (["impute", "{data}", "{model}", "out.h5ad", "--quantiles", "5"], "`quantiles` must be within [0, 1]"),
    (["impute", "{data}", "{model}", "out.h5ad", "--sites", "nothing"], "nothing"),
    (["impute", "{data}", "{model}", "out.h5ad", "--key-added", "observed"], "would overwrite"),
    (["impute", "{data}", "{model}", "no_such_folder/out.h5ad"], "does not exist"),
    (["impute", "{data}", "{model}", "out.csv"], "'out.csv' cannot be written"),
    (["impute", "{data}", "{model}", "out.h5mu"], "AnnData is written as .h5ad or .zarr"),
    (["impute", "{data}", "nothing", "out.h5ad"], "No saved model in 'nothing'"),
    (["denoise", "{data}", "{model}", "out.h5ad", "--depth", "1"], "`depth` must be"),
    (["denoise", "{data}", "{model}", "out.h5ad", "--key-added", "observed"], "would overwrite"),
    (["normalize", "{data}", "{model}", "out.h5ad", "--library-size", "-1"], "`library_size` must be"),
    (["normalize", "{data}", "{model}", "out.h5ad", "--gene-list", "nogene"], "no gene 'nogene'"),
    (["generate", "{model}", "out.h5ad"], "required: --n-cells"),
    (["generate", "{model}", "out.h5ad", "--n-cells", "0"], "`n_cells` must be"),
    (["generate", "{model}", "out.h5mu", "--n-cells", "2"], "AnnData is written as"),
    (["generate", "{model}", "out.h5ad", "--n-cells", "2", "--covariates", "cell_type=nobody"], "'nobody'"),
    (["generate", "{model}", "out.h5ad", "--n-cells", "2", "--covariates", "age=3"], "`covariates` may name"),
    (["inspect", "nowhere"], "There is no file or folder"),
    (["inspect", "{folder}"], "No saved model in"),
    (["demo", "--output", "{model}"], "already exists"),
    (["demo", "--max-epochs", "0"], "--max-epochs: must be a whole number of at least 1, not 0"),
    (["benchmark"], "required: kind"),
    (["benchmark", "sweep", "--values", "2"], "required: setting"),
    (["benchmark", "sweep", "attrition", "--schedules", "nope"], "invalid choice: 'nope'"),
    (["benchmark", "sweep", "n_steps", "--schedules", "cosine"], "--schedules goes with attrition and guidance"),
    (["benchmark", "sweep", "n_steps", "--values", "2.5"], "--values of n_steps must be whole numbers"),
    (["benchmark", "sweep", "n_steps", "--max-epochs", "0"], "--max-epochs: must be a whole number of at least 1"),
    (["benchmark", "images", "--images", "-1"], "--images: must be a whole number of at least 10, not -1"),
    (["benchmark", "images", "--schedule", "none"], "invalid choice: 'none'"),
    (["benchmark", "imputation", "--cells", "-3"], "--cells: must be a whole number of at least 1, not -3"),
    (["benchmark", "imputation", "--missingness", "mcar:0"], "must hide a share above 0 and at most 1, not mcar:0"),
    (["benchmark", "imputation", "--test-share", "2"], "test_share must be between 0 and 1"),
    (["benchmark", "imputation", "--gene-ranking", "age"], "invalid choice: 'age'"),
    (["benchmark", "imputation", "--n-samples", "0"], "--n-samples: must be"),
    (["benchmark", "tune", "--seeds", "-1"], "--seeds: must be a whole number of at least 0"),
    (["benchmark", "simulated", "--seeds", "a"], "--seeds: must be a whole number of at least 0, not a"),
    (["benchmark", "paper", "fetus", "--data", "{data}"], "invalid choice: 'fetus'"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), BAD, ids=lambda part: " ".join(part) if isinstance(part, list) else ""
)
def test_wrong_input_is_one_line_and_writes_nothing(files, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (files / "text.h5ad").write_text("no HDF5")
    names = {"data": files / "data.h5ad", "model": files / "model", "text": files / "text.h5ad", "folder": files}
    assert main([argument.format(**names) for argument in arguments]) == 2
    printed = capsys.readouterr()
    *before, line = printed.err.strip().splitlines()
    assert line.startswith("sccountsdiff: ") and message in line and printed.out == ""
    assert not any("Traceback" in other for other in before)
    assert not list(tmp_path.iterdir())


def test_where_an_error_comes_from_is_shown_if_asked_for(capsys):
    assert main(["inspect", "nowhere", "--traceback"]) == 2
    assert "Traceback" in capsys.readouterr().err


HELP = """
import sys
from sccountsdiff.cli import main
for command in {commands}:
    try:
        main([*command, "--help"])
    except SystemExit as end:
        assert not end.code
print([name for name in ("torch", "scvi", "anndata", "numpy", "pandas") if name in sys.modules])
"""


def test_no_help_waits_for_what_takes_long_to_import():
    kinds = ["imputation", "tune", "sweep", "images", "simulated", "paper"]
    commands = [[], *([name] for name in COMMANDS), *(["benchmark", kind] for kind in kinds)]
    code = HELP.format(commands=commands)
    wide = {**os.environ, "COLUMNS": "500"}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=wide).stdout
    assert answer.endswith("[]\n") and all(name in answer for name in COMMANDS)
    assert "--key-added" in answer and "Depth in units of the cell's own; above 1. Default: 2" in answer


@pytest.mark.slow
def test_nothing_is_heard_of_libraries_that_are_imported_on_the_way(files, tmp_path):
    given = ["denoise", str(files / "data.h5ad"), str(files / "model"), str(tmp_path / "out.h5ad"), "--quiet"]
    answer = subprocess.run([sys.executable, "-m", "sccountsdiff", *given], capture_output=True, text=True, check=True)
    assert answer.stdout == "" and answer.stderr == ""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(("command", "bar"), [("train", "Training:"), ("denoise", "Denoising:")])
def test_a_signal_stops_it_with_the_code_that_workflows_expect(files, tmp_path, adata, command, bar, number, code):
    big = anndata.concat([adata] * 20, index_unique="-", merge="same")
    big.write_h5ad(tmp_path / "big.h5ad")
    options = {"train": ["--max-epochs", "100000"], "denoise": [str(tmp_path / "out.h5ad"), "--batch-size", "1"]}
    folder = tmp_path / "model" if command == "train" else files / "model"
    given = [sys.executable, "-m", "sccountsdiff", command, str(tmp_path / "big.h5ad"), str(folder), *options[command]]
    with subprocess.Popen(given, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        seen = b""
        while seen.count(bar.encode()) < 3 and process.poll() is None:  # it is at work
            seen += process.stderr.read(1)
        process.send_signal(number)
        rest = process.stderr.read().decode() + process.stdout.read().decode()
        assert process.wait() == code
    assert f"topped by {signal.Signals(number).name}" in rest and "Traceback" not in rest
    assert not (tmp_path / "out.h5ad").exists() and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("key", ["raw", "mine"])
def test_what_is_the_users_is_not_replaced(files, adata, tmp_path, capsys, key):
    """Counts in another place than those of the model's data, and layers that no command has written."""
    adata.layers["raw"] = adata.layers["mine"] = adata.X.copy()
    adata.write_h5ad(tmp_path / "data.h5ad")
    given = ["denoise", str(tmp_path / "data.h5ad"), str(files / "model"), str(tmp_path / "data.h5ad"), "--overwrite"]
    assert main([*given, "--layer", "raw", "--key-added", key]) == 2
    assert "would overwrite" in capsys.readouterr().err
    np.testing.assert_array_equal(io.read(tmp_path / "data.h5ad").layers[key].toarray(), adata.X.toarray())
