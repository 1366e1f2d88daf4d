"""Pure: who has a token of the issuer gets in, as Envoy's filter; its public keys.

The filter comes from a file of its own and not from the frozen listener, so
that an issuer's new keys reach kept-alive connections and refill no rate limit.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from speculative_api import gateway, labels

from .configuration import ECDS_FILE, OFF, TOKENS, digest, watched, with_providers

LONGEST_BYTES = 256 * 1024
"""Of a key set; issuers have a handful of keys."""
KINDS = ("RSA", "EC", "OKP")
"""Public keys. A symmetric one would be a secret that everybody may read here."""
REQUIREMENT = "token"
_FILTER = "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3."


@dataclass(frozen=True, slots=True)
class KeySet:
    """An issuer's usable public keys as JSON text, empty if there are none; and what is wrong."""

    text: str = ""
    problem: str = ""


def key_set(text: str) -> KeySet:
    """The public keys of a JSON Web Key Set (RFC 7517), the others left out."""
    if len(text) > LONGEST_BYTES:
        return KeySet(problem=f"it is longer than {LONGEST_BYTES} bytes")
    try:
        keys = json.loads(text)["keys"]
        usable = [key for key in keys if key["kty"] in KINDS]
    except (ValueError, KeyError, TypeError, RecursionError):
        return KeySet(problem='it is not JSON of the form {"keys": [{"kty": …}, …]}')
    if not usable:
        return KeySet(problem=f"it has no key of kind {', '.join(KINDS)}")
    # Private parts are nobody's business, should they ever be there.
    shown = [{name: key[name] for name in sorted(key.keys() - _PRIVATE)} for key in usable]
    return KeySet(json.dumps({"keys": shown}, sort_keys=True))


_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def tokens_filter(folder: PurePath) -> dict[str, Any]:
    """The listener's filter; without its file nobody gets in."""
    return {
        "name": TOKENS,
        "config_discovery": {
            "config_source": watched(folder / ECDS_FILE),
            "type_urls": [_FILTER + "JwtAuthentication"],
        },
    }


def tokens(asked: Mapping[str, tuple[gateway.Jwt, KeySet]]) -> dict[str, Any]:
    """The filter's own configuration by names of requirements, marked with its digest; what has no
    keys is left out, and refused where a route asks for it.
    """
    usable = {name: _provider(jwt, keys) for name, (jwt, keys) in asked.items() if keys.text}
    return with_providers({"@type": _FILTER + "JwtAuthentication"}, usable)


def _provider(jwt: gateway.Jwt, keys: KeySet) -> dict[str, Any]:
    return {
        "issuer": jwt.issuer,
        "audiences": list(jwt.audiences),
        "local_jwks": {"inline_string": keys.text},
        # By default a token in the query is taken too, which logs and caches see.
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "require_expiration": True,
        "claim_to_headers": [{"header_name": labels.CLIENT_HEADER, "claim_name": jwt.client_claim}],
    }


def requirement(jwt: gateway.Jwt) -> str:
    """A name of its own for what one of several asks of tokens."""
    return f"{REQUIREMENT}.{digest(jwt.model_dump(mode='json'))}"


def asked_of(jwt: gateway.Jwt | None, name: str = REQUIREMENT) -> dict[str, Any]:
    """The filter's settings of a route. An unknown requirement is refused by Envoy with 403."""
    if jwt is None:
        return OFF
    return {"@type": _FILTER + "PerRouteConfig", "requirement_name": name}
