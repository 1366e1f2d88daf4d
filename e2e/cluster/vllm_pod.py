"""One vLLM pod by hand: apply it, wait, ask it once, show what it said."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from .commands import output_of, say, wait_until
from .control_plane import kubectl
from .images import WORKER_IMAGE
from .settings import ClusterError, Settings
from .store import images_in_node

POD = "vllm-by-hand"
READY_SECONDS = 420.0
"""46 s on an idle machine of two cores, several times that beside a build (measured)."""
PROMPT = "Repeat after me, three times: the quick brown fox jumps over the lazy dog."


def run_vllm_pod(settings: Settings, *, keep: bool) -> None:
    """Run the pod, print one completion, and delete it unless it is to be kept.

    Raises:
        ClusterError: an ingredient is missing, or the pod is not ready in time.
    """
    _require_ingredients(settings)
    manifest = Path(__file__).with_name("vllm-pod.yaml").read_text(encoding="utf-8")
    text = manifest.replace("MODELS", str(settings.models))
    output_of(kubectl(settings, "delete", "pod", POD, "--ignore-not-found", "--wait"))
    output_of(kubectl(settings, "apply", "-f", "-"), input_text=text)
    started = time.monotonic()
    try:
        wait_until(
            lambda: _is_ready(settings),
            label="vLLM ready",
            seconds=READY_SECONDS,
            why_not=lambda: _why_not(settings),
        )
        say(f"vLLM is ready {time.monotonic() - started:.0f} s after kubectl apply")
        _ask(settings)
    finally:
        if not keep:
            output_of(kubectl(settings, "delete", "pod", POD, "--ignore-not-found", "--wait"))


def _require_ingredients(settings: Settings) -> None:
    if WORKER_IMAGE not in images_in_node(settings):
        raise ClusterError(f"{WORKER_IMAGE} is not on the node; first: make images")
    if not (settings.models / "SmolLM2-135M-Instruct" / "config.json").exists():
        raise ClusterError(f"no model in {settings.models}; first: make model")


def _pod(settings: Settings) -> dict[str, Any]:
    pod: dict[str, Any] = json.loads(output_of(kubectl(settings, "get", "pod", POD, "-o", "json")))
    return pod


def _is_ready(settings: Settings) -> bool:
    status = _pod(settings)["status"]
    if status.get("phase") == "Failed":
        raise ClusterError(f"the vLLM pod failed:\n{_why_not(settings)}")
    conditions = status.get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def _why_not(settings: Settings) -> str:
    parts = []
    for arguments in (
        ("get", "pod", POD, "-o", "wide"),
        ("get", "events", "--field-selector", f"involvedObject.name={POD}"),
        ("logs", POD, "--tail=25"),
    ):
        try:
            parts.append(output_of(kubectl(settings, *arguments)))
        except ClusterError as error:
            parts.append(str(error))
    return "\n".join(parts)


def _ask(settings: Settings) -> None:
    address = _pod(settings)["status"]["podIP"]
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 48,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"http://{address}:8000/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    started = time.monotonic()
    # No proxy of the environment: the pod's address is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as response:
            answer = json.load(response)
        with opener.open(f"http://{address}:8000/metrics", timeout=10) as response:
            metrics = response.read().decode()
    except (urllib.error.URLError, TimeoutError) as error:
        raise ClusterError(f"the engine does not answer: {error}\n{_why_not(settings)}") from error
    seconds = time.monotonic() - started
    tokens = answer["usage"]["completion_tokens"]
    say(f"prompt: {PROMPT}\nanswer: {answer['choices'][0]['message']['content']}")
    say(f"{tokens} tokens in {seconds:.1f} s, {tokens / seconds:.1f} tokens/s")
    for name in ("draft_tokens", "accepted_tokens"):
        say(f"{name.replace('_', ' ')}: {_counter(metrics, f'vllm:spec_decode_num_{name}_total')}")


def _counter(metrics: str, name: str) -> int:
    """Return the sum of a counter's samples; 0 where it has none."""
    lines = [line for line in metrics.splitlines() if line.startswith((name + "{", name + " "))]
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines))
