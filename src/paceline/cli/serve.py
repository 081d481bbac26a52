"""`paceline serve MODEL`: serves OpenAI's API until it is interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.cli.options import SERVE_OPTIONS, takes_settings

if TYPE_CHECKING:
    from paceline.config import Settings


@takes_settings(*SERVE_OPTIONS)
def serve(settings: Settings) -> None:
    """Serve a model at an OpenAI-compatible API, by default http://127.0.0.1:8000/v1."""
    from paceline.cli.model_files import pull_models
    from paceline.gateway import serve as serve_forever

    pull_models(settings.engine)
    serve_forever([settings.engine], settings.server)
