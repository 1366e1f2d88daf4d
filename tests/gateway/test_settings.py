"""Settings come from the environment, with defaults of the contract."""

from pathlib import Path

import pytest

from speculative_api import labels
from speculative_gateway.settings import Settings


def test_an_empty_environment_gives_the_contract() -> None:
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert settings.gateway_port == labels.GATEWAY_PORT


def test_variables_are_read() -> None:
    settings = Settings.from_environment(
        {"GATEWAY_DIRECTORY": "/x", "POD_NAME": "p", "DRAIN_SECONDS": "30", "AGENT_PORT": "1"}
    )
    assert (settings.xds, settings.pod) == (Path("/x/xds"), "p")
    assert (settings.drain_seconds, settings.agent_port) == (30, 1)


def test_keys_are_mounted_or_not() -> None:
    assert Settings.from_environment({}).api_keys_directory is None
    found = Settings.from_environment({"API_KEYS_DIRECTORY": "/keys"})
    assert found.api_keys_directory == Path("/keys")


def test_a_wrong_number_is_named() -> None:
    with pytest.raises(ValueError, match="DRAIN_SECONDS: 'soon' is not a number"):
        Settings.from_environment({"DRAIN_SECONDS": "soon"})
