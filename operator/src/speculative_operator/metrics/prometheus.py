"""Asks Prometheus for single numbers, beside the passes and never in their way.

`ask` starts what is due and gives back the newest answers at once; a server that
is slow or away costs a pass nothing. Answers are hostile until parsed: bounded,
in a time limit, no redirect. Every problem becomes a `Measurement` in words,
none an exception; words of the server's own are passed on for a bad query only.
"""

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import aiohttp

from speculative_api.v1alpha1 import Analysis, PrometheusServer, SecretKey
from speculative_operator.analysis.queried import Measurement
from speculative_operator.errors import NotReadable, OperatorError

log = logging.getLogger(__name__)

LARGEST_ANSWER: Final = 64 * 1024
"""Bytes; one number has about 200."""
SHORTEST_INTERVAL: Final = 5.0
"""Seconds between two questions for the same number, however short the period."""
TOKEN_SECONDS: Final = 60.0
"""A token is read again after so long."""
FORGOTTEN_AFTER: Final = 600.0
"""Seconds after which a query that nobody asks any more is forgotten."""
AT_ONCE: Final = 16
"""Connections open at the same time."""

Place = tuple[str, str]
"""Namespace and name of the resource."""
ReadSecret = Callable[[str, SecretKey], Awaitable[str]]
"""Namespace and key to the text of a Secret. Raises OperatorError with the remedy."""


@dataclass(slots=True)
class _Asked:
    server: PrometheusServer
    text: str
    asked: float = float("-inf")
    found: Measurement | None = None
    task: asyncio.Task[None] | None = None


class Queries:
    """The queries of all resources; `async with` ends them and closes the connections."""

    def __init__(self, read_secret: ReadSecret) -> None:
        self._read_secret = read_secret
        self._asked: dict[tuple[Place, str], _Asked] = {}
        self._tokens: dict[tuple[str, str, str], tuple[float, str]] = {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=AT_ONCE)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [asked.task for asked in self._asked.values() if asked.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def ask(
        self, place: Place, analysis: Analysis, words: Mapping[str, str], *, at: float
    ) -> dict[str, Measurement]:
        """Starts the queries that are due; gives the newest answers, by the metric's name.

        `words` replace `{{…}}` in queries; `at` is unix seconds, the time of this look.
        """
        now = asyncio.get_running_loop().time()
        server, found = analysis.prometheus, {}
        for check in analysis.metrics:
            if check.prometheus is None or server is None:
                continue
            key, text = (place, check.name), filled(check.prometheus.query, words)
            asked = self._asked.get(key)
            if asked is None or (asked.text, asked.server) != (text, server):
                if asked is not None and asked.task is not None:
                    asked.task.cancel()
                asked = self._asked[key] = _Asked(server, text)
            interval = max(analysis.period_seconds, SHORTEST_INTERVAL)
            # A pass comes a little early now and then; half a second is no interval.
            if asked.task is None and now - asked.asked >= interval - 0.5:
                asked.asked = now
                asked.task = asyncio.create_task(self._measure(place[0], asked, at))
            if asked.found is not None:
                found[check.name] = asked.found
        self._forget(now)
        return found

    async def answered(self) -> None:
        """Waits until every question that was asked has its answer."""
        tasks = [asked.task for asked in self._asked.values() if asked.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, now: float) -> None:
        old = [key for key, one in self._asked.items() if now - one.asked > FORGOTTEN_AFTER]
        for key in old:
            del self._asked[key]
        read = {key: one for key, one in self._tokens.items() if now - one[0] <= TOKEN_SECONDS}
        self._tokens = read

    async def _measure(self, namespace: str, asked: _Asked, at: float) -> None:
        server = asked.server
        try:
            asked.found = await self._query(namespace, server, asked.text, at)
        except UNANSWERED as error:
            problem = problem_of(error, server)
            asked.found = Measurement(at, problem=problem, is_away=True)
        finally:
            asked.task = None

    async def _query(
        self, namespace: str, server: PrometheusServer, text: str, at: float
    ) -> Measurement:
        status, body = await self.answer(namespace, server, text, largest=LARGEST_ANSWER)
        return measurement(status, body, at=at)

    async def answer(
        self, namespace: str, server: PrometheusServer, text: str, *, largest: int
    ) -> tuple[int, bytes]:
        """Status and body of one instant query, as long as a person's spec lets it take.

        Raises:
            OperatorError: the answer is longer than `largest` bytes, or the token can't be had.
            TimeoutError, aiohttp.ClientError, OSError: nobody answered.
        """
        if self._session is None:
            raise NotReadable("the client is not open")
        headers = {}
        async with asyncio.timeout(server.timeout_seconds):
            if server.bearer_token_secret is not None:
                token = await self._token(namespace, server.bearer_token_secret)
                headers["Authorization"] = f"Bearer {token}"
            return await _posted(
                self._session,
                server.address,
                text,
                timeout_seconds=server.timeout_seconds,
                headers=headers,
                largest=largest,
            )

    async def _token(self, namespace: str, wanted: SecretKey) -> str:
        key = (namespace, wanted.name, wanted.key)
        now = asyncio.get_running_loop().time()
        read_at, token = self._tokens.get(key, (float("-inf"), ""))
        if now - read_at > TOKEN_SECONDS:
            token = (await self._read_secret(namespace, wanted)).strip()
            if not token or not token.isascii() or not token.isprintable():
                raise NotReadable(f"Secret {wanted.name}, key {wanted.key}: holds no token")
            self._tokens[key] = (now, token)
        return token


UNANSWERED: Final = (TimeoutError, OperatorError, aiohttp.ClientError, OSError)
"""What a question may end with instead of an answer."""


def problem_of(error: Exception, server: PrometheusServer) -> str:
    """One of `UNANSWERED` in words; nothing of the server's own."""
    if isinstance(error, TimeoutError):
        return f"Prometheus did not answer within {server.timeout_seconds} s"
    if isinstance(error, OperatorError):
        return str(error)
    return f"Prometheus can not be reached ({type(error).__name__})"


async def instant_query(
    session: aiohttp.ClientSession,
    address: str,
    query: str,
    *,
    at: float,
    timeout_seconds: float,
    headers: Mapping[str, str] | None = None,
) -> Measurement:
    """One number from `/api/v1/query`; `at` is what its `Measurement` says.

    Raises:
        NotReadable: the answer is longer than one number.
        aiohttp.ClientError, OSError: nobody answered.
    """
    status, body = await _posted(
        session,
        address,
        query,
        timeout_seconds=timeout_seconds,
        headers=headers,
        largest=LARGEST_ANSWER,
    )
    return measurement(status, body, at=at)


async def _posted(
    session: aiohttp.ClientSession,
    address: str,
    query: str,
    *,
    timeout_seconds: float,
    headers: Mapping[str, str] | None,
    largest: int,
) -> tuple[int, bytes]:
    async with session.post(
        f"{address.rstrip('/')}/api/v1/query",
        data={"query": query, "timeout": f"{timeout_seconds:g}s"},
        headers=headers,
        allow_redirects=False,
    ) as response:
        body = bytearray()
        async for chunk in response.content.iter_chunked(65536):
            body += chunk
            if len(body) > largest:
                raise NotReadable(f"Prometheus answered more than {largest} bytes: aggregate")
        return response.status, bytes(body)


def filled(query: str, words: Mapping[str, str]) -> str:
    """The query with names in the place of `{{…}}`."""
    for word, value in words.items():
        query = query.replace(f"{{{{{word}}}}}", value)
    return query


def measurement(status: int, body: bytes, *, at: float) -> Measurement:
    """What an answer of `/api/v1/query` says.

    Source: https://prometheus.io/docs/prometheus/latest/querying/api/
    """

    def away(problem: str) -> Measurement:
        return Measurement(at, problem=problem, is_away=True)

    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if status != 200:
        if status == 400 and isinstance(answer, dict) and answer.get("errorType") == "bad_data":
            return away(f"Prometheus refuses the query: {str(answer.get('error'))[:200]}")
        return away(f"Prometheus answered {status}")
    if not isinstance(answer, dict) or answer.get("status") != "success":
        return away("the answer is not one of Prometheus")
    data = answer.get("data")
    kind, result = (
        (data.get("resultType"), data.get("result")) if isinstance(data, dict) else (0, 0)
    )
    if kind not in ("vector", "scalar") or not isinstance(result, list):
        return Measurement(at, problem="the query does not yield a number: use an instant query")
    if kind == "vector" and len(result) != 1:
        many = f"{len(result)} series instead of one: aggregate the query"
        return Measurement(at, problem=many if result else "the query found nothing")
    return _number(
        result[0].get("value") if kind == "vector" and _is_map(result[0]) else result, at
    )


def _is_map(value: Any) -> bool:
    return isinstance(value, dict)


def _number(pair: Any, at: float) -> Measurement:
    """`[unix seconds, "text"]`, as Prometheus writes a number."""
    try:
        _, text = pair
        value = float(text) if isinstance(text, str) else math.nan
    except (TypeError, ValueError):
        return Measurement(at, problem="the answer is not one of Prometheus", is_away=True)
    if not math.isfinite(value):
        return Measurement(at, problem=f"the query yields {text!s:.16}")
    return Measurement(at, value=value)
