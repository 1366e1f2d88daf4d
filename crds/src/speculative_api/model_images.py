"""PURE: models that are OCI images, `oci://REFERENCE[//FOLDER]`, mounted as image volumes.

The operator mounts the image where the worker looks for it; both take the place
from here. FOLDER is where the model lies inside the image; without it at its top.
"""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

IMAGES_DIRECTORY: Final = "/mnt/images"
"""Below it each image has a folder of its own."""
_SOURCE: Final = re.compile(r"^oci://(?P<reference>[^\s/]+(/[^\s/]+)+)(//(?P<folder>\S+))?$")


@dataclass(frozen=True, slots=True)
class ModelImage:
    """One model in an image."""

    reference: str
    """As a container's image: registry, name, tag or digest."""
    folder: str
    """Inside the image; empty: its top."""

    @property
    def mount_name(self) -> str:
        """Folder of the image below `IMAGES_DIRECTORY`; models of one image share it."""
        return sha256(self.reference.encode()).hexdigest()[:16]

    @property
    def is_pinned(self) -> bool:
        """Whether it names a digest, so that no later pod gets other weights."""
        return "@sha256:" in self.reference


def image_of(source: str) -> ModelImage | None:
    """The image of a source; None for other kinds."""
    found = _SOURCE.match(source)
    return ModelImage(found["reference"], found["folder"] or "") if found else None
