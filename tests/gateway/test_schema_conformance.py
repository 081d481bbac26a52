"""Schemathesis asks the server what its published document allows, and what it does not; `make test-fuzz` runs it.

Its check that every request which fits the document is answered is left out: the document cannot say all rules, such as
that a prompt must fit into the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from paceline.config import EngineConfig, ServerConfig
from tests.gateway.server_process import ServerProcess

pytestmark = pytest.mark.fuzz
NUM_EXAMPLES = 50
LEAST_OPERATIONS = 30


@pytest.fixture(scope="module")
def schema(engine_config: EngineConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Yields the document of a server whose contexts are short, so that answers are."""
    config = engine_config.model_copy(update={"context_window_size": 64})
    with ServerProcess(tmp_path_factory.mktemp("schema"), config, ServerConfig(port=0)) as process:
        yield schemathesis.openapi.from_url(f"{process.wait_ready().url}/openapi.json")


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_server_does_what_its_document_says(schema: Any, mode: GenerationMode) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) >= LEAST_OPERATIONS
    faults = []
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # a name in a path can be any text, so nothing contradicts the document

        @settings(
            max_examples=NUM_EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        try:
            ask()
        except Exception as error:  # noqa: BLE001 - all faults are shown together
            faults.append(f"{operation.label}: {error}")
    assert not faults, "\n\n".join(faults)
