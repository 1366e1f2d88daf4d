"""The manifests of the demo: the example, with the node's model folder put in. Pure."""

import copy
from typing import Any, Final

EXAMPLE_FOLDER: Final = "file:///models/"
"""Where the example's models lie; replaced by the folder on the node."""
DRAFT: Final = "SmolLM2-135M-8layers"
"""The target cut to its first 8 layers: passes every check, and drafts badly."""

Document = dict[str, Any]


def namespace(name: str) -> Document:
    """The demo's namespace; hostPath volumes (file://) need the privileged level."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    }


def located(example: Document, models: str) -> Document:
    """The example with its models in a folder of the node."""

    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: moved(item) for key, item in value.items()}
        if isinstance(value, list):
            return [moved(item) for item in value]
        if isinstance(value, str) and value.startswith(EXAMPLE_FOLDER):
            return f"file://{models}/{value.removeprefix(EXAMPLE_FOLDER)}"
        return value

    found: Document = moved(example)
    return found


def rehearsed(document: Document, image: str) -> Document:
    """The same with simulated engines: the whole way through in minutes, without vLLM."""
    changed = copy.deepcopy(document)
    simulation = {"acceptancePercent": 80, "tokensPerSecond": 60, "loadMilliseconds": 1000}
    # No model is read, so none has to lie on the node.
    changed["spec"]["target"]["model"] = "hf://example/simulated"
    changed["spec"]["engine"] |= {"image": image, "simulation": simulation}
    return changed


def without_native(document: Document) -> Document:
    """The same with the native lane at 0: two cores carry two engines, not three."""
    changed = copy.deepcopy(document)
    changed["spec"].setdefault("lanes", {})["native"] = {"replicas": 0}
    return changed


def with_bad_draft(document: Document, models: str) -> Document:
    """A revision whose draft is hardly ever right."""
    changed = copy.deepcopy(document)
    if "simulation" in changed["spec"]["engine"]:
        changed["spec"]["engine"]["simulation"]["acceptancePercent"] = 3
        return changed
    changed["spec"]["speculation"] = {
        "method": "DraftModel",
        "numSpeculativeTokens": 4,
        "draft": {"model": f"file://{models}/{DRAFT}"},
    }
    return changed


def with_longer_drafts(document: Document) -> Document:
    """The example's own n-gram look-up, with 6 tokens a step."""
    changed = copy.deepcopy(document)
    changed["spec"]["speculation"]["numSpeculativeTokens"] = 6
    return changed
