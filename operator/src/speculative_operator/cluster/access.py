"""How to reach the API server: from inside a pod, else by the kubeconfig.

kubernetes.aio reads kubeconfigs (client certificates, token files, exec
plugins); only its parsed result is used, its client is not (a third of the speed).
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from speculative_operator.errors import Unavailable


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


def _tls(configuration: Configuration) -> ssl.SSLContext | None:
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
    configuration = Configuration()
    loader = None
    try:
        if kubeconfig is not None:
            raise ConfigException("a kubeconfig was named")
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        try:
            loader = await load_kube_config(  # type: ignore[no-untyped-call]
                kubeconfig, context, configuration, persist_config=False
            )
        except (ConfigException, OSError, ValueError) as error:
            raise Unavailable(f"no usable kubeconfig: {error}") from error

    async def authorization() -> str:
        # A plugin's answer without an expiry is good for the whole process.
        if loader is not None and hasattr(loader, "exec_plugin_expiry"):
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
