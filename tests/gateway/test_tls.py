"""Real Envoy: users' TLS, its lowest version, HTTP/2, and renewal without a restart."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.gateway.backends import Backend
from tests.gateway.harness import STABLE, Gateway, backend, eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


def certificate(serial: int) -> dict[str, str]:
    """As in a Secret of type kubernetes.io/tls, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36_500))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {"tls.crt": built.public_bytes(pem).decode(), "tls.key": private.decode()}


def client_context(*, highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """Offers HTTP/2 and believes any certificate: which one it is the tests look at."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = highest
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encrypted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(tmp_path_factory.mktemp("encrypted"), session, tls="1.3")
        gateway.mount("tls", certificate(1))
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()


async def serving(gateway: Gateway, stable: Backend) -> None:
    gateway.endpoints(**{STABLE: [stable]})
    await gateway.route(backend(STABLE, 100))


async def handshake(gateway: Gateway, context: ssl.SSLContext) -> tuple[int, str | None]:
    """Serial number of the certificate, and the protocol that was chosen; 0 where it fails."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, ssl=context)
    except (OSError, ssl.SSLError):
        return 0, None
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    shown = connection.getpeercert(binary_form=True)
    chosen = connection.selected_alpn_protocol()
    writer.transport.abort()
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number, chosen


async def test_users_speak_tls_and_are_offered_http_2(encrypted: Gateway, stable: Backend) -> None:
    await serving(encrypted, stable)
    assert await handshake(encrypted, client_context()) == (1, "h2")
    # This client speaks HTTP/1.1.
    context = client_context()
    context.set_alpn_protocols(["http/1.1"])
    async with encrypted.session.post(
        f"https://127.0.0.1:{encrypted.port}/v1/chat/completions", json={}, ssl=context
    ) as answer:
        assert answer.status == 200
    # And nobody without.
    assert (await encrypted.answer())[0] == 0


async def test_older_versions_are_refused(encrypted: Gateway, stable: Backend) -> None:
    await serving(encrypted, stable)
    assert await handshake(encrypted, client_context(highest=ssl.TLSVersion.TLSv1_2)) == (0, None)


async def test_a_renewed_certificate_is_used_and_open_streams_go_on(
    encrypted: Gateway, stable: Backend
) -> None:
    await serving(encrypted, stable)
    stable.hold()
    pid = encrypted.envoy_pid()
    context = client_context()
    context.set_alpn_protocols(["http/1.1"])
    async with encrypted.session.post(
        f"https://127.0.0.1:{encrypted.port}/v1/chat/completions",
        json={"stream": True},
        ssl=context,
    ) as answer:
        await answer.content.readline()
        encrypted.mount("tls", certificate(2))
        await eventually(
            lambda: handshake(encrypted, client_context()), lambda seen: seen[0] == 2, "renewed"
        )
        stable.release()
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    assert encrypted.envoy_pid() == pid


async def test_a_key_that_does_not_fit_leaves_the_old_certificate(
    encrypted: Gateway, stable: Backend
) -> None:
    await serving(encrypted, stable)
    encrypted.mount("tls", certificate(3))
    await eventually(
        lambda: handshake(encrypted, client_context()), lambda seen: seen[0] == 3, "a good one"
    )
    bad = {**certificate(4), "tls.key": certificate(5)["tls.key"]}
    encrypted.mount("tls", bad)

    async def rejected() -> str:
        url = f"http://127.0.0.1:{encrypted.admin_port}/stats?filter=sds.users.key_rotation_failed"
        async with encrypted.session.get(url) as answer:
            return (await answer.text()).strip().rpartition(" ")[2]

    await eventually(rejected, lambda count: count not in ("", "0"), "it was looked at")
    assert (await handshake(encrypted, client_context()))[0] == 3


async def test_without_a_certificate_the_gateway_is_not_ready_and_says_why(
    tmp_path_factory: pytest.TempPathFactory, stable: Backend
) -> None:
    async with aiohttp.ClientSession() as session:
        gateway = Gateway(tmp_path_factory.mktemp("bare"), session, tls="1.2")
        gateway.mount("tls", {**certificate(1), "tls.key": "none"})
        try:
            await gateway.start()
            gateway.endpoints(**{STABLE: [stable]})
            gateway.ask(backend(STABLE, 100))
            await gateway.until(
                lambda state: not state.ready and "tls.crt" in state.error, "it says so"
            )
            assert await gateway.status_of("/readyz") == 503
            gateway.mount("tls", certificate(2))
            await gateway.until(lambda state: state.ready and not state.error, "ready with one")
            assert (await handshake(gateway, client_context()))[0] == 2
        finally:
            await gateway.stop()
