"""What users hand through to the engine, checked at acceptance."""

import pytest

from speculative_api.engine_arguments import argument_findings, extra_findings, findings, warnings
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec

SPEC = {
    "target": {"model": "file:///models/target", "maxModelLen": 8192},
    "speculation": {
        "method": "DraftModel",
        "numSpeculativeTokens": 4,
        "draft": {"model": "file:///models/draft"},
    },
}


def a_spec(**changes):
    words = {key: dict(value) for key, value in SPEC.items()}
    for key, value in changes.items():
        words[key] = {**words.get(key, {}), **value}
    return SpeculativeDeploymentSpec.model_validate(words)


def extra(method="DraftModel", **keys):
    return extra_findings(
        keys, method=method, num_speculative_tokens=4, max_model_len=8192, max_num_seqs=64
    )


def test_a_plain_spec_has_no_findings():
    assert findings(a_spec()) == []
    assert warnings(a_spec()) == []


def test_findings_come_from_every_part_of_the_spec():
    found = findings(
        a_spec(
            target={"tensorParallelSize": 2},
            engine={"extraArgs": ["--max-model-len=5"]},
            speculation={
                "draft": {"model": "file:///d", "tensorParallelSize": 4},
                "extra": {"method": "ngram"},
            },
        )
    )
    assert found == [
        "speculation.extra.method: speculation.method says this already; remove it here",
        "engine.extraArgs[0] '--max-model-len': target.maxModelLen says this already; remove it "
        "here and set the field",
        "speculation.draft.tensorParallelSize 4 must be 1 or equal to target.tensorParallelSize 2",
    ]


@pytest.mark.parametrize(
    "key, value, says",
    [
        ("num_speculative_tokrns", 5, "did you mean num_speculative_tokens (written as"),
        ("max-model-len", 4096, "did you mean max_model_len?"),
        ("use_heterogenous_vocab", True, "did you mean use_heterogeneous_vocab?"),
        ("zzz", 1, "not a key of engine 0.32.0; remove it"),
        ("num_speculative_tokens", 5, "speculation.numSpeculativeTokens says this already"),
        ("model", "org/d", "speculation.draft.model says this already"),
        ("tensor_parallel_size", 2, "speculation.draft.tensorParallelSize says this already"),
        ("disable_by_batch_size", 8, "belongs to earlier engines; use num_speculative_tokens_per"),
        ("disable_logprobs", True, "belongs to earlier engines"),
        ("disable_log_stats", True, "belongs to earlier engines"),
        ("rejection_sample_method", "synthetic", "changes the output; use standard or block"),
        ("rejection_sample_method", "fly", "changes the output"),
        ("synthetic_acceptance_length", 3, "changes the output; remove it, or say so in words"),
        ("disable_padded_drafter_batch", "True", "must be a boolean, not 'True'"),
        ("max_model_len", True, "must be an integer"),
        ("max_model_len", 9000, "9000 is above target.maxModelLen 8192"),
        ("suffix_decoding_max_tree_depth", 3, "is for method Suffix only, not DraftModel"),
        ("draft_sample_method", "top", "use greedy or probabilistic"),
    ],
)
def test_refused_keys(key, value, says):
    (found,) = extra(**{key: value})
    assert found.startswith(f"speculation.extra.{key}: ")
    assert says in found


@pytest.mark.parametrize(
    "key, value",
    [
        ("disable_padded_drafter_batch", True),
        ("use_heterogeneous_vocab", True),
        ("rejection_sample_method", "block"),
        ("max_model_len", 4096),
        ("quantization", "fp8"),
        ("num_speculative_tokens_per_batch_size", [[1, 4, 2], [5, 512, 0]]),
    ],
)
def test_known_keys_pass(key, value):
    assert extra(**{key: value}) == []


def test_unequal_vocabularies_are_for_draft_models_only():
    (found,) = extra("NGram", use_heterogeneous_vocab=True)
    assert "is for method DraftModel only, not NGram" in found


def test_unequal_vocabularies_need_greedy_drafts():
    (found,) = extra(use_heterogeneous_vocab=True, draft_sample_method="probabilistic")
    assert "does not go with use_heterogeneous_vocab" in found


@pytest.mark.parametrize(
    "schedule, says",
    [
        pytest.param([[1, 4, 2], [6, 64, 0]], "must start at batch size 5", id="gap"),
        pytest.param([[1, 4, 2], [3, 64, 0]], "must start at batch size 5", id="overlap"),
        pytest.param([[2, 64, 2]], "must start at batch size 1", id="late"),
        pytest.param([[1, 32, 2]], "below engine.maxNumSeqs 64", id="short"),
        pytest.param([[1, 64, 5]], "between 0 and speculation.numSpeculativeTokens 4", id="long"),
        pytest.param([[1, 64]], "must be [first batch size", id="shape"),
    ],
)
def test_a_schedule_is_ordered_gapless_and_complete(schedule, says):
    (found,) = extra(num_speculative_tokens_per_batch_size=schedule)
    assert says in found


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--speculative-model", "org/d"], "replaced by speculation.draft.model"),
        (["--num-speculative-tokens", "5"], "replaced by speculation.numSpeculativeTokens"),
        (["--ngram_prompt_lookup_max", "5"], "replaced by speculation.ngram.promptLookupMax"),
        (["--speculative-config", '{"method":"ngram"}'], "speculation says this already"),
        (["--speculative_config", "{}"], "speculation says this already"),
        (["--speculative_config.method", "draft_model"], "speculation says this already"),
        (["-sc", "{}"], "speculation says this already"),
        (["-sc.method=ngram"], "speculation says this already"),
        (["--spec-method", "ngram"], "speculation.method says this already"),
        (["-tp", "2"], "target.tensorParallelSize says this already"),
        (["-tp2"], "target.tensorParallelSize says this already"),
        (["--max-num-seqs=8"], "engine.maxNumSeqs says this already"),
        (["--max-num-s", "8"], "short for --max-num-seqs"),
        (["--device-memory-utilization", "0.5"], "engine.gpuMemoryUtilizationPercent"),
        (["--port", "9"], "the worker sets it"),
        (["-dp", "2"], "target.dataParallelSize says this already"),
        (["--data-parallel-backend", "ray"], "the worker sets what target.dataParallelSize needs"),
        (["--enable-lora"], "target.lora says this already"),
        (["--lora_modules", "a=/a"], "target.lora.adapters says this already"),
        (["--config", "x.yaml"], "could set any flag unseen"),
        (["--enforce-eager --seed 1"], "two list items"),
        (["seed", "--seed", "1"], "a value without a flag"),
    ],
)
def test_refused_flags(arguments, says):
    (found,) = argument_findings(arguments)
    assert found.startswith("engine.extraArgs[0] ")
    assert says in found


def test_a_secret_on_the_command_line_is_refused_and_not_repeated():
    (found,) = argument_findings(["--api-key=sk-very-secret"])
    assert "a secret on a command line" in found
    assert "sk-very-secret" not in found


@pytest.mark.parametrize(
    "arguments",
    [
        ["--enforce-eager"],
        ["--max-num-batched-tokens", "4096"],
        ["--seed", "-1"],
        ["--chat-template", "/a b/{x}"],
        ["--model-impl", "auto"],
        ["--quantization-config", "{}"],
        ["--compilation-config.cudagraph_mode", "NONE"],
        ["-O3"],
    ],
)
def test_other_flags_pass(arguments):
    assert argument_findings(arguments) == []


def test_high_utilisation_beside_a_draft_is_a_warning_only():
    spec = a_spec(engine={"gpuMemoryUtilizationPercent": 97})
    assert findings(spec) == []
    assert "gpuMemoryUtilizationPercent 97" in warnings(spec)[0]


def test_a_very_long_ngram_draft_is_a_warning_only():
    spec = SpeculativeDeploymentSpec.model_validate(
        {**SPEC, "speculation": {"method": "NGram", "numSpeculativeTokens": 300}}
    )
    assert findings(spec) == []
    assert "numSpeculativeTokens 300" in warnings(spec)[0]
