"""Real requests to the engine before the pod becomes ready.

They make the engine compile, capture and fill what it otherwise would during
a user's first request; a draft that kills the engine does so here.
"""

import asyncio
from typing import Any, Final

from speculative_api.conditions import WorkerReason
from speculative_api.worker import WorkerConfig
from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log

_RETRY_SECONDS: Final = 0.5
_FIRST_TOKEN: Final = 10
_PATTERN_TOKENS: Final = 16


def warmup_request(config: WorkerConfig) -> dict[str, Any]:
    """The body of one warm-up request.

    The prompt is a short pattern of token ids, repeated: exact in length for
    every tokenizer, and drafted from by n-gram look-up. It is cut where prompt
    and answer would exceed `max_model_len`.
    """
    output_tokens = config.warmup.output_tokens
    prompt_tokens = config.warmup.prompt_tokens
    if config.max_model_len is not None:
        output_tokens = min(output_tokens, max(1, config.max_model_len // 2))
        prompt_tokens = max(1, min(prompt_tokens, config.max_model_len - output_tokens))
    return {
        "model": config.served_model_name,
        "prompt": [_FIRST_TOKEN + index % _PATTERN_TOKENS for index in range(prompt_tokens)],
        "max_tokens": output_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }


async def warm_up(client: EngineClient, config: WorkerConfig) -> None:
    """Sends the warm-up: the first request alone, the rest together.

    A failed request is repeated until it succeeds; the caller's start-up
    deadline ends that. Raises `WorkerFailure` (InvalidArguments) when the
    engine calls the request itself wrong, which no repetition cures.
    """
    if config.warmup.requests == 0:
        return
    request = warmup_request(config)
    await _one(client, request)
    rest = min(config.warmup.requests - 1, config.max_num_seqs)
    more = config.warmup.requests - 1 - rest
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(rest):
                group.create_task(_one(client, request))
    except* WorkerFailure as failures:
        raise failures.exceptions[0] from None
    for _ in range(more):
        await _one(client, request)


async def _one(client: EngineClient, request: dict[str, Any]) -> None:
    while True:
        try:
            status, body = await client.complete(request)
        except EngineSilent as error:
            status, body = 0, str(error)
        if status == 200:
            return
        log("warmup-failed", status=status, answer=body[:200])
        if 400 <= status < 500 and status not in (408, 429):
            raise WorkerFailure(
                WorkerReason.INVALID_ARGUMENTS,
                f"the engine refuses the warm-up request with {status}: {body[:500]}",
                retryable=False,
            )
        await asyncio.sleep(_RETRY_SECONDS)
