"""What the worker reads from its environment, once, at start.

`__main__` builds one `Settings` and passes it down; nothing else reads the
environment, apart from the engine, which inherits it.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from speculative_api.labels import ENGINE_PORT, WORKER_PORT
from speculative_api.model_images import IMAGES_DIRECTORY
from speculative_api.worker import (
    CLEAN_UP_VARIABLE,
    CONFIG_VARIABLE,
    ENDPOINTS_FOLLOW_SECONDS,
    ENGINE_EXIT_SECONDS,
    TERMINATION_PATH,
    CacheCleanUp,
    WorkerConfig,
    allows_long_context,
)
from speculative_worker.group import Node, node_of

_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY", re.IGNORECASE)
_SHORTEST_SECRET = 8


class SettingsError(Exception):
    """The environment does not describe a worker; the message says which variable and why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """One worker's surroundings; the defaults are what the operator renders."""

    config: WorkerConfig
    engine_port: int = ENGINE_PORT
    """ENGINE_PORT: where the engine serves its API."""
    worker_port: int = WORKER_PORT
    """WORKER_PORT: where probes and digest are served."""
    host: str | None = None
    """LISTEN_HOST: address that both listen on; None means every address."""
    leader_port: int = WORKER_PORT
    """LEADER_PORT: where the leader of this pod's group serves its digest."""
    termination_path: str = TERMINATION_PATH
    """TERMINATION_PATH: where the last words are written."""
    pod: str = ""
    """POD_NAME: repeated in the digest."""
    revision: str = ""
    """POD_REVISION: repeated in the digest."""
    sample_seconds: float = 15.0
    """PROGRESS_SAMPLE_SECONDS: time between two looks at the engine's progress. 15 s: four
    samples without a token make a stall, and a long prefill must not look like one."""
    stall_live_seconds: float = 60.0
    """STALL_LIVE_SECONDS: how long a stall lasts before only a restart can be hoped for."""
    follow_seconds: float = ENDPOINTS_FOLLOW_SECONDS
    """How long a stopping worker goes on accepting requests. Set by the contract, since the
    operator adds it to the pod's grace period."""
    engine_exit_seconds: float = ENGINE_EXIT_SECONDS
    """How long the engine may take to exit on SIGTERM. Set by the contract likewise."""
    claims_directory: str = "/mnt/claims"
    """Where the operator mounts the claims of `pvc://` models, one folder per claim."""
    images_directory: str = IMAGES_DIRECTORY
    """Where the operator mounts the images of `oci://` models, one folder per image."""
    clean_up: CacheCleanUp | None = None
    """What a download Job does with models in the cache that nobody uses."""
    node: Node | None = None
    """LWS_WORKER_INDEX, LWS_LEADER_ADDRESS: this pod's place in its group; None without one."""
    long_context: bool = False
    """VLLM_ALLOW_LONG_MAX_MODEL_LEN: the engine takes lengths beyond the model's own limit."""
    secrets: tuple[str, ...] = ()
    """Values never to be repeated in a termination message."""

    @property
    def engine_url(self) -> str:
        """Where this container reaches its own engine."""
        scheme = "http" if self.config.tls is None else "https"
        return f"{scheme}://{self.host or '127.0.0.1'}:{self.engine_port}"


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Reads the settings.

    Raises `SettingsError` when a variable is missing or cannot be read.
    """
    config = _config(environment)
    try:
        node = node_of(config.nodes, environment)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return Settings(
        config=config,
        node=node,
        engine_port=int(_number(environment, "ENGINE_PORT", ENGINE_PORT)),
        worker_port=int(_number(environment, "WORKER_PORT", WORKER_PORT)),
        host=environment.get("LISTEN_HOST") or None,
        leader_port=int(_number(environment, "LEADER_PORT", WORKER_PORT)),
        termination_path=environment.get("TERMINATION_PATH", TERMINATION_PATH),
        pod=environment.get("POD_NAME", ""),
        revision=environment.get("POD_REVISION", ""),
        sample_seconds=_number(environment, "PROGRESS_SAMPLE_SECONDS", 15.0),
        stall_live_seconds=_number(environment, "STALL_LIVE_SECONDS", 60.0),
        clean_up=_clean_up(environment),
        long_context=allows_long_context(environment),
        secrets=tuple(
            value
            for name, value in environment.items()
            if _SECRET_NAME.search(name) and len(value) >= _SHORTEST_SECRET
        ),
    )


def process_environment() -> Mapping[str, str]:
    """The environment of this process; here so that only this module reads it."""
    return os.environ


def _config(environment: Mapping[str, str]) -> WorkerConfig:
    text = environment.get(CONFIG_VARIABLE)
    if not text:
        raise SettingsError(f"{CONFIG_VARIABLE} is not set: it holds the worker's configuration")
    try:
        return WorkerConfig.model_validate_json(text)
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'the document'}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        )
        raise SettingsError(f"{CONFIG_VARIABLE} cannot be read: {found}") from error


def _clean_up(environment: Mapping[str, str]) -> CacheCleanUp | None:
    text = environment.get(CLEAN_UP_VARIABLE)
    try:
        return CacheCleanUp.model_validate_json(text) if text else None
    except ValidationError as error:
        raise SettingsError(f"{CLEAN_UP_VARIABLE} cannot be read: {error.title}") from error


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise SettingsError(f"{name}={text!r} is not a number") from None
    if not value > 0:
        raise SettingsError(f"{name}={text!r} must be above 0")
    return value
