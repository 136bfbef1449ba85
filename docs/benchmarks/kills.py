"""Kill the package at random moments: is what was there before still there, is anything half-written, does all go on?

    python docs/benchmarks/kills.py --kills 108 --output docs/benchmarks/results/kills.csv

Each piece of work runs in a process of its own, which gets SIGKILL, SIGTERM or SIGINT at a moment drawn evenly from the time
that the work takes; a draw that comes after its end is made again. What it leaves is then read, and the work done again in the
same folder, which must end as if nothing had happened. The same call goes on with the kills that are not in the table yet.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scvi
import torch

import sccountsdiff.benchmark as bm
from sccountsdiff import CountsDiffImputer, checkpoints
from sccountsdiff.files import digest_of_file, replacing, write_table

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Work:
    """A piece of work in a folder: how it is done, and what must hold whenever it is stopped."""

    def __init__(self, folder: Path):
        self.folder = folder

    def prepare(self) -> None:
        """What is there before."""

    def run(self) -> None:
        """Do it, or go on with it."""
        raise NotImplementedError

    def check(self) -> None:
        """After a kill: an error if something is lost or half-written."""

    def result(self) -> object:
        """After it was done: what must be the same whether or not it was stopped on the way."""
        raise NotImplementedError


def cells(seed: int, n: int = 120) -> anndata.AnnData:
    """Counts of a few genes."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.gamma(1.0, 2.0, (n, 15))).astype(np.float32)
    names = pd.DataFrame(index=[f"gene{j}" for j in range(15)])
    return anndata.AnnData(counts, obs=pd.DataFrame(index=[f"cell{i}" for i in range(n)]), var=names)


def small_model(seed: int, max_epochs: int = 1, **train_kwargs) -> CountsDiffImputer:
    """A narrow model of these cells."""
    scvi.settings.seed = seed
    model = CountsDiffImputer(cells(seed), n_hidden=8, n_layers=1)
    model.train(max_epochs, batch_size=20, accelerator="cpu", enable_progress_bar=False, **train_kwargs)
    return model


def weights(model: CountsDiffImputer) -> bytes:
    """All numbers of a model."""
    return b"".join(value.numpy().tobytes() for value in model.module.state_dict().values())


class Train(Work):
    """Training with checkpoints."""

    def run(self) -> None:
        checkpoints.SECONDS_BETWEEN = 0.0
        model = small_model(0, max_epochs=8, checkpoint=self.folder / "run", early_stopping=False)
        (self.folder / "weights").write_bytes(weights(model))

    def check(self) -> None:
        file = self.folder / "run" / "last.ckpt"
        if file.exists():
            assert checkpoints.read_checkpoint(file) is not None, "the checkpoint is damaged"

    def result(self) -> bytes:
        return (self.folder / "weights").read_bytes()


class Save(Work):
    """Saving a model, with its data, over another."""

    models: list[CountsDiffImputer] = []

    def prepare(self) -> None:
        self.models[0].save(self.folder / "model", save_anndata=True)

    def run(self) -> None:
        for model in (*self.models[1:], *self.models):
            model.save(self.folder / "model", overwrite=True, save_anndata=True)

    def check(self) -> None:
        found = CountsDiffImputer.load(self.folder / "model", accelerator="cpu")
        which = [weights(model) for model in self.models].index(weights(found))
        assert (found.adata.X == self.models[which].adata.X).all(), "weights of one model, data of another"

    def result(self) -> bytes:
        self.check()
        assert len(list((self.folder / "model").iterdir())) == 4, "something is left over"
        return weights(CountsDiffImputer.load(self.folder / "model", adata=False, accelerator="cpu"))


class Impute(Work):
    """Imputing a file, over a result that is there already."""

    model: CountsDiffImputer

    def prepare(self) -> None:
        cells(5).write_h5ad(self.folder / "cells.h5ad")
        (self.folder / "imputed.h5ad").write_text("an old result")
        self.before = digest_of_file(self.folder / "cells.h5ad")

    def run(self) -> None:
        adata = anndata.read_h5ad(self.folder / "cells.h5ad")
        self.model.impute(adata, n_samples=3, n_steps=10, n_folds=2, seed=0, silent=True, batch_size=32)
        with replacing(self.folder / "imputed.h5ad") as beside:
            adata.write_h5ad(beside)

    def check(self) -> None:
        assert digest_of_file(self.folder / "cells.h5ad") == self.before, "the input has changed"
        if (self.folder / "imputed.h5ad").read_bytes() != b"an old result":
            self.result()

    def result(self) -> bytes:
        return np.asarray(anndata.read_h5ad(self.folder / "imputed.h5ad").layers["imputed"]).tobytes()


class Stream(Work):
    """Imputing to a file block by block."""

    model: CountsDiffImputer

    def prepare(self) -> None:
        cells(5).write_h5ad(self.folder / "cells.h5ad")
        self.before = digest_of_file(self.folder / "cells.h5ad")

    def run(self) -> None:
        out = self.folder / "imputed.h5ad"
        if not out.exists():
            adata = anndata.read_h5ad(self.folder / "cells.h5ad", backed="r")
            self.model.impute(adata, n_samples=2, n_steps=4, n_folds=2, silent=True, batch_size=12, out=out)

    def check(self) -> None:
        assert digest_of_file(self.folder / "cells.h5ad") == self.before, "the input has changed"
        if (self.folder / "imputed.h5ad").exists():
            self.result()

    def result(self) -> bytes:
        return np.asarray(anndata.read_h5ad(self.folder / "imputed.h5ad").layers["imputed"]).tobytes()


class Benchmark(Work):
    """A comparison of methods, with a file for each result."""

    def run(self) -> None:
        options = {"metrics": ["rmse", "mae"], "seeds": range(4), "n_bootstrap": 5, "min_cells": 1, "silent": True}
        bm.run("pbmc68k", "mcar", ["zero", "gene_mean"], output=self.folder, n_genes=30, n_cells=200, **options)

    def check(self) -> None:
        for file in (self.folder / "results").glob("*.json"):
            assert pd.read_json(file, typ="series")["rows"], "a result is damaged"
        if (self.folder / "results.csv").exists():
            self.result()

    def result(self) -> list:
        table = pd.read_csv(self.folder / "results.csv")
        assert set(table["seed"]) == set(range(4)) and table["value"].notna().all(), "the table is not whole"
        return table[["method", "seed", "metric", "value"]].to_numpy().tolist()


class Images(Work):
    """Training on images, with checkpoints and a history."""

    def run(self) -> None:
        from sccountsdiff.benchmark.images import load_config, load_images, train

        small = {"channels": (8, 8), "n_steps": 8, "evaluate_every": 2, "n_warmup_steps": 1, "batch_size": 8}
        config = load_config("digits", **small)
        train(config, load_images("digits"), self.folder, n_heldout=8, resume=True, accelerator="cpu")

    def check(self) -> None:
        if (self.folder / "last.ckpt").exists():
            assert checkpoints.read_checkpoint(self.folder / "last.ckpt") is not None, "the checkpoint is damaged"
        if (self.folder / "history.csv").exists():
            assert pd.read_csv(self.folder / "history.csv")["step"].is_monotonic_increasing

    def result(self) -> list:
        saved = torch.load(self.folder / "last.ckpt", weights_only=True)["state_dict"]
        history = pd.read_csv(self.folder / "history.csv")["step"].tolist()
        return [history, *(value.numpy().tobytes() for value in saved.values())]


WORK: tuple[type[Work], ...] = (Train, Save, Impute, Stream, Benchmark, Images)


def in_a_process(do: Callable[[], None]) -> int:
    """Begin something in a copy of this process; its number."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the copy knows that it is one
    process = os.fork()
    if process == 0:
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            do()
            code = 0
        except KeyboardInterrupt:
            code = 130
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return process


def finish(process: int) -> int:
    """Wait; the exit code, as a shell would give it."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return 128 - code if code < 0 else code


def is_running(process: int) -> bool:
    """Whether it has not ended yet; how it ended is left for :func:`finish`."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def stopped_work(kind: type[Work], number: signal.Signals, moments: Iterator[float], root: Path) -> tuple[Work, dict]:
    """Work that was killed while it ran, and when and how that ended."""
    for moment in moments:
        work = kind(Path(tempfile.mkdtemp(dir=root)))
        work.prepare()
        process = in_a_process(work.run)
        time.sleep(moment)
        if is_running(process):
            os.kill(process, number)
        code = finish(process)
        if code != 0:
            return work, {"second": round(moment, 3), "exit_code": code}
        shutil.rmtree(work.folder)
    raise AssertionError("there is always another moment")


def kill_once(kind: type[Work], number: signal.Signals, moments: Iterator[float], expected: object, root: Path) -> dict:
    """What became of a kill."""
    work, row = stopped_work(kind, number, moments, root)
    problem = ""
    try:
        work.check()
        assert finish(in_a_process(work.run)) == 0, "it does not go on"
        assert work.result() == expected, "it ends otherwise than without a stop"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
        problem = f"{type(error).__name__}: {error}"[:200]
    shutil.rmtree(work.folder)
    return row | {"problems": int(problem != ""), "problem": problem}


def without_a_stop(kind: type[Work], root: Path) -> tuple[float, object]:
    """How many seconds it takes, once all is loaded, and what it comes to."""
    seconds = []
    for _ in range(2):
        work = kind(Path(tempfile.mkdtemp(dir=root)))
        work.prepare()
        start = time.perf_counter()
        assert finish(in_a_process(work.run)) == 0, f"{kind.__name__} does not work at all"
        seconds.append(time.perf_counter() - start)
    return min(seconds), work.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=108)
    parser.add_argument("--work", nargs="+", choices=[kind.__name__.lower() for kind in WORK], help="only some of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("kills.csv"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    done = pd.read_csv(arguments.output).fillna("").to_dict("records") if arguments.output.exists() else []
    rows = {row["kill"]: row for row in done}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        Save.models = [small_model(0), small_model(1)]
        Impute.model = Stream.model = Save.models[0]
        for kind in WORK:
            mine = [i for i in range(arguments.kills) if WORK[i % len(WORK)] is kind and i not in rows]
            if not mine or (arguments.work and kind.__name__.lower() not in arguments.work):
                continue
            seconds, expected = without_a_stop(kind, root)
            for i in mine:
                number = SIGNALS[i // len(WORK) % len(SIGNALS)]
                rng = np.random.default_rng([arguments.seed, i])
                moments = iter(lambda rng=rng: rng.uniform(0, seconds), None)  # noqa: B023 - used up before the next
                about = {"kill": i, "work": kind.__name__.lower(), "signal": number.name}
                rows[i] = about | kill_once(kind, number, moments, expected, root)
                write_table(arguments.output, pd.DataFrame([rows[key] for key in sorted(rows)]))
    table = pd.DataFrame([rows[key] for key in sorted(rows)])
    columns = {"kills": ("kill", "size"), "problems": ("problems", "sum")}
    print(table.groupby(["work", "signal"]).agg(**columns).to_string())
    print("\n".join(table.loc[table["problems"] > 0, "problem"]))
    raise SystemExit(int(table["problems"].any()))


if __name__ == "__main__":
    main()
