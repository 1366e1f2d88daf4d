"""Every method's rendered command line, read by vLLM's own parser and configuration classes.

Runs in the worker's image (no cluster, no weights), with the release in it and
with the Python files of others before it on the path: `make test-vllm` builds
and fetches what it needs. What the table says of a release is compared with
what the release itself says.
"""

import json
import subprocess
from pathlib import Path

import pytest
from e2e.cluster.builder import buildah, image_exists
from e2e.cluster.images import WORKER_IMAGE
from e2e.cluster.other_engines import OTHER_RELEASES, release_folder
from e2e.cluster.settings import current_settings
from tests.worker.a_worker import a_config

from speculative_api.engine_arguments import argument_findings
from speculative_api.engine_tables import facts_of, refused_flags, table
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
    "None": ("llama", None),
    "NGram": ("llama", None),
    "NGramGPU": ("llama", None),
    "Suffix": ("llama", None),
    "Custom": ("llama", None),
    "DraftModel": ("llama", "draft"),
    "Eagle": ("llama", "draft"),
    "Eagle3": ("llama", "eagle3"),
    "Medusa": ("llama", "medusa"),
    "MTP": ("next", None),
    "DFlash": ("qwen", "dflash"),
}
"""Target and draft of each; DSpark and MLPSpeculator have no configuration without weights."""
IMAGE_RELEASE = "0.32.0"
RELEASES = (*OTHER_RELEASES, IMAGE_RELEASE)
NOT_OFFERED = {"mlp_speculator", "extract_hidden_states"}
"""Names that the releases still know or use for something else than speculation."""
INSIDE = {
    *("draft_model_config", "draft_parallel_config", "target_model_config"),
    "target_parallel_config",
}
"""Fields that the engine fills in itself."""
OFF_ANYWAY = {"--no-data-parallel-hybrid-lb", "--no-data-parallel-external-lb"}


def methods_of(version):
    return [method for method in METHODS if method in {"None", *facts_of(version).methods}]


def command(version, method):
    target, draft = METHODS[method]
    config = a_config(
        speculation=a_speculation(method, draft), maxModelLen=256, engineVersion=version
    )
    words = engine_command(
        config,
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
def run_in_image(tmp_path_factory):
    """Runs a release on arguments; the JSON it answers."""
    settings = current_settings()
    tool = buildah(settings)
    if not image_exists(WORKER_IMAGE, prefix=tool):
        pytest.skip(f"{WORKER_IMAGE} is not built: make images")
    models = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (models / name).mkdir()
        (models / name / "config.json").write_text(json.dumps(config))
    container = output([*tool, "from", "--pull-never", WORKER_IMAGE]).strip()

    def run(version, asked):
        mounts = [f"--volume={models}:/models:ro", f"--volume={HERE}:/work:ro"]
        environment = ["env", "HF_HUB_OFFLINE=1", "VLLM_LOGGING_LEVEL=ERROR"]
        if version != IMAGE_RELEASE:
            folder = release_folder(settings, version)
            if not folder.exists():
                pytest.skip(f"{folder} is not there: python3 -m e2e.cluster engines")
            # Written to: its byte code stays beside it for the next run.
            mounts.append(f"--volume={folder}:/other")
            environment.append("PYTHONPATH=/other")
        inside = [*environment, "python3", "/work/parse.py"]
        command = [*tool, "run", "--isolation=chroot", *mounts, container, "--", *inside]
        text = output(command, given=json.dumps(asked))
        return json.loads(text.partition("RESULT")[2])

    try:
        yield run
    finally:
        output([*tool, "rm", container])


@pytest.fixture(scope="module", params=RELEASES)
def release(request, run_in_image):
    """A release: its version, what it made of each command line, and what it takes."""
    asked = {method: command(request.param, method) for method in methods_of(request.param)}
    asked["nonsense"] = [*asked["None"], "--speculative-config", '{"method": "eagle9"}']
    found = run_in_image(request.param, asked)
    assert found["version"] == request.param
    return found


def output(command, *, given=""):
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_engine_reads_what_is_rendered_for_every_method_it_has(release):
    version, parsed = release["version"], release["parsed"]
    assert parsed["None"] is None
    expected = {
        method: (facts_of(version).methods[method], 3)
        for method in methods_of(version)
        if method != "None"
    }
    found = {method: parsed[method] for method in expected}
    assert all(isinstance(each, dict) for each in found.values()), found
    assert {name: (each["method"], each["tokens"]) for name, each in found.items()} == expected


def test_the_engine_refuses_nonsense(release):
    assert release["parsed"]["nonsense"].startswith("ValidationError")


def test_the_page_of_metrics_is_only_of_the_series_that_are_asked_for(release):
    assert release["named"] == ['vllm:first{engine="0"} 1.0']


def test_the_methods_of_the_table_are_those_of_the_release(release):
    facts = facts_of(release["version"])
    ours = {*facts.methods.values(), *facts.aliases}
    # Spelt in several ways where the engine has several classes for one method.
    assert ours <= set(release["methods"])
    known = {*ours, *NOT_OFFERED}
    assert set(release["methods"]) <= known, "methods that the table lacks"


def test_the_keys_of_the_table_are_those_of_the_release(release):
    facts, taken = facts_of(release["version"]), set(release["keys"])
    assert {*facts.keys, *facts.lossy_keys} <= taken
    said_by_fields = {row["key"] for row in table()["key_fields"]}
    assert taken - {*facts.keys, *facts.lossy_keys, *said_by_fields} <= INSIDE


def test_the_flags_of_the_table_are_those_of_the_release(release):
    facts, flags = facts_of(release["version"]), release["flags"]
    assert not set(facts.flags) - set(flags)
    for row in (*table()["flags"], *table()["refused_flags"]):
        if (short := row.get("short")) in flags:
            assert row["flag"] in flags[short], row


def test_every_spelling_of_a_flag_that_a_field_says_is_a_conflict(release):
    version, flags = release["version"], release["flags"]
    ours = [*facts_of(version).flags, *refused_flags()]
    spellings = {each for flag in ours for each in flags.get(flag, ())} - OFF_ANYWAY
    missed = [each for each in spellings if not argument_findings([each], version=version)]
    assert not missed
