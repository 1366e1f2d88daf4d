"""`oci://` sources: what is the image, what the folder in it, and where it is mounted."""

import pytest

from speculative_api.model_images import image_of

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "source,reference,folder,pinned",
    [
        ("oci://ghcr.io/org/model:v1", "ghcr.io/org/model:v1", "", False),
        (f"oci://ghcr.io/org/model@{DIGEST}", f"ghcr.io/org/model@{DIGEST}", "", True),
        ("oci://localhost:5000/m:1//models/x", "localhost:5000/m:1", "models/x", False),
    ],
)
def test_image_and_folder(source: str, reference: str, folder: str, pinned: bool) -> None:
    image = image_of(source)
    assert image is not None
    assert (image.reference, image.folder, image.is_pinned) == (reference, folder, pinned)


@pytest.mark.parametrize("source", ["oci://model", "oci:///x/y", "hf://a/b", "oci://a/b c"])
def test_what_is_no_image(source: str) -> None:
    assert image_of(source) is None


def test_models_of_one_image_share_its_mount() -> None:
    first, second, other = (
        image_of(f"oci://r/{rest}") for rest in ("a:1//target", "a:1//draft", "a:2//target")
    )
    assert first is not None
    assert second is not None
    assert other is not None
    assert first.mount_name == second.mount_name != other.mount_name
