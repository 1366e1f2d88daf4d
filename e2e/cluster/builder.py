"""Build images with buildah or docker.

The commands are made by pure functions, so that a test reads what would run.
Registry settings and the host's CA bundle reach a build as secrets: mounted
for a RUN line, never part of an image.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import run_logged, succeeds
from .settings import Settings

SECRETS_IN_BUILD = "/run/secrets"
CA_VARIABLES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "UV_SYSTEM_CERTS",
)
_HOST_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_PROXY_VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
_HOST_ONLY_PREFIXES = (
    "UV_CACHE",
    "UV_PYTHON",
    "UV_PROJECT",
    "UV_TOOL",
    "PIP_CACHE",
    "PIP_FIND_LINKS",
)


@dataclass(frozen=True, slots=True)
class Build:
    """One image to build."""

    image: str
    dockerfile: Path
    context: Path
    target: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    use_registries: bool = True
    """Whether its RUN lines fetch packages, so need the host's registry settings."""


def build_environment(environment: Mapping[str, str], *, ca_bundle: str) -> str:
    """Return the shell lines that a RUN line sources: registry settings of the host.

    `ca_bundle` is where the bundle is mounted, empty for none. Paths that exist
    only on the host are left out.
    """
    values = {
        name: value
        for name, value in environment.items()
        if (name.startswith(("PIP_", "UV_")) or name in _PROXY_VARIABLES)
        and not name.startswith(_HOST_ONLY_PREFIXES)
        and name not in CA_VARIABLES
    }
    if ca_bundle:
        values |= dict.fromkeys(CA_VARIABLES[:4], ca_bundle) | {"UV_SYSTEM_CERTS": "1"}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))


def buildah(settings: Settings) -> list[str]:
    """Return buildah with its store inside our folder."""
    return [
        "buildah",
        "--root",
        str(settings.images / "store"),
        "--runroot",
        str(settings.images / "run"),
        "--storage-driver",
        "overlay",
    ]


def build_command(build: Build, *, prefix: Sequence[str], secrets: Path | None) -> list[str]:
    """Return the command that builds an image; `prefix` is buildah's or docker's."""
    argv = [*prefix, "build"]
    if prefix[0] == "buildah":
        argv += ["--layers", "--network", "host", "--format", "oci"]
    if secrets is not None and build.use_registries:
        argv += ["--secret", f"id=build_env,src={secrets / 'build_env'}"]
        argv += ["--secret", f"id=ca_bundle,src={secrets / 'ca_bundle'}"]
    for name, value in build.arguments:
        argv += ["--build-arg", f"{name}={value}"]
    if build.target:
        argv += ["--target", build.target]
    return [*argv, "--tag", build.image, "--file", str(build.dockerfile), str(build.context)]


def write_secrets(folder: Path, *, inside: str = SECRETS_IN_BUILD) -> None:
    """Write what builds get, and find at `inside`, as secrets; readable by root only."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    present = _HOST_CA_BUNDLE.exists()
    bundle = _HOST_CA_BUNDLE.read_bytes() if present else b""
    (folder / "ca_bundle").write_bytes(bundle)
    lines = build_environment(os.environ, ca_bundle=f"{inside}/ca_bundle" if present else "")
    (folder / "build_env").write_text(lines, encoding="utf-8")


def image_exists(image: str, *, prefix: Sequence[str]) -> bool:
    """Whether the builder's store has the image."""
    kind = ["--type", "image"] if prefix[0] == "buildah" else ["--type=image"]
    return succeeds([*prefix, "inspect", *kind, image])


def run_build(build: Build, settings: Settings, *, prefix: Sequence[str]) -> None:
    """Build one image.

    Raises:
        ClusterError: the build failed; with the tail of its log.
    """
    secrets = settings.images / "secrets"
    write_secrets(secrets)
    temporary = settings.images / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    name = build.image.rsplit("/", 1)[-1].replace(":", "-")
    run_logged(
        build_command(build, prefix=prefix, secrets=secrets),
        label=f"build {build.image}",
        log=settings.logs / f"build-{name}.log",
        environment={**os.environ, "TMPDIR": str(temporary), "DOCKER_BUILDKIT": "1"},
        directory=settings.repository,
    )


def engine_answers() -> bool:
    """Whether a Docker engine answers on this machine."""
    return succeeds(["docker", "version", "--format", "{{.Server.Version}}"])
