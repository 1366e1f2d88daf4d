"""Images are built when their inputs changed, and their builds keep the host's settings out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from e2e.cluster.builder import Build, build_command, build_environment
from e2e.cluster.images import Image, input_files, input_hash


@pytest.fixture
def image(tmp_path: Path) -> Image:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text("one = 1\n")
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    build = Build(image="localhost/one:dev", dockerfile=tmp_path / "Dockerfile", context=tmp_path)
    return Image(build=build, inputs=(tmp_path / "Dockerfile", tmp_path / "package"))


def test_the_hash_follows_content_arguments_and_what_is_under_it(
    image: Image, tmp_path: Path
) -> None:
    first = input_hash(image, root=tmp_path, under="a")
    assert input_hash(image, root=tmp_path, under="a") == first
    assert input_hash(image, root=tmp_path, under="b") != first
    other = replace(image, build=replace(image.build, arguments=(("BASE_IMAGE", "slim"),)))
    assert input_hash(other, root=tmp_path, under="a") != first
    (tmp_path / "package" / "code.py").write_text("one = 2\n")
    assert input_hash(image, root=tmp_path, under="a") != first


def test_caches_are_no_inputs(image: Image, tmp_path: Path) -> None:
    before = input_hash(image, root=tmp_path, under="")
    for folder in ("__pycache__", ".venv"):
        (tmp_path / "package" / folder).mkdir()
        (tmp_path / "package" / folder / "thing").write_text("x")
    assert input_hash(image, root=tmp_path, under="") == before


def test_files_are_listed_once_and_sorted(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    assert input_files([tmp_path, tmp_path / "a"]) == [tmp_path / "a", tmp_path / "b"]


def test_registry_settings_reach_a_build_and_paths_of_the_host_do_not() -> None:
    lines = build_environment(
        {
            "PIP_INDEX_URL": "https://packages.example/simple?a=b c",
            "UV_DEFAULT_INDEX": "https://packages.example/simple",
            "PIP_CERT": "/host/ca.pem",
            "PIP_FIND_LINKS": "/host/wheels",
            "UV_CACHE_DIR": "/host/cache",
            "https_proxy": "http://proxy.example:3128",
            "SECRET_TOKEN": "not for a build",
        },
        ca_bundle="/run/secrets/ca_bundle",
    ).splitlines()
    assert "PIP_INDEX_URL='https://packages.example/simple?a=b c'" in lines
    assert "UV_DEFAULT_INDEX=https://packages.example/simple" in lines
    assert "https_proxy=http://proxy.example:3128" in lines
    assert "PIP_CERT=/run/secrets/ca_bundle" in lines
    assert not any("/host/" in line or "SECRET" in line for line in lines)


@pytest.mark.parametrize("prefix", [["docker"], ["buildah", "--root", "/store"]])
def test_the_hosts_settings_are_secrets_never_build_arguments(
    image: Image, prefix: list[str]
) -> None:
    argv = build_command(image.build, prefix=prefix, secrets=Path("/secrets"))
    assert "id=build_env,src=/secrets/build_env" in argv
    assert "id=ca_bundle,src=/secrets/ca_bundle" in argv
    assert "--build-arg" not in argv
    assert argv[: len(prefix) + 1] == [*prefix, "build"]
