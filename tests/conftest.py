"""What tests of several rooms share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster import envtest


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[envtest.Server]:
    """A real API server with our CRD, for tests marked `cluster`."""
    folder: Path = tmp_path_factory.mktemp("envtest")
    with envtest.running(folder) as server:
        yield server
