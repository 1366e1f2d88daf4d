"""Every method's rendered command line, read by vLLM's own parser and configuration classes.

Runs in the worker's image (no cluster, no weights): `make images` builds it.
"""

import json
import subprocess
from pathlib import Path

import pytest
from e2e.cluster.builder import buildah, image_exists
from e2e.cluster.images import WORKER_IMAGE
from e2e.cluster.settings import current_settings
from tests.worker.a_worker import a_config

from speculative_worker.arguments import engine_command

pytestmark = [pytest.mark.vllm, pytest.mark.slow]
HERE = Path(__file__).parent / "in_vllm"

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}
QWEN = {
    **LLAMA,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 16,
    "block_size": 4,
}
BLOCKS = {"mask_token_id": 3, "target_layer_ids": [1, 2]}
MODELS = {
    "llama": LLAMA,
    "qwen": QWEN,
    "next": {
        **QWEN,
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_nextn_predict_layers": 1,
    },
    "draft": {**LLAMA, "num_hidden_layers": 1},
    "eagle3": {
        **LLAMA,
        "num_hidden_layers": 1,
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": 64,
    },
    "medusa": {
        "architectures": ["MedusaModel"],
        "model_type": "medusa",
        "hidden_size": 64,
        "num_heads": 3,
        "vocab_size": 128,
    },
    "dflash": {**QWEN, "architectures": ["DFlashDraftModel"], "dflash_config": BLOCKS},
}
METHODS = {
    "None": ("llama", None, None),
    "NGram": ("llama", None, "ngram"),
    "NGramGPU": ("llama", None, "ngram_gpu"),
    "Suffix": ("llama", None, "suffix"),
    "Custom": ("llama", None, "custom_class"),
    "DraftModel": ("llama", "draft", "draft_model"),
    "Eagle": ("llama", "draft", "eagle"),
    "Eagle3": ("llama", "eagle3", "eagle3"),
    "Medusa": ("llama", "medusa", "medusa"),
    "MTP": ("next", None, "mtp"),
    "DFlash": ("qwen", "dflash", "dflash"),
}


def command(target, draft, speculation):
    words = engine_command(
        a_config(speculation=speculation, maxModelLen=256, engineVersion="0.32.0"),
        target_path=f"/models/{target}",
        draft_path=f"/models/{draft}" if draft else None,
        port=8000,
    )
    return words[words.index("--model") :]


def a_speculation(method, draft):
    words = {"method": method}
    if method != "None":
        words["numSpeculativeTokens"] = 3
    if method == "Custom":
        words["customClass"] = "my.Proposer"
    if draft:
        words["draft"] = {"model": f"file:///models/{draft}"}
    return words


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What vLLM made of each command line."""
    settings = current_settings()
    tool = buildah(settings)
    if not image_exists(WORKER_IMAGE, prefix=tool):
        pytest.skip(f"{WORKER_IMAGE} is not built: make images")
    models = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (models / name).mkdir()
        (models / name / "config.json").write_text(json.dumps(config))
    asked = {m: command(t, d, a_speculation(m, d)) for m, (t, d, _) in METHODS.items()}
    asked["nonsense"] = [*asked["None"], "--speculative-config", '{"method": "eagle9"}']
    container = output([*tool, "from", "--pull-never", WORKER_IMAGE]).strip()
    try:
        mounts = [f"--volume={models}:/models:ro", f"--volume={HERE}:/work:ro"]
        run = [*tool, "run", "--isolation=chroot", *mounts, container, "--"]
        environment = ["env", "HF_HUB_OFFLINE=1", "VLLM_LOGGING_LEVEL=ERROR"]
        text = output([*run, *environment, "python3", "/work/parse.py"], given=json.dumps(asked))
    finally:
        output([*tool, "rm", container])
    return json.loads(text.partition("RESULT")[2])


def output(command, *, given=""):
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("method", METHODS)
def test_the_engine_reads_what_is_rendered(found, method):
    _, _, name = METHODS[method]
    if name is None:
        assert found[method] is None
    else:
        assert (found[method]["method"], found[method]["tokens"]) == (name, 3), found[method]


def test_the_engine_refuses_nonsense(found):
    assert found["nonsense"].startswith("ValidationError")
