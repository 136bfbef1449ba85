"""What every imputation method of the benchmark has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform, get_args, overload

import numpy as np
import pandas as pd
from anndata import AnnData

from sccountsdiff.benchmark.baselines.cells import Cells, boolean_matrix, read_counts
from sccountsdiff.benchmark.optional import missing_packages
from sccountsdiff.checks import check_keywords
from sccountsdiff.registry import Registry

MethodGroup = Literal["naive", "specialised", "generative"]
"""Where a method stands in the tables of the paper, in their order."""

DECLARED = ("group", "draws", "denoises", "uses_covariates", "uses_mask", "requires", "needs_weights")
"""What a method says about itself, in the order of the table of methods."""

T = TypeVar("T", bound="Baseline")

BASELINES: Registry[type[Baseline]] = Registry("imputation method")


def sampling(default: Any) -> Any:
    """A setting that only matters for imputation: methods that differ in such settings alone can share one fit.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Method:
    ...     n_hidden: int = 64
    ...     n_steps: int = sampling(10)
    >>> Method(), ["sampling" in setting.metadata for setting in fields(Method)]
    (Method(n_hidden=64, n_steps=10), [False, True])
    """
    return field(default=default, metadata={"sampling": True})


class Baseline(ABC):
    """An imputation method: learns from training cells, fills in hidden entries of other cells.

    :meth:`fit` and :meth:`impute` check their input, hide what is to be hidden and put the observed entries back, once
    for all methods. A method only writes ``_fit`` and ``_impute``, and never sees a hidden value: hidden entries
    are 0 in what it gets, and so count in no library size.

    Entries may also be *missing*: zeros that the protocol of the paper takes for failures to detect. A method with
    ``uses_mask`` gets them as not observed, in training and in imputation; all others get them as zeros.

    A method with ``denoises`` can also predict the expectation of observed counts, see :meth:`denoise`.

    Attributes
    ----------
    name
        The name under which it is registered.
    group
        Where it stands in the tables of the paper.
    draws
        Whether it can give more than one draw per entry.
    denoises
        Whether it can also denoise observed counts.
    uses_covariates
        Whether it looks at the covariates; a method that does not is never shown them.
    uses_mask
        Whether it can learn from cells of which some entries are not observed.
    requires
        Extras of the package that must be installed.
    needs_weights
        Whether it starts from weights that someone else trained, and must be told where they are.

    Examples
    --------
    A method that fills in the largest count that a gene had in training:

    >>> import numpy as np
    >>> from anndata import AnnData
    >>> class GeneMaximum(Baseline):
    ...     name = "gene_maximum"
    ...
    ...     def _fit(self, cells, seed):
    ...         self.maximum = cells.counts.max(axis=0)
    ...
    ...     def _impute(self, cells, sites, n_samples, seed):
    ...         return np.broadcast_to(self.maximum, sites.shape)
    >>> train = AnnData(np.array([[1.0, 4.0], [3.0, 2.0]]))
    >>> test = AnnData(np.array([[7.0, 9.0]]))
    >>> GeneMaximum().fit(train).impute(test, np.array([[False, True]]))
    array([[7., 4.]])
    """

    name: ClassVar[str]
    group: ClassVar[MethodGroup] = "naive"
    draws: ClassVar[bool] = False
    denoises: ClassVar[bool] = False
    uses_covariates: ClassVar[bool] = False
    uses_mask: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ()
    needs_weights: ClassVar[bool] = False

    genes: pd.Index | None = None
    modalities: list[str] | None = None

    def fit(
        self,
        train: AnnData,
        *,
        layer: str | None = None,
        covariates: Sequence[str] | str = (),
        observed: np.ndarray | None = None,
        modality: str | None = None,
        seed: int = 0,
    ) -> Baseline:
        """Learn from training cells.

        Parameters
        ----------
        train
            Training cells with raw counts.
        layer
            Layer with the counts; ``X`` by default. The same layer is read by :meth:`impute`.
        covariates
            Columns of ``obs`` that describe a cell. The same columns are read by :meth:`impute`.
        observed
            Boolean matrix (cells, genes), ``False`` where a count is missing. Default: all are observed. Cells and
            genes of which nothing would be left are taken as observed as a whole.
        modality
            Column of ``var`` with the modality of each gene, for methods that tell modalities apart; default: there is one.
        seed
            Seed of everything random in the training.

        Returns
        -------
        The method itself.
        """
        for extra in self.requires:
            if missing := missing_packages(extra):
                raise ImportError(
                    f"Method {self.name!r} needs {', '.join(missing)}; install with "
                    f'pip install "sccountsdiff[{extra}]".'
                )
        self.layer = layer
        self.covariates = (covariates,) if isinstance(covariates, str) else tuple(covariates)
        observed = self._used_mask(observed, train.shape)
        empty_genes, empty_cells = ~observed.any(axis=0), ~observed.any(axis=1)
        observed[:, empty_genes] = True
        observed[empty_cells] = True
        counts = read_counts(train, layer, "train", hidden=~observed)
        used_covariates = self._used_covariates(train, "train")
        self.genes = train.var_names.copy()
        self.modalities = None if modality is None else train.var[modality].astype(str).tolist()
        self._fit(Cells(counts, observed, used_covariates), seed)
        return self

    def impute(
        self, test: AnnData, sites: np.ndarray, n_samples: int = 1, seed: int = 0, observed: np.ndarray | None = None
    ) -> np.ndarray:
        """Fill in the entries of ``test`` at ``sites``.

        Parameters
        ----------
        test
            Cells with the genes, the layer and the covariates of the training cells. Nothing is written to it.
        sites
            Boolean matrix (cells, genes), ``True`` where the entry is hidden and to be filled in.
        n_samples
            1 for the method's single best answer; more for that many draws, if the method draws.
        seed
            Seed of everything random in the imputation.
        observed
            Boolean matrix (cells, genes), ``False`` where a count is missing. Default: all are observed.

        Returns
        -------
        Counts of shape (cells, genes), or (n_samples, cells, genes) for more than one draw. Entries that are not sites
        are those of ``test``, bit by bit.
        """
        self._check_fitted_to(test)
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, found {n_samples}.")
        if n_samples > 1 and not self.draws:
            raise ValueError(
                f"Method {self.name!r} gives one answer per entry, found n_samples={n_samples}; set it to 1."
            )
        sites = boolean_matrix(sites, test.shape, "sites")
        truth = read_counts(test, self.layer, "test", hidden=sites)
        observed = self._used_mask(observed, test.shape) & ~sites
        cells = Cells(np.where(observed, truth, 0), observed, self._used_covariates(test, "test"))
        answer = np.array(self._impute(cells, sites, n_samples, seed), dtype=truth.dtype)
        self._check_shape(answer, truth.shape if n_samples == 1 else (n_samples, *truth.shape))
        np.copyto(answer, truth, where=~sites)
        return self._checked_values(answer)

    def denoise(self, test: AnnData, share: float = 0.9, seed: int = 0) -> np.ndarray:
        """Expected counts of cells of which a share of the molecules is observed.

        Parameters
        ----------
        test
            Cells with the genes, the layer and the covariates of the training cells; their counts are a random share of
            the molecules of cells like those of the training. Nothing is written to it.
        share
            The share, see :func:`~sccountsdiff.benchmark.missingness.split_molecules`.
        seed
            Seed of everything random.

        Returns
        -------
        Counts (cells, genes) that are expected at the depth of ``test``; of the molecules that are not observed,
        ``(1 - share) / share`` times as many are expected.
        """
        if not self.denoises:
            raise ValueError(f"Method {self.name!r} cannot denoise; it fills in entries that are hidden.")
        if not 0 < share < 1:
            raise ValueError(f"share must be between 0 and 1, found {share}.")
        self._check_fitted_to(test)
        counts = read_counts(test, self.layer, "test")
        cells = Cells(counts, np.ones(counts.shape, dtype=bool), self._used_covariates(test, "test"))
        answer = np.asarray(self._denoise(cells, share, seed))
        self._check_shape(answer, counts.shape)
        return self._checked_values(answer)

    @property
    def training_key(self) -> str | None:
        """What training depends on, as text; methods with the same key can share one fit.

        Settings that only matter for imputation are those made with ``sampling``. ``None`` if there are none.
        """
        settings = fields(self) if is_dataclass(self) else ()
        if not any("sampling" in setting.metadata for setting in settings):
            return None
        kept = self._settings(setting.name for setting in settings if "sampling" not in setting.metadata)
        return repr((type(self)._fit.__qualname__, self.uses_covariates, self.uses_mask, kept))

    def take_over(self, fitted: Baseline) -> Baseline:
        """Use what another method with the same :attr:`training_key` has learnt, instead of fitting again."""
        if self.training_key is None or self.training_key != fitted.training_key:
            raise ValueError(f"{fitted!r} was trained with other settings than {self!r}.")
        settings = {setting.name for setting in fields(self)}
        self.__dict__.update({name: value for name, value in fitted.__dict__.items() if name not in settings})
        return self

    def _settings(self, names: Iterable[str]) -> dict[str, Any]:
        """The values of some settings, by name."""
        return {name: getattr(self, name) for name in names}

    @abstractmethod
    def _fit(self, cells: Cells, seed: int) -> None:
        """Learn from training cells."""

    @abstractmethod
    def _impute(self, cells: Cells, sites: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
        """Predict the entries at ``sites``, none of which is observed; predictions of other entries are ignored."""

    def _denoise(self, cells: Cells, share: float, seed: int) -> np.ndarray:
        """Expected counts of complete cells.

        By default what :meth:`_impute` predicts of observed entries, brought to the total of each cell: for methods
        that predict every entry from all that is observed.
        """
        expected = self._impute(cells, np.zeros(cells.counts.shape, dtype=bool), 1, seed)
        totals, due = (values.sum(axis=1, keepdims=True, dtype=np.float64) for values in (cells.counts, expected))
        return expected * np.divide(totals, due, out=np.zeros_like(due), where=due > 0)

    def _check_fitted_to(self, test: AnnData) -> None:
        if self.genes is None:
            raise ValueError(f"Method {self.name!r} has not been fitted; call fit(train) first.")
        if not test.var_names.equals(self.genes):
            raise ValueError(
                f"The genes of test ({test.n_vars}) are not those of the training cells ({len(self.genes)}), in the same "
                "order; subset with test[:, method.genes]."
            )

    def _check_shape(self, answer: np.ndarray, expected: tuple[int, ...]) -> None:
        if answer.shape != expected:
            raise ValueError(f"Method {self.name!r} gave an array of shape {answer.shape}, expected {expected}.")

    def _checked_values(self, answer: np.ndarray) -> np.ndarray:
        if not np.isfinite(answer).all() or answer.min() < 0:
            raise ValueError(f"Method {self.name!r} gave values that are negative or not finite.")
        return answer

    def _used_mask(self, observed: np.ndarray | None, shape: tuple[int, int]) -> np.ndarray:
        """A copy of the mask; all true for a method that does not use it."""
        if observed is not None:
            observed = boolean_matrix(observed, shape, "observed")
        return np.ones(shape, dtype=bool) if observed is None or not self.uses_mask else observed.copy()

    def _used_covariates(self, adata: AnnData, argument: str) -> pd.DataFrame:
        if missing := [key for key in self.covariates if key not in adata.obs]:
            raise KeyError(f"Covariates {missing} are not columns of {argument}.obs; found {list(adata.obs.columns)}.")
        table = adata.obs[list(self.covariates) if self.uses_covariates else []]
        if empty := [key for key in table if table[key].isna().any()]:
            raise ValueError(f"Covariates {empty} of {argument}.obs have missing values; name or drop those cells.")
        return table.copy()


@overload
def register_baseline(name: type[T]) -> type[T]: ...
@overload
@dataclass_transform(eq_default=False, field_specifiers=(field,))
def register_baseline(name: str, **declared: Any) -> Callable[[type[T]], type[T]]: ...
def register_baseline(name: str | type[T], **declared: Any) -> type[T] | Callable[[type[T]], type[T]]:
    """Class decorator: make a method known to the benchmark.

    Without arguments it takes a class that has its ``name`` and all that it declares as attributes of the class, and leaves
    it as it is. With a name it also sets the attributes and makes the class a dataclass without ``__eq__``, so that the
    annotated attributes are its settings.

    Parameters
    ----------
    name
        Name of the method; or, without arguments, the subclass of :class:`Baseline` itself.
    **declared
        What the method declares, see the attributes of :class:`Baseline`. By default what its base class declares.

    Returns
    -------
    The class itself, or a decorator that returns it.

    Examples
    --------
    >>> @register_baseline("constant", denoises=True)
    ... class Constant(Baseline):
    ...     "Always the same."
    ...
    ...     value: float = 1.0
    ...
    ...     def _fit(self, cells, seed):
    ...         pass
    ...
    ...     def _impute(self, cells, sites, n_samples, seed):
    ...         return cells.counts * 0 + self.value
    >>> get_baseline("constant")(value=3.0)
    Constant(value=3.0)

    The same without arguments, for a class that is written out:

    >>> @register_baseline
    ... class One(Constant):
    ...     "Always one."
    ...
    ...     name = "one"
    >>> get_baseline("one").__name__
    'One'
    """
    if isinstance(name, type):
        return BASELINES.register(name.name)(name)
    check_keywords("register_baseline", declared, DECLARED)

    def decorate(method: type[T]) -> type[T]:
        for key, value in {"name": name, **declared}.items():
            setattr(method, key, value)
        is_prepared = "__dataclass_fields__" in vars(method)
        return BASELINES.register(name)(method if is_prepared else dataclass(eq=False)(method))

    return decorate


def get_baseline(name: str) -> type[Baseline]:
    """The class of a registered method.

    Parameters
    ----------
    name
        Its name; :func:`~sccountsdiff.benchmark.list_methods` has all.

    Returns
    -------
    A subclass of :class:`Baseline`.

    Examples
    --------
    >>> get_baseline("gene_mean")()
    GeneMean()
    """
    return BASELINES.get(name)


def list_methods() -> pd.DataFrame:
    """All registered methods, one row each, with what they declare about themselves; naive ones first, generative ones last.

    Returns
    -------
    Group, whether it draws, denoises, uses covariates and learns from incomplete cells, the extras and weights that it
    needs, and what it does, by name of the method.

    Examples
    --------
    >>> list_methods().loc["conditional_mean", ["group", "summary"]].tolist()
    ['naive', 'Mean of the gene over the training cells with the same covariates.']
    """
    methods = {name: BASELINES[name] for name in BASELINES}
    rows = {name: {key: getattr(method, key) for key in DECLARED} for name, method in methods.items()}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    table["summary"] = [(method.__doc__ or "").strip().split("\n")[0] for method in methods.values()]
    return table.sort_values("group", key=lambda group: group.map(get_args(MethodGroup).index), kind="stable")
