"""Files that other processes read while we write them.

A text is written beside its target and renamed over it, so that a reader sees
the old or the new one, never half, and only their owner may read: one holds
keys. An equal text is not written at all, so that Envoy's watch stays quiet.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

APPLIED_FILE: Final = "applied.json"
"""The route in use, as the agent left it: read by its next life and by the supervisor."""


def read(folder: Path) -> dict[str, str]:
    """Every `*.json` in the folder, by file name; nothing if there is no folder."""
    return {path.name: path.read_text() for path in sorted(folder.glob("*.json"))}


def read_secret(folder: Path) -> dict[str, bytes]:
    """The entries of a mounted Secret, all of one version; nothing if it is not there.

    Raises:
        OSError: it can't be read.
    """
    link = folder / "..data"
    version = link.resolve()
    while True:
        source = version if version.is_dir() else folder
        try:
            found = {
                path.name: path.read_bytes()
                for path in sorted(source.glob("*"))
                if not path.name.startswith("..") and not path.is_dir()
            }
        except FileNotFoundError:
            found = {}
        # The kubelet swaps the link, then deletes what it led to.
        before, version = version, link.resolve()
        if version == before:
            return found


def write(path: Path, text: str) -> bool:
    """Puts the text in place; says whether that took a write.

    Raises:
        OSError: the folder can't be written.
    """
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True


def write_all(folder: Path, texts: Mapping[str, str]) -> list[str]:
    """Writes every text that differs; names what was written."""
    return [name for name, text in texts.items() if write(folder / name, text)]


def remove_others(folder: Path, keep: Mapping[str, str], prefix: str) -> list[str]:
    """Deletes `<prefix>*.json` files that are not in `keep`; names what was deleted."""
    gone = [path for path in folder.glob(f"{prefix}*.json") if path.name not in keep]
    for path in gone:
        path.unlink(missing_ok=True)
    return [path.name for path in gone]
