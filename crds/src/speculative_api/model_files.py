"""Edge: the small files of a checkpoint, read from a folder or from a hub.

With `bucket_files` the only IO of this package, here because three programs judge models by the
same reading: `lint --with-models`, the Job before a revision's pods, and those
pods. Of a hub's files it asks by HTTP for the list, for small ones, and for the
first bytes of large ones: no weights are fetched. Whoever reads a hub brings
`huggingface_hub` along; HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE count.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from stat import S_ISREG
from typing import Final

from speculative_api.model_buckets import UNWANTED
from speculative_api.weight_files import Unreadable

HUB: Final = re.compile(r"^hf://(?P<repository>[^/@\s]+/[^/@\s]+)(@(?P<revision>\S+))?$")
CLAIM: Final = re.compile(r"^pvc://(?P<claim>[a-z0-9.-]+)/(?P<path>\S+)$")
REFUSALS: Final = (401, 403, 404)
"""Answers of a hub that asking again does not change."""
TEXT_BYTES: Final = 64 * 2**20
"""Longest small file that is fetched; a large tokenizer has some twenty mebibytes."""


class Why(StrEnum):
    """Why a model can't be read from here."""

    AWAY = "away"
    """Whoever has it does not answer; it may later."""
    REFUSED = "refused"
    """Whoever has it does not give it out, or has no such thing."""
    HIDDEN = "hidden"
    """It is here, and this process may not read it."""
    ELSEWHERE = "elsewhere"
    """Only a pod sees it."""


class NotHere(Exception):
    """The model can't be read from here; the message says why and what to do."""

    def __init__(self, message: str, why: Why) -> None:
        super().__init__(message)
        self.why = why


class FolderFiles:
    """`ModelFiles` over a folder. Raises `NotHere` (hidden) for what may not be read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file in the folder itself, links followed (a hub's cache is links)."""
        found = {}
        with self._readable(""), os.scandir(self._folder) as entries:
            for entry in entries:
                if entry.is_file():
                    found[entry.name] = entry.stat().st_size
        return found

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""
        try:
            return self.head(name, TEXT_BYTES).decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"{self._folder / name} cannot be read: {error}") from error

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file. Raises `Unreadable`."""
        place = self._folder / name
        with self._readable(name):
            # Not opened before it is known: a pipe would wait for a writer for ever.
            if not S_ISREG(place.stat().st_mode):
                raise Unreadable(f"{place} is no file")
            with place.open("rb") as file:
                return file.read(size)

    @contextmanager
    def _readable(self, name: str) -> Iterator[None]:
        place = self._folder / name
        try:
            yield
        except FileNotFoundError:
            raise Unreadable(f"{place} does not exist") from None
        except PermissionError:
            user = os.getuid()
            raise NotHere(f"{place} may not be read by user {user}", Why.HIDDEN) from None
        except OSError as error:
            raise Unreadable(f"{place} cannot be read: {error}") from error


class HubFiles:
    """`ModelFiles` over a hub, at one commit. Raises `NotHere` (away, refused)."""

    def __init__(
        self, repository: str, revision: str | None, *, endpoint: str | None = None
    ) -> None:
        # Imported here: only hub models need it, and it is slow to import.
        from huggingface_hub import HfApi, constants

        self._repository = repository
        self._endpoint = endpoint or constants.ENDPOINT
        with self._answering(""):
            found = HfApi(endpoint=self._endpoint).model_info(
                repository, revision=revision, files_metadata=True, timeout=30
            )
        # Everything is read at one commit, whatever moves meanwhile.
        self.commit = found.sha or revision or "main"
        self._sizes = {file.rfilename: file.size or 0 for file in found.siblings or ()}

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file at the top of the repository."""
        return {name: size for name, size in self._sizes.items() if "/" not in name}

    def missing_bytes(self, cache: Path) -> int:
        """Of what a download would fetch into this cache of the hub's library."""
        from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

        kept = cache / f"models--{self._repository.replace('/', '--')}" / "snapshots" / self.commit
        wanted: Iterable[str] = filter_repo_objects(self._sizes, ignore_patterns=list(UNWANTED))
        return sum(self._sizes[name] for name in wanted if not (kept / name).exists())

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""
        return self._get(name, TEXT_BYTES).decode(errors="replace")

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file, by a range request. Raises `Unreadable`."""
        return self._get(name, size)

    def _get(self, name: str, size: int) -> bytes:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

        if name not in self._sizes:
            raise Unreadable(f"{name} does not exist")
        url = hf_hub_url(self._repository, name, revision=self.commit, endpoint=self._endpoint)
        headers = build_hf_headers() | {"Range": f"bytes=0-{max(0, size - 1)}"}
        found = b""
        with (
            self._answering(name),
            get_session().stream("GET", url, headers=headers, timeout=60) as answer,
        ):
            hf_raise_for_status(answer)
            for piece in answer.iter_bytes():
                found += piece
                # A hub that takes no ranges sends all of it: the rest is not read.
                if len(found) >= size:
                    break
        return found[:size]

    @contextmanager
    def _answering(self, name: str) -> Iterator[None]:
        from huggingface_hub import errors

        place = f"hf://{self._repository}" + (f"/{name}" if name else "")
        try:
            yield
        except errors.HFValidationError as error:
            raise NotHere(f"{place}: {error}", Why.REFUSED) from error
        except (errors.HTTPError, OSError) as error:  # type: ignore[attr-defined]
            # HTTPError is that of the HTTP library which this hub version uses.
            first_line = str(error).strip().partition("\n")[0][:200]
            said = f"{place}: {type(error).__name__}: {first_line}"
            if status_of(error) in REFUSALS:
                raise NotHere(
                    f"{said}; check its name, its terms and HF_TOKEN", Why.REFUSED
                ) from error
            raise NotHere(f"{said}; check HF_ENDPOINT and the way there", Why.AWAY) from error


def cached_folder(repository: str, revision: str | None, cache: Path) -> Path | None:
    """The folder of a model that a cache of the hub's library has; None where it has none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(repository, revision=revision, cache_dir=cache, local_files_only=True)
        )
    except (LocalEntryNotFoundError, HFValidationError, OSError):
        return None


def status_of(error: BaseException | None) -> int | None:
    """The hub's answer behind an error: the library wraps one in the other."""
    while error is not None:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
        error = error.__cause__ or error.__context__
    return None
