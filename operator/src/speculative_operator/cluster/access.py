"""How to reach the API server: from inside a pod, else by the kubeconfig.

kubernetes.aio reads kubeconfigs (client certificates, token files, exec
plugins); only its parsed result is used, its client is not (a third of the speed).
In a pod it is not even imported: that would be a third of the time to start.
"""

import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from speculative_operator.errors import Unavailable

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's token and the authority of the API server's certificate."""
TOKEN_SECONDS: Final = 30.0
"""For so long a token is used before its file is read again: the kubelet replaces it well before
its end, and a clock of its own, since the wall clock may jump."""


async def _no_token() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Access:
    """An address and the proofs of who we are."""

    server: str
    tls: ssl.SSLContext | None = None
    authorization: Callable[[], Awaitable[str]] = _no_token
    """Gives the Authorization header, empty for none; re-reads rotated tokens by itself."""
    server_name: str | None = None
    """Name expected in the server's certificate, if not that of the address."""
    proxy: str | None = None


def in_pod(
    environment: Mapping[str, str],
    *,
    folder: Path,
    clock: Callable[[], float] = time.monotonic,
) -> Access | None:
    """The access of a pod's service account; None outside of a pod.

    Raises:
        Unavailable: the authority or the token can't be read.
    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not (host and port and (folder / "token").is_file()):
        return None
    try:
        tls = ssl.create_default_context(cafile=folder / "ca.crt")
    except OSError as error:
        raise Unavailable(f"{folder / 'ca.crt'}: {error}") from error
    token, read_at = "", float("-inf")

    async def authorization() -> str:
        nonlocal token, read_at
        if clock() - read_at >= TOKEN_SECONDS:
            try:
                token = (folder / "token").read_text(encoding="ascii").strip()
            except (OSError, ValueError) as error:
                raise Unavailable(f"{folder / 'token'}: {error}") from error
            read_at = clock()
        return f"Bearer {token}"

    shown = f"[{host}]" if ":" in host else host
    return Access(f"https://{shown}:{port}", tls, authorization)


def _tls(configuration: "Configuration") -> ssl.SSLContext | None:
    if not configuration.host.startswith("https://"):
        return None
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data
    )
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


async def access(*, kubeconfig: str | None = None, context: str | None = None) -> Access:
    """The access of this process; a given `kubeconfig` file is preferred to the pod's account.

    Raises:
        Unavailable: neither works.
    """
    found = in_pod(os.environ, folder=SERVICE_ACCOUNT) if kubeconfig is None else None
    if found is not None:
        return found
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import ConfigException
    from kubernetes.aio.config.kube_config import load_kube_config

    configuration = Configuration()
    try:
        loader = await load_kube_config(  # type: ignore[no-untyped-call]
            kubeconfig, context, configuration, persist_config=False
        )
    except (ConfigException, OSError, ValueError) as error:
        raise Unavailable(f"no usable kubeconfig: {error}") from error

    async def authorization() -> str:
        # A plugin's answer without an expiry is good for the whole process.
        if hasattr(loader, "exec_plugin_expiry"):
            await loader.load_from_exec_plugin()
            configuration.api_key["BearerToken"] = loader.token
        return await configuration.get_api_key_with_prefix("BearerToken") or ""

    return Access(
        server=configuration.host.rstrip("/"),
        tls=_tls(configuration),
        authorization=authorization,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
    )
