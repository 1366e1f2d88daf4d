"""How busy GPUs are, from DCGM's exporter through Prometheus."""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from speculative_operator.scaling.signals import Unmeasured, Value

QUERY: Final = 'avg(DCGM_FI_DEV_GPU_UTIL{{namespace="{namespace}",pod=~"{pods}"}})'
"""As dcgm-exporter labels it on Kubernetes, with `honorLabels` in the scrape configuration."""
LARGEST_ANSWER: Final = 64 * 1024
"""Bytes; the answer is one number."""


class Prometheus:
    """`Gpus` of production; `url` empty: not configured."""

    def __init__(self, url: str, *, timeout_seconds: float = 5.0) -> None:
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def utilization_percent(self, namespace: str, pods: tuple[str, ...]) -> Value:
        """Mean over the GPUs of these pods; absent where Prometheus has nothing about them."""
        if not self._url:
            return Unmeasured("the operator has no prometheusUrl (chart: settings.prometheusUrl)")
        query = QUERY.format(namespace=namespace, pods="|".join(pods))
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout) as session,
                session.get(
                    f"{self._url}/api/v1/query", params={"query": query}, allow_redirects=False
                ) as answer,
            ):
                text = await answer.content.read(LARGEST_ANSWER)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unmeasured(f"Prometheus does not answer: {type(error).__name__}")
        if status != 200:
            return Unmeasured(f"Prometheus answered {status}")
        return _number(text)


def _number(text: bytes) -> Value:
    try:
        answer: Mapping[str, Any] = json.loads(text)
        result = answer["data"]["result"]
        found = float(result[0]["value"][1]) if result else math.nan
    except (ValueError, KeyError, IndexError, TypeError):
        return Unmeasured("Prometheus' answer can't be read")
    if not math.isfinite(found):
        return Unmeasured("Prometheus has no DCGM_FI_DEV_GPU_UTIL of these pods")
    return min(100.0, max(0.0, found))
