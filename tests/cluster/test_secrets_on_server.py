"""A Secret is read where a Role says so, and every reason why it can't be is in words."""

import base64
from typing import Any

import pytest
from tests.cluster.envtest import Server

from speculative_api.v1alpha1 import SecretKey
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import SECRET
from speculative_operator.cluster.secrets import secret_reader
from speculative_operator.errors import NotReadable

pytestmark = pytest.mark.cluster


def a_secret(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "data": data,
    }


async def test_the_text_of_a_key_is_read(api_server: Server) -> None:
    async with Client(api_server.access) as client:
        token = base64.b64encode(b"abc").decode()
        await client.create(SECRET, a_secret("token-1", token=token, picture="/w=="))
        read = secret_reader(client)
        assert await read("default", SecretKey(name="token-1")) == "abc"
        with pytest.raises(NotReadable, match="Secret token-1 has no key other"):
            await read("default", SecretKey(name="token-1", key="other"))
        with pytest.raises(NotReadable, match="key picture: no text"):
            await read("default", SecretKey(name="token-1", key="picture"))
        with pytest.raises(NotReadable, match="Secret token-2 does not exist"):
            await read("default", SecretKey(name="token-2"))
