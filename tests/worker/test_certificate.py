"""The engine's certificate: what is refused before the engine starts, and renewal."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.certificates import Authority, written

from speculative_api.worker import EngineTls
from speculative_worker.certificate import Certificate, problem
from speculative_worker.errors import WorkerFailure

NAME = "chat.engines"
AUTHORITY = Authority()
GOOD = AUTHORITY.secret(NAME)


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in GOOD.items() if key != name}


def test_what_the_authority_signed_for_the_name_will_do(tmp_path: Path) -> None:
    assert problem(written(tmp_path, GOOD), NAME) == ""


@pytest.mark.parametrize(
    "entries, says",
    [
        (without("tls.key"), "tls.crt and tls.key can't be used: .*No such file"),
        (without("ca.crt"), "ca.crt can't be used: .*No such file"),
        ({**GOOD, "tls.key": AUTHORITY.secret(NAME)["tls.key"]}, "can't be used: .*KEY_VALUES"),
        ({**GOOD, "tls.crt": "no certificate"}, "can't be used"),
        ({**GOOD, "ca.crt": "no certificate"}, "ca.crt can't be used"),
        (AUTHORITY.secret("chat.elsewhere"), f"refused for {NAME}: .*Hostname mismatch"),
        ({**GOOD, "ca.crt": Authority().pem}, f"refused for {NAME}: "),
        (AUTHORITY.secret(NAME, days=1), f"refused for {NAME}: certificate has expired"),
    ],
    ids=[
        "no key",
        "no authority",
        "another key",
        "torn certificate",
        "torn authority",
        "another name",
        "another authority",
        "expired",
    ],
)
def test_what_a_gateway_would_refuse_is_said(
    tmp_path: Path, entries: dict[str, str], says: str
) -> None:
    folder = written(tmp_path, entries)
    with pytest.raises(WorkerFailure, match=says) as failure:
        Certificate(EngineTls(directory=str(folder), server_name=NAME))
    assert not failure.value.retryable


@pytest.fixture
def held(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[], Certificate]:
    def made() -> Certificate:
        found = Certificate(EngineTls(directory=str(tmp_path), server_name=NAME))
        request.addfinalizer(found.discard)
        return found

    return made


def test_the_engine_gets_copies_that_nobody_else_may_read(
    tmp_path: Path, held: Callable[[], Certificate]
) -> None:
    written(tmp_path, GOOD)
    found = held()
    assert {path.name: path.read_text() for path in found.folder.iterdir()} == without("ca.crt")
    assert {path.stat().st_mode & 0o777 for path in found.folder.iterdir()} == {0o600}
    assert found.folder.stat().st_mode & 0o777 == 0o700
    found.discard()
    assert not found.folder.exists()


def test_a_renewed_certificate_is_written_into_the_same_files(
    tmp_path: Path, held: Callable[[], Certificate]
) -> None:
    written(tmp_path, GOOD)
    found = held()
    files = [found.folder / name for name in ("tls.key", "tls.crt")]
    before = [path.stat().st_ino for path in files]
    assert not found.look()
    renewed = AUTHORITY.secret(NAME)
    written(tmp_path, renewed)
    assert found.look()
    assert [path.read_text() for path in files] == [renewed["tls.key"], renewed["tls.crt"]]
    assert [path.stat().st_ino for path in files] == before
    assert not found.look()


def test_a_renewal_that_would_not_do_is_left_out_and_said_once(
    tmp_path: Path, held: Callable[[], Certificate], capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, GOOD)
    found = held()
    written(tmp_path, {"tls.key": AUTHORITY.secret(NAME)["tls.key"]})
    assert not found.look()
    assert not found.look()
    assert (found.folder / "tls.key").read_text() == GOOD["tls.key"]
    assert capsys.readouterr().err.count("certificate-refused") == 1
