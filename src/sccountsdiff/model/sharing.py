"""Models on the Hugging Face hub, by the hub's own library."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Self

from sccountsdiff.model.saving import SavingMixin

PATTERNS = ("*.json", "*.safetensors", "*.h5ad", "*.h5mu", "*.md")
"""What a saved model consists of; nothing else is fetched."""


class SharingMixin(SavingMixin):
    """Sharing of models."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | None = None,
        commit_message: str = "Add a model of sccountsdiff",
        save_anndata: bool = False,
    ) -> str:
        """Upload the model, with its model card, to the Hugging Face hub.

        Parameters
        ----------
        repo_id
            ``"user/name"`` of the repository; made if it does not exist.
        private
            Whether a new repository is private; default: as set for the account.
        token
            Of the account; default: that of ``hf auth login``.
        commit_message
            What is noted about the upload.
        save_anndata
            Upload the data too. Think of whose data it is.

        Returns
        -------
        Where the model is.

        Examples
        --------
        >>> model.push_to_hub("me/my-model")  # doctest: +SKIP
        """
        hub = _hub()
        with TemporaryDirectory() as folder:
            self.save(Path(folder, "model"), save_anndata=save_anndata)
            api = hub.HfApi(token=token)
            repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            # One commit: what it replaces goes with it.
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=str(Path(folder, "model")),
                commit_message=commit_message,
                delete_patterns=["model-*.safetensors", "adata-*.h5ad", "mdata-*.h5mu"],
            )
        return str(commit)

    @classmethod
    def from_pretrained(
        cls, repo_id: str | Path, *, revision: str | None = None, token: str | None = None, **load_kwargs
    ) -> Self:
        """Load a model from the Hugging Face hub, or from a folder.

        Parameters
        ----------
        repo_id
            ``"user/name"`` of the repository, or a folder.
        revision
            Branch, tag or commit; default: the newest. Name a commit to get the same model always.
        token
            Of the account, for private repositories.
        **load_kwargs
            Passed to :meth:`load`, such as ``adata``.

        Returns
        -------
        The model.

        Examples
        --------
        >>> model.save("my_model", overwrite=True)
        >>> import sccountsdiff
        >>> sccountsdiff.CountsDiffImputer.from_pretrained("my_model", adata=False).is_trained
        True
        """
        if not Path(repo_id).is_dir():
            repo_id = _hub().snapshot_download(
                str(repo_id), revision=revision, token=token, allow_patterns=list(PATTERNS)
            )
        return cls.load(repo_id, **load_kwargs)


def _hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError(
            "Sharing models needs huggingface_hub: pip install 'sccountsdiff[hub]' (or huggingface_hub alone)."
        ) from None
    return huggingface_hub
