"""PURE: one request to the simulated engine, read; and the shapes of its answers.

The shapes are vLLM 0.32.0's: vllm/entrypoints/openai/completion/protocol.py and
.../chat_completion/protocol.py.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from speculative_worker.simulate.language import prompt_logprobs, text_of, tokens_of
from speculative_worker.simulate.plan import Plan

_COMPLETION_TOKENS: Final = 16
"""Default `max_tokens` of `/v1/completions`, as in the OpenAI API."""
_CHAT_TOKENS: Final = 64
"""Where a chat answer without `max_tokens` ends by itself."""


class BadRequest(Exception):
    """A request that a real engine refuses; becomes status 400 or 404."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Call:
    """One request; raises `BadRequest` for what a real engine refuses."""

    def __init__(
        self, body: dict[str, Any], plan: Plan, *, chat: bool, number: str, created: int
    ) -> None:
        self.chat = chat
        model = body.get("model", plan.served_model_name)
        if model != plan.served_model_name:
            raise BadRequest(f"The model `{model}` does not exist.", status=404)
        self._model = plan.served_model_name
        self.stream = body.get("stream") is True
        options = body.get("stream_options")
        self.include_usage = isinstance(options, dict) and options.get("include_usage") is True
        self.prompt = _chat_prompt(body) if chat else _prompt(body)
        self._returns_ids = body.get("return_token_ids") is True
        self._scored = self._prompt_logprobs(body)
        asked = body.get("max_completion_tokens", body.get("max_tokens"))
        if asked is not None and (not _is_count(asked) or asked < 1):
            raise BadRequest("max_tokens must be at least 1")
        self.max_tokens: int = asked or (_CHAT_TOKENS if chat else _COMPLETION_TOKENS)
        self.finish_reason = "stop" if asked is None and chat else "length"
        if len(self.prompt) + self.max_tokens > plan.max_model_len:
            raise BadRequest(
                f"This model's maximum context length is {plan.max_model_len} tokens. However, "
                f"you requested {self.max_tokens} output tokens and your prompt contains "
                f"{len(self.prompt)} input tokens."
            )
        kind = "chatcmpl" if chat else "cmpl"
        self._id = f"{kind}-{number}"
        self._created = created

    @property
    def usage(self) -> dict[str, int]:
        """Token counts of the whole answer."""
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": self.max_tokens,
            "total_tokens": len(self.prompt) + self.max_tokens,
        }

    def whole(self, tokens: Sequence[int]) -> dict[str, Any]:
        """The answer in one piece."""
        text = text_of(tokens)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self.finish_reason}
        choice |= (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        about_prompt: dict[str, Any] = {}
        if self._returns_ids:
            choice["token_ids"] = list(tokens)
            about_prompt["prompt_token_ids"] = self.prompt
        if self._scored is not None:
            about_prompt["prompt_logprobs"] = prompt_logprobs(self.prompt, self._scored)
        # A completion says it in its choice, for it may have several prompts; a chat at the top.
        top = about_prompt if self.chat else {}
        choice |= {} if self.chat else about_prompt
        return self._envelope("", [choice]) | top | {"usage": self.usage}

    def chunk(self, tokens: Sequence[int], *, finished: bool, first: bool) -> dict[str, Any]:
        """One event of a stream."""
        text = text_of(tokens)
        role = {"role": "assistant"} if first else {}
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": self.finish_reason if finished else None,
        }
        choice |= {"delta": {**role, "content": text}} if self.chat else {"text": text}
        top: dict[str, Any] = {}
        if self._returns_ids:
            choice["token_ids"] = list(tokens)
            if first:
                (top if self.chat else choice)["prompt_token_ids"] = self.prompt
        return self._envelope(".chunk", [choice]) | top

    def usage_chunk(self) -> dict[str, Any]:
        """The last event of a stream that asked for its usage."""
        return self._envelope(".chunk", []) | {"usage": self.usage}

    def _envelope(self, suffix: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = f"chat.completion{suffix}" if self.chat else "text_completion"
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }

    def _prompt_logprobs(self, body: dict[str, Any]) -> int | None:
        asked = body.get("prompt_logprobs")
        if asked is None:
            return None
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < -1:
            raise BadRequest("`prompt_logprobs` must be a positive value or -1.")
        if self.stream and asked != 0:
            raise BadRequest("`prompt_logprobs` are not available when `stream=True`.")
        return asked


def body_of(content: bytes) -> dict[str, Any]:
    """The request's JSON object. Raises `BadRequest`."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    return body


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _prompt(body: dict[str, Any]) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return tokens_of(prompt)
    if isinstance(prompt, list) and prompt and all(_is_count(token) for token in prompt):
        return prompt
    raise BadRequest("prompt must be one text or one list of token ids")


def _chat_prompt(body: dict[str, Any]) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty")
    found: list[int] = []
    for message in messages:
        if not isinstance(message, dict):
            raise BadRequest("each message must be an object with role and content")
        content = message.get("content")
        spelt = content if isinstance(content, str) else json.dumps(content)
        found += tokens_of(f"{message.get('role')} {spelt}")
    return found
