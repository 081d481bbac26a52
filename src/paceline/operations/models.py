"""Lists the models that a user can name: the models in the cache and the models of the catalog."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from paceline.checkpoint import CATALOG, list_models


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model that a user can name. `path` is None if it is not installed. `description` comes from the catalog; a
    model that is not in the catalog has its source there."""

    name: str
    size_bytes: int
    description: str
    path: str | None = None
    default_draft_name: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the model is in the cache."""
        return self.path is not None

    def as_json(self) -> dict[str, object]:
        """Returns all fields, for a JSON encoder."""
        return asdict(self) | {"is_installed": self.is_installed}


def list_known_models() -> list[KnownModel]:
    """Returns the installed models and the catalog entries, sorted by name; a model that is both appears once."""
    installed = {model.name: model for model in list_models()}
    known = [
        KnownModel(
            name=entry.name,
            size_bytes=entry.size_bytes,
            description=entry.description,
            path=str(installed[entry.name].path) if entry.name in installed else None,
            default_draft_name=entry.default_draft_name,
        )
        for entry in CATALOG.values()
    ]
    known += [
        KnownModel(name=model.name, size_bytes=model.size_bytes, description=model.source, path=str(model.path))
        for model in installed.values()
        if model.name not in CATALOG
    ]
    return sorted(known, key=lambda model: model.name)
