"""The keys and tokens that open a gateway, as its pod can read them now.

From Secrets as seen through the API where that is granted, else as mounted; from issuers as
fetched or mounted. Called by `wants`.
"""

from collections.abc import Collection, Mapping

from speculative_api import gateway

from . import storage
from .issuer import Issuers
from .keys import Keys, usable
from .mounts import Mounts
from .render import NO_KEY_SET, NO_KEYS
from .settings import Settings
from .tokens import KeySet

Secrets = Mapping[str, Mapping[str, bytes]]
"""Entries by Secret, as far as they may be read through the API."""


def not_here(auth: gateway.Auth) -> str:
    """What is said where this pod has nothing to know by whom to let in."""
    jwt = auth.jwt
    if jwt is not None and jwt.jwks_uri is not None:
        return f"{jwt.jwks_uri} was not fetched yet"
    kind = f"Secret {auth.api_keys_secret}" if jwt is None else f"ConfigMap {jwt.jwks_config_map}"
    return f"this pod has no {kind} mounted: its successor will"


class Credentials:
    """Keys and key sets as they can be read here."""

    def __init__(self, settings: Settings) -> None:
        self.secrets = Mounts(
            settings.api_keys_directory,
            settings.api_keys_names,
            is_anyones=not settings.shared_gateway,
        )
        self.issuers = Issuers(settings)

    def mounted(self) -> dict[str, str]:
        """Names of what is mounted here without one, for a later agent of this pod."""
        return {"secret": self.secrets.lone, "keySet": self.issuers.mounts.lone}

    def remember(self, mounted: Mapping[str, str]) -> None:
        """Takes what an earlier agent gave as `mounted`."""
        self.secrets.lone = mounted["secret"]
        self.issuers.mounts.lone = mounted["keySet"]

    def asked(self, auths: Collection[gateway.Auth]) -> None:
        """Takes all that is asked for; what is not is forgotten or not fetched any more."""
        self.secrets.asked({each.api_keys_secret for each in auths if each.jwt is None})
        self.issuers.asked([each.jwt for each in auths if each.jwt is not None])

    def are_here(self, auth: gateway.Auth, seen: Secrets) -> bool:
        """Whether this pod can know whom to let in, whether anybody is."""
        if auth.jwt is not None:
            return self.issuers.are_here(auth.jwt)
        name = auth.api_keys_secret
        return name in seen or self.secrets.of(name) is not None

    def possible(
        self, wanted: gateway.Auth | None, before: gateway.Auth | None, seen: Secrets
    ) -> tuple[gateway.Auth | None, str]:
        """Whom to let in: who is wanted, or who was before while this pod can't know the newer;
        and then why.
        """
        if wanted is None or self.are_here(wanted, seen):
            return wanted, ""
        if before is None or not self.are_here(before, seen):
            return wanted, ""
        return before, f"{not_here(wanted)}; until then those of before are asked for"

    def keys(self, auth: gateway.Auth | None, seen: Secrets) -> Keys:
        """The keys as seen through the API, else as mounted now; none, with the reason, where
        they can't be read.
        """
        if auth is None or auth.jwt is not None:
            return NO_KEYS
        name = auth.api_keys_secret
        folder, entries = self.secrets.of(name), seen.get(name)
        if folder is None and entries is None:
            return Keys(problem=not_here(auth))
        try:
            if entries is None and folder is not None:
                entries = storage.read_secret(folder)
        except OSError as error:
            return Keys(problem=f"Secret {name} can't be read: {error.strerror}")
        found = usable(entries or {})
        if found.by_client:
            return found
        why = found.problem or "it is missing or empty"
        return Keys(problem=f"every request is refused: Secret {name} has no usable key: {why}")

    def key_set(self, auth: gateway.Auth | None) -> KeySet:
        """The issuer's public keys."""
        jwt = auth.jwt if auth else None
        return self.issuers.key_set(jwt) if jwt else NO_KEY_SET
