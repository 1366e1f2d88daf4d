"""Real Envoy: TLS to workers, whom it believes, and an authority that changes."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from tests.certificates import Authority, written
from tests.gateway.backends import Backend, running
from tests.gateway.harness import CANARY, STABLE, Gateway, backend, eventually

from speculative_api import gateway as api

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

NAME = "chat.engines"
TLS = api.BackendTls(authority="engines", server_name=NAME)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trusting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    async with aiohttp.ClientSession() as session:
        folder = tmp_path_factory.mktemp("trusting")
        gateway = Gateway(folder, session, authorities=("engines",))
        gateway.mount("authorities/engines", {"ca.crt": Authority().pem})
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()


@asynccontextmanager
async def engine(name: str, folder: Path, secret: dict[str, str]) -> AsyncIterator[Backend]:
    """A worker whose engine speaks TLS with this Secret."""
    files = written(folder / name, secret)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "tls.crt", files / "tls.key")
    async with running(name, encryption=context) as found:
        yield found


def encrypted(revision: str, weight: int) -> api.Backend:
    return backend(revision, weight).model_copy(update={"tls": TLS})


async def test_engines_are_reached_by_tls_beside_plain_ones(
    trusting: Gateway, tmp_path: Path
) -> None:
    authority = Authority()
    trusting.mount("authorities/engines", {"ca.crt": authority.pem})
    async with (
        engine("stable", tmp_path, authority.secret(NAME)) as stable,
        running("plain") as plain,
    ):
        trusting.endpoints(**{STABLE: [stable], CANARY: [plain]})
        await trusting.route(encrypted(STABLE, 50), backend(CANARY, 50), schema_version=4)

        async def both() -> set[tuple[int, str]]:
            return {await trusting.answer() for _ in range(20)}

        await eventually(both, lambda seen: seen == {(200, STABLE), (200, CANARY)}, "both answer")
        assert stable.requests > 0


@pytest.mark.parametrize("fault", ["another name", "another authority"])
async def test_a_stranger_is_sent_nothing(trusting: Gateway, tmp_path: Path, fault: str) -> None:
    authority = Authority()
    trusting.mount("authorities/engines", {"ca.crt": authority.pem})
    signer = Authority() if fault == "another authority" else authority
    secret = signer.secret("chat.elsewhere" if fault == "another name" else NAME)
    async with engine("stranger", tmp_path, secret) as stranger:
        trusting.endpoints(**{STABLE: [stranger]})
        await trusting.route(encrypted(STABLE, 100), schema_version=4)
        async with trusting.post() as answer:
            assert answer.status == 503
        assert stranger.requests == 0

    async def log() -> str:
        return trusting.log("supervise")

    words = "SAN_matcher" if fault == "another name" else "certificate_signature_failure"
    await eventually(log, lambda text: words in text, "the log says why")


async def test_a_new_authority_is_believed_without_a_restart(
    trusting: Gateway, tmp_path: Path
) -> None:
    old, new = Authority("old"), Authority("new")
    trusting.mount("authorities/engines", {"ca.crt": old.pem})
    pid = trusting.envoy_pid()
    async with (
        engine("old", tmp_path, old.secret(NAME)) as before,
        engine("new", tmp_path, new.secret(NAME)) as after,
    ):
        trusting.endpoints(**{STABLE: [before]})
        await trusting.route(encrypted(STABLE, 100), schema_version=4)
        served = (200, STABLE)
        await eventually(trusting.answer, lambda seen: seen == served, "the old one answers")
        # As one rotates an authority: both are believed for a while.
        trusting.mount("authorities/engines", {"ca.crt": old.pem + new.pem})
        trusting.endpoints(**{STABLE: [after]})

        async def reached() -> int:
            await trusting.answer()
            return after.requests

        await eventually(reached, bool, "the new one is reached")
        trusting.mount("authorities/engines", {"ca.crt": new.pem})
        trusting.endpoints(**{STABLE: [before]})
        await eventually(trusting.answer, lambda seen: seen[0] == 503, "the old one is refused")
    assert trusting.envoy_pid() == pid


async def test_a_route_to_an_authority_that_is_not_mounted_is_refused(trusting: Gateway) -> None:
    other = api.BackendTls(authority="elsewhere", server_name=NAME)
    asked = backend(STABLE, 100).model_copy(update={"tls": other})
    trusting.ask(asked, schema_version=4)
    state = await trusting.until(lambda state: "elsewhere" in state.error, "the route is refused")
    assert "this pod has no ca.crt of Secret elsewhere mounted" in state.error
