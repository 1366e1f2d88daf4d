"""What tests of several rooms share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.cluster import envtest

# A gate gives the same answer twice; `make soak-properties` looks for what it does not know yet,
# and what that finds becomes an example of its test.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[envtest.Server]:
    """A real API server with our CRD, for tests marked `cluster`."""
    folder: Path = tmp_path_factory.mktemp("envtest")
    with envtest.running(folder) as server:
        yield server
