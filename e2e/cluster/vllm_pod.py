"""One vLLM pod by hand: apply it, wait, ask it once, show what it said."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from .commands import output_of, say, wait_until
from .control_plane import kubectl
from .settings import ClusterError, Settings

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
    if not settings.kubeconfig.exists():
        raise ClusterError("no cluster; first: make cluster-up")
    if not (settings.models / "SmolLM2-135M-Instruct" / "config.json").exists():
        raise ClusterError(f"no model in {settings.models}; first: make model")


def _pod(settings: Settings) -> dict[str, Any]:
    pod: dict[str, Any] = json.loads(output_of(kubectl(settings, "get", "pod", POD, "-o", "json")))
    return pod


def _is_ready(settings: Settings) -> bool:
    status = _pod(settings)["status"]
    states = [entry.get("state", {}) for entry in status.get("containerStatuses", [])]
    reasons = [state["waiting"].get("reason") for state in states if "waiting" in state]
    if status.get("phase") == "Failed" or "ErrImageNeverPull" in reasons:
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
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 48,
        "temperature": 0,
    }
    # Through the API server, so that it works on a cluster whose pods we can't reach.
    engine = f"/api/v1/namespaces/default/pods/{POD}:8000/proxy"
    chat = kubectl(settings, "create", "--raw", f"{engine}/v1/chat/completions", "-f", "-")
    started = time.monotonic()
    answer = json.loads(output_of(chat, input_text=json.dumps(body)))
    seconds = time.monotonic() - started
    metrics = output_of(kubectl(settings, "get", "--raw", f"{engine}/metrics"))
    tokens = answer["usage"]["completion_tokens"]
    say(f"prompt: {PROMPT}\nanswer: {answer['choices'][0]['message']['content']}")
    say(f"{tokens} tokens in {seconds:.1f} s, the first request's warm-up included")
    for name in ("draft_tokens", "accepted_tokens"):
        say(f"{name.replace('_', ' ')}: {_counter(metrics, f'vllm:spec_decode_num_{name}_total')}")


def _counter(metrics: str, name: str) -> int:
    """Return the sum of a counter's samples; 0 where it has none."""
    lines = [line for line in metrics.splitlines() if line.startswith((name + "{", name + " "))]
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines))
