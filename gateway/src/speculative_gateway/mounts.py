"""Where the Secrets with keys, and the ConfigMaps with an issuer's, are mounted in this pod.

A pod with a lone one does not say its name: that would replace the pods of every gateway
there is. It is the one that was asked for when it was alone, as long as the pod lives.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Mounts:
    """Folders of one kind."""

    folder: Path | None
    """None: nothing is mounted."""
    names: tuple[str, ...] = ()
    """Of those with a folder each below this one; none: there is a lone one, if any."""
    is_anyones: bool = False
    """Whether the lone one is whichever is asked for: it is, where a gateway is one resource's."""
    lone: str = ""
    """Name of the lone one, once it is known; for a later agent of this pod to be told."""

    def asked(self, names: Collection[str]) -> None:
        """Takes which are asked for: of one alone the lone folder is the one."""
        if not self.names and not self.lone and len(names) == 1:
            (self.lone,) = names

    def of(self, name: str) -> Path | None:
        """The folder of this one; None where it is not mounted here."""
        if self.folder is None:
            return None
        if self.names:
            return self.folder / name if name in self.names else None
        return self.folder if self.is_anyones or (name and name == self.lone) else None
