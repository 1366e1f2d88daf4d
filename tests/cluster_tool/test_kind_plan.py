"""What CLUSTER=kind would run, read as a plan: no Docker engine is needed for that."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from e2e.cluster import kind_cluster
from e2e.cluster.images import CLUSTER_IMAGES
from e2e.cluster.settings import Settings, settings_from

KIND = Path(kind_cluster.__file__).parent / "kind"


@pytest.fixture
def settings() -> Settings:
    return settings_from({"HOME": "/root", "SPECULATIVE_HOME": "/data/spec", "CLUSTER": "kind"})


def test_every_image_is_built_before_the_one_that_stands_on_it(settings: Settings) -> None:
    tags = []
    for step in kind_cluster.build_plan(settings):
        words = step.argv
        assert words[:2] == ("docker", "build")
        base = next(word for word in words if word.startswith("BASE_IMAGE="))
        assert base == "BASE_IMAGE=python:3.11-slim" or base.removeprefix("BASE_IMAGE=") in tags
        tags.append(words[words.index("--tag") + 1])
    assert set(CLUSTER_IMAGES) <= set(tags)


def test_images_reach_kind_as_the_archive_that_was_saved(settings: Settings) -> None:
    save, load = kind_cluster.load_plan(settings, CLUSTER_IMAGES)
    archive = save.argv[save.argv.index("--output") + 1]
    assert save.argv[-len(CLUSTER_IMAGES) :] == CLUSTER_IMAGES
    assert load.argv[1:] == ("load", "image-archive", archive, "--name", "speculative")


def test_the_node_gets_gpus_by_the_status_subresource(settings: Settings) -> None:
    create, gpus = kind_cluster.up_plan(settings)
    assert create.argv[1:3] == ("create", "cluster")
    patch = json.loads(gpus.argv[-1])
    assert "--subresource=status" in gpus.argv
    assert patch == [
        {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"},
    ]


def test_down_removes_only_our_cluster(settings: Settings) -> None:
    (step,) = kind_cluster.down_plan(settings)
    assert step.argv[1:5] == ("delete", "cluster", "--name", "speculative")


@pytest.mark.slow
def test_the_configuration_is_one_that_kinds_own_types_take(
    settings: Settings, tmp_path: Path
) -> None:
    assert shutil.which("go"), "Go is a prerequisite of this repository"
    file = tmp_path / "kind.json"
    file.write_text(json.dumps(kind_cluster.cluster_config(settings)))
    done = subprocess.run(
        ["go", "run", "./checkconfig", str(file)],
        cwd=KIND,
        capture_output=True,
        text=True,
        check=False,
    )
    # The first time `go` says on standard error what it downloads.
    assert done.returncode == 0, done.stderr
    assert done.stdout == "control-plane speculative /data/spec/models\n"
