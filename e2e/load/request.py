"""One chat completion, from the first byte sent to an `Outcome`.

What the server does is data: nothing but cancellation leaves `ask`.
"""

import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from speculative_api.labels import LANE_HEADER, REVISION_HEADER

from .counts import Outcome, Result

LONGEST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and how."""

    url: str
    """Base address, without a path."""
    model: str
    prompt: str
    max_tokens: int
    stream: bool = True
    lane: str | None = None
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 120.0
    """Longest silence, the wait for the first byte included."""


@dataclass
class _Answer:
    """What came so far."""

    status: int = 0
    revision: str = ""
    chunk_times: list[float] = field(default_factory=list)
    tokens: int = 0
    finished: bool = False
    done: bool = False
    error: str = ""


async def ask(
    session: aiohttp.ClientSession,
    question: Question,
    *,
    on_text: Callable[[str], None] | None = None,
) -> Outcome:
    """Sends one question and reads the whole answer; `on_text` gets each piece of it."""
    started = time.monotonic()
    answer = _Answer()
    try:
        await _exchange(session, question, answer, on_text or (lambda _: None))
        if answer.status == 200 and not answer.finished and not answer.error:
            answer.error = "the answer has no finish reason"
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        answer.error = f"{type(error).__name__}: {error}".rstrip(": ")
    return Outcome(
        result=_result(answer),
        started_at=started,
        ended_at=time.monotonic(),
        status=answer.status,
        revision=answer.revision,
        # An engine that does not count (usage) is counted by pieces.
        tokens=answer.tokens or len(answer.chunk_times),
        chunk_times=tuple(answer.chunk_times),
        error=answer.error,
    )


def _result(answer: _Answer) -> Result:
    if answer.status != 200:
        return Result.FAILED
    return Result.OK if answer.finished and answer.done else Result.CUT


async def _exchange(
    session: aiohttp.ClientSession,
    question: Question,
    answer: _Answer,
    on_text: Callable[[str], None],
) -> None:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=question.timeout_seconds)
    async with session.post(
        f"{question.url}/v1/chat/completions",
        json=_body(question),
        headers=headers_of(question.lane, question.api_key),
        timeout=timeout,
        allow_redirects=False,
    ) as response:
        answer.status = response.status
        answer.revision = response.headers.get(REVISION_HEADER, "")
        if response.status != 200:
            answer.error = f"{response.status}: {(await response.text())[:200]}"
        elif question.stream:
            await _read_events(response, answer, on_text)
        else:
            _read_message(await response.read(), answer, on_text)


def headers_of(lane: str | None, api_key: str | None) -> dict[str, str]:
    """What tells the gateway who asks and for which lane."""
    headers = {LANE_HEADER: lane} if lane else {}
    return headers | ({"Authorization": f"Bearer {api_key}"} if api_key else {})


def _body(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": question.model,
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": question.max_tokens,
        "temperature": 0,
        "stream": question.stream,
    }
    # Speculation puts several tokens into one piece: only the engine can count them.
    return body | ({"stream_options": {"include_usage": True}} if question.stream else {})


async def _read_events(
    response: aiohttp.ClientResponse, answer: _Answer, on_text: Callable[[str], None]
) -> None:
    async for data in _events(response):
        if data == "[DONE]":
            answer.done = True
            return
        _read_chunk(data, answer, on_text, message="delta")
        if answer.error:
            return
    answer.error = "the stream ended without [DONE]"


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[str]:
    rest = b""
    async for piece in response.content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise aiohttp.ClientPayloadError("an event longer than 1 MiB")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip().decode(errors="replace")


def _read_message(body: bytes, answer: _Answer, on_text: Callable[[str], None]) -> None:
    _read_chunk(body.decode(errors="replace"), answer, on_text, message="message")
    answer.done = not answer.error


def _read_chunk(
    data: str, answer: _Answer, on_text: Callable[[str], None], *, message: str
) -> None:
    try:
        chunk = json.loads(data)
        if "error" in chunk:
            answer.error = f"in the answer: {json.dumps(chunk['error'])[:200]}"
            return
        for choice in chunk.get("choices") or []:
            text = (choice.get(message) or {}).get("content")
            if text:
                answer.chunk_times.append(time.monotonic())
                on_text(text)
            if choice.get("finish_reason"):
                answer.finished = True
        answer.tokens = (chunk.get("usage") or {}).get("completion_tokens") or answer.tokens
    except (ValueError, TypeError, AttributeError) as error:
        answer.error = f"not a completion: {data[:100]!r} ({error})"
