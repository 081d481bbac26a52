"""`ModelHub`: finds GGUF files in repositories of the model hub; `download` fetches them.

It uses `huggingface_hub` (the `hub` extra, imported when first used). That library takes offline mode from its own
settings, and also the endpoint and the access token where none are given here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import httpx

from paceline.checkpoint.catalog import CatalogEntry, HubSource
from paceline.checkpoint.download import Downloader, RemoteFile, shown
from paceline.core.errors import ChecksumError, DownloadError, ModelNotFoundError, UsageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

PROBE_TIMEOUT_S = 3.0
REQUEST_TIMEOUT_S = 10.0
PREFERRED_QUANTIZATION = "q4_k_m"
_SPLIT_SUFFIX = re.compile(r"-\d{5}-of-\d{5}\.gguf")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class HubReference:
    """What a user may write for a repository: `owner/repository`, or `owner/repository:file.gguf`."""

    repository: str
    file: str | None

    @classmethod
    def parse(cls, text: str) -> HubReference | None:
        """Returns the reference; None where the text is not one."""
        match = re.fullmatch(r"(?P<repository>[\w.-]+/[\w.-]+)(?::(?P<file>[\w./+-]+\.gguf))?", text, re.ASCII)
        return cls(match["repository"], match["file"]) if match else None

    def __str__(self) -> str:
        return self.repository if self.file is None else f"{self.repository}:{self.file}"


@dataclass(frozen=True, slots=True)
class ModelHub:
    """The model hub at `endpoint`, used with the access token `token`. None leaves the choice of either to
    `huggingface_hub`."""

    client: httpx.Client
    downloader: Downloader
    endpoint: str | None = None
    token: str | None = field(default=None, repr=False)

    def deliver(self, source: HubSource, entry: CatalogEntry, workspace: Path) -> Path:
        """Downloads a catalog entry's file and returns its path; the caller must verify the checksum.

        Raises DownloadError, and ChecksumError before the download if the hub publishes another sum.
        """
        try:
            remote = self.find(HubReference(source.repository, source.file))[source.file]
        except ModelNotFoundError as error:
            raise DownloadError(f"{source}: {error}") from error
        if remote.sha256 not in (None, entry.sha256):
            raise ChecksumError(f"{source}: the published sha256 is {remote.sha256} instead of {entry.sha256}")
        path = workspace / entry.file_name
        self.downloader.fetch_all([(remote, path)], f"downloading {entry.name}")
        return path

    def find(self, reference: HubReference) -> dict[str, RemoteFile]:
        """Returns the model's files by name, in order, with sizes and checksums as the hub publishes them.

        Raises DownloadError (the hub cannot be reached), ModelNotFoundError (no such repository or file) and UsageError
        (the reference names no file, and the repository has several models).
        """
        api = self._connect()
        info = _asked(lambda: api.model_info(reference.repository, files_metadata=True, timeout=REQUEST_TIMEOUT_S))
        published = {file.rfilename: file for file in info.siblings or () if file.rfilename.endswith(".gguf")}
        names = _parts_of(_choose(reference, sorted(published)), sorted(published))
        return {name: _remote_file(api, info, published[name]) for name in names}

    def _connect(self) -> HfApi:
        """Returns a client of the hub after a probe, which raises DownloadError within seconds if the hub is
        unreachable."""
        try:
            from huggingface_hub import HfApi, constants
        except ImportError as error:
            raise DownloadError("the model hub needs huggingface_hub; run pip install 'paceline[hub]'") from error
        if constants.HF_HUB_OFFLINE:
            raise DownloadError("the model hub is switched off by HF_HUB_OFFLINE; unset it")
        api = HfApi(endpoint=self.endpoint, token=self.token)
        try:
            self.client.head(api.endpoint, timeout=PROBE_TIMEOUT_S)
        except httpx.TransportError as error:
            reason = error or type(error).__name__
            raise DownloadError(f"the model hub at {shown(api.endpoint)} cannot be reached ({reason})") from error
        return api


def _remote_file(api: HfApi, info: ModelInfo, file: RepoSibling) -> RemoteFile:
    from huggingface_hub import get_token, hf_hub_url

    url = hf_hub_url(info.id, file.rfilename, revision=info.sha, endpoint=api.endpoint)
    token = api.token or get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return RemoteFile(url, file.size, file.lfs.sha256 if file.lfs else None, headers)


def _asked(question: Callable[[], _Answer]) -> _Answer:
    """Returns the hub's answer to `question`; raises ModelNotFoundError, DownloadError."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        return question()
    except GatedRepoError as error:
        raise DownloadError(f"the model hub requires a login and accepted terms for this model ({error})") from error
    except RepositoryNotFoundError as error:
        raise ModelNotFoundError("the model hub has no such repository, or it is private") from error
    except Exception as error:  # any error, because the library's HTTP client depends on the library's version
        raise DownloadError(f"the model hub did not answer as expected ({error or type(error).__name__})") from error


def _choose(reference: HubReference, names: list[str]) -> str:
    """Returns the first file of the model: the one that is named, or the only one, or the only one of the preferred
    quantization."""
    if reference.file is not None:
        if reference.file in names:
            return reference.file
        raise ModelNotFoundError(f"{reference.repository} has no file {reference.file!r}; it has {_listed(names)}")
    models = [name for name in names if not _SPLIT_SUFFIX.search(name) or "-00001-of-" in name]
    preferred = [name for name in models if PREFERRED_QUANTIZATION in name.lower()]
    for candidates in (models, preferred):
        if len(candidates) == 1:
            return candidates[0]
    raise UsageError(f"name one file of {reference.repository}, as OWNER/REPOSITORY:FILE; it has {_listed(models)}")


def _parts_of(first: str, names: list[str]) -> list[str]:
    """Returns all files of the split model that `first` belongs to, in order; `first` alone if it is not split."""
    if not _SPLIT_SUFFIX.search(first):
        return [first]
    pattern = _SPLIT_SUFFIX.sub("", first), first[-len("00000.gguf") :]
    return [name for name in names if (_SPLIT_SUFFIX.sub("", name), name[-len("00000.gguf") :]) == pattern]


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "no GGUF file"
