"""How busy GPUs are, from DCGM's exporter through Prometheus."""

import asyncio
from typing import Final

import aiohttp

from speculative_operator.errors import NotReadable
from speculative_operator.metrics.prometheus import instant_query
from speculative_operator.scaling.signals import Unmeasured, Value

QUERY: Final = 'avg(DCGM_FI_DEV_GPU_UTIL{{namespace="{namespace}",pod=~"{pods}"}})'
"""As dcgm-exporter labels it on Kubernetes, with `honorLabels` in the scrape configuration."""


class Prometheus:
    """`Gpus` of production; `url` empty: not configured."""

    def __init__(self, url: str, *, timeout_seconds: float = 5.0) -> None:
        self._url = url
        self._timeout_seconds = timeout_seconds

    async def utilization_percent(self, namespace: str, pods: tuple[str, ...]) -> Value:
        """Mean over the GPUs of these pods; absent where Prometheus has nothing about them."""
        if not self._url:
            return Unmeasured("the operator has no prometheusUrl (chart: settings.prometheusUrl)")
        query = QUERY.format(namespace=namespace, pods="|".join(pods))
        try:
            async with asyncio.timeout(self._timeout_seconds), aiohttp.ClientSession() as session:
                found = await instant_query(
                    session, self._url, query, at=0.0, timeout_seconds=self._timeout_seconds
                )
        except NotReadable as error:
            return Unmeasured(str(error))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Unmeasured(f"Prometheus does not answer: {type(error).__name__}")
        if found.value is None:
            return Unmeasured(f"no DCGM_FI_DEV_GPU_UTIL of these pods: {found.problem}")
        return min(100.0, max(0.0, found.value))
