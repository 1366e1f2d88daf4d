"""What people really write (`Arguments people really write` of the field cases), row by row."""

import pytest
from tests.builders import a_raw_spec

from speculative_api.engine_arguments import findings, warnings
from speculative_api.revisions import canonical_words, words_hash
from speculative_api.v1alpha1 import SpeculativeDeploymentSpec

DRAFT = {"model": "file:///models/draft"}
MODEL = {"method": "DraftModel", "numSpeculativeTokens": 4, "draft": DRAFT}
NGRAM = {"method": "NGram", "numSpeculativeTokens": 4}


def a_spec(speculation=MODEL, **changes):
    target = {"model": "file:///models/target", **changes.pop("target", {})}
    words = a_raw_spec(target=target, **changes)
    return SpeculativeDeploymentSpec.model_validate({**words, "speculation": speculation})


def refused(**changes):
    return " | ".join(findings(a_spec(**changes)))


def warned(**changes):
    assert findings(a_spec(**changes)) == []
    return " | ".join(warnings(a_spec(**changes)))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--speculative_config", "{}"],
        ["--speculative-config={}"],
        ["-sc", "{}"],
        ["--speculative_config.method", "draft_model"],
        ["--speculative-config.model=x"],
        ["--speculative-conf", "{}"],
    ],
)
def test_speculation_in_any_spelling_is_a_conflict(arguments):
    assert "speculation says this already" in refused(engine={"extraArgs": arguments})


@pytest.mark.parametrize(
    "arguments, field",
    [
        (["-qfp8"], "target.quantization"),
        (["-q=fp8"], "target.quantization"),
        (["-quantization", "fp8"], "target.quantization"),
        (["-t", "2"], "target.tensorParallelSize"),
        (["-tp=2"], "target.tensorParallelSize"),
        (["-s", "{}"], "speculation"),
    ],
)
def test_short_flags_with_their_value_attached_or_cut_short_are_conflicts(arguments, field):
    assert f"{field} says this already" in refused(engine={"extraArgs": arguments})


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--seed", "1", "--", "--port", "1"], "ends the engine's flags"),
        (["---speculative-config", "{}"], "more than two hyphens"),
        (["--Speculative-Config", "{}"], "did you mean --speculative-config?"),
        (["--SPECULATIVE_CONFIG={}"], "did you mean --speculative_config?"),
        (["--seed", "1", "\u2013\u2013speculative-config", "{}"], "which is no hyphen"),
        (["\u2014speculative-config", "{}"], "which is no hyphen"),
        (["--speculative\u2011config", "{}"], "U+2011"),
        (["--speculative-config\u200b", "{}"], "U+200B"),
        (["--no-speculative-config"], "speculation says this already"),
        (["--no_speculative_config"], "speculation says this already"),
        (["--no-trust-remote-code"], "target.trustRemoteCode says this already"),
        (["-tensor-parallel-size", "2"], "is --tensor-parallel-size with one hyphen"),
        (["-max-num-seqs=2"], "is --max-num-seqs with one hyphen"),
        (["--help"], "prints its flags and ends"),
        (["-h"], "prints its flags and ends"),
        (["--version"], "prints its version and ends"),
        (["-v"], "prints its version and ends"),
        (["--config.port", "9"], "could set any flag unseen"),
        (["--conf=/x.yaml"], "short for --config"),
    ],
)
def test_spellings_that_no_parser_or_no_field_takes(arguments, says):
    assert says in refused(engine={"extraArgs": arguments})


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-async-scheduling"],
        ["--no-enable-prefix-caching"],
        ["--override-generation-config", '{"temperature": 0.5}'],
        ["--override-generation-config.stopWords+", "A"],
        ["--chat-template", "/x/\u00dc.jinja"],
        ["--chat-template=/x/\u2013.jinja"],
        ["--compilation-config.cudagraph_mode", "FULL"],
        ["-O3"],
        ["-O.level=3"],
        ["-cc", "{}"],
        ["--max-logprobs", "-1"],
    ],
)
def test_other_flags_and_values_pass(arguments):
    assert refused(engine={"extraArgs": arguments}) == ""


@pytest.mark.parametrize("name", ["VLLM_API_KEY", "VLLM_DP_SIZE", "VLLM_DP_MASTER_PORT"])
def test_variables_that_are_flags_by_another_name_are_refused(name):
    found = refused(pod={"env": [{"name": "A", "value": "1"}, {"name": name, "value": "2"}]})
    assert f"pod.env[1] {name}: not allowed" in found


@pytest.mark.parametrize(
    "flag", ["--kv-cache-memory-bytes", "--kv_cache_memory_bytes", "--tokenizer"]
)
def test_flags_that_take_a_field_s_effect_away_are_said(flag):
    assert "engine.extraArgs --" in warned(engine={"extraArgs": [flag, "1"]})


def test_single_hyphens_of_other_flags_pass():
    arguments = ["-O3", "-ep", "--seed", "-1", "-cc", "{}"]
    assert findings(a_spec(engine={"extraArgs": arguments})) == []


@pytest.mark.parametrize(
    "flag", ["--scheduler_cls=x.Y", "--sched", "--async-sched", "--no-async-scheduling"]
)
def test_a_scheduler_in_any_spelling_does_not_go_with_one_of_ours(flag):
    speculation = {**MODEL, "adaptive": {"mode": "Online"}}
    found = refused(speculation=speculation, engine={"extraArgs": [flag]})
    assert "mode Online sets the scheduler" in found


@pytest.mark.parametrize(
    "key, says",
    [
        ("draft_temperature", "vLLM has no setting for a draft's temperature"),
        ("draft_model", "speculation.extra.draft_model: use speculation.draft.model"),
        ("speculative_model", "belongs to earlier engines; use speculation.draft.model"),
    ],
)
def test_a_key_that_no_engine_has_is_said_to_be_none(key, says):
    assert says in refused(speculation={**MODEL, "extra": {key: "x"}})


def test_hyphens_in_a_key_are_a_misspelling():
    extra = {**MODEL, "extra": {"max-model-len": 4096}}
    assert "did you mean max_model_len?" in refused(speculation=extra)


@pytest.mark.parametrize("key", ["disable_by_batch_size", "disable_logprobs", "disable_log_stats"])
def test_keys_of_the_old_generation(key):
    value = 8 if key == "disable_by_batch_size" else True
    extra = {**NGRAM, "extra": {key: value}}
    assert "belongs to earlier engines" in refused(speculation=extra)


def test_an_old_key_on_an_old_engine_passes():
    extra = {**NGRAM, "extra": {"disable_by_batch_size": 8}}
    assert findings(a_spec(speculation=extra, engine={"version": "0.9.2"})) == []


def test_a_new_key_on_an_old_engine_is_named_as_such():
    extra = {**MODEL, "extra": {"use_heterogeneous_vocab": True}}
    found = refused(speculation=extra, engine={"version": "0.18.1"})
    assert "engine 0.18.1 does not know it yet, 0.25 does" in found


@pytest.mark.parametrize("name", ["qwen3_next_mtp", "deepseek_mtp", "glm5_next_mtp", "MTP"])
def test_family_names_are_mtp_and_hash_alike(name):
    spec = a_spec(speculation={"method": name, "numSpeculativeTokens": 2})
    assert spec.speculation.method == "MTP"
    plain = a_spec(speculation={"method": "MTP", "numSpeculativeTokens": 2})
    assert words_hash(canonical_words(spec)) == words_hash(canonical_words(plain))


def test_a_long_ngram_is_legal_and_warned_of():
    window = {"promptLookupMin": 10, "promptLookupMax": 50}
    found = warned(speculation={**NGRAM, "numSpeculativeTokens": 300, "ngram": window})
    assert "numSpeculativeTokens 300 is long for NGram" in found


def test_ngram_without_a_maximum_gets_ours_in_every_version():
    for version in ("0.6.6", "0.32.0"):
        assert findings(a_spec(speculation=NGRAM, engine={"version": version})) == []


SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 512, 0]]}


def test_a_schedule_down_to_nothing_is_legal_without_data_parallelism_only():
    speculation = {**MODEL, "extra": SCHEDULE}
    assert findings(a_spec(speculation=speculation)) == []
    found = refused(speculation=speculation, target={"dataParallelSize": 2})
    assert "target.dataParallelSize 2" in found
    assert "num_speculative_tokens_per_batch_size" in found


@pytest.mark.parametrize("percent", [95, 97, 98])
def test_high_utilisation_beside_a_draft(percent):
    found = warned(engine={"gpuMemoryUtilizationPercent": percent})
    assert f"engine.gpuMemoryUtilizationPercent {percent}" in found


@pytest.mark.parametrize("image", ["reg.example:5000/w:latest", "w", "reg.example:5000/w"])
def test_an_image_whose_content_can_change_is_warned_of(image):
    assert "pin a version or a digest" in warned(engine={"image": image})


@pytest.mark.parametrize("image", ["w:0.32.0", "reg.example:5000/w@sha256:00", "w:latest@sha256:0"])
def test_a_pinned_image_is_not(image):
    assert "pin" not in warned(engine={"image": image})


@pytest.mark.parametrize("version", ["latest", "0.7.3", "0.99.0", "main"])
def test_a_version_outside_the_table_is_refused_unless_that_is_said(version):
    assert f"engine.version {version!r} is not in the table" in refused(engine={"version": version})
    said = {"version": version, "allowUnknownVersion": True}
    assert "is given the flags of" in warned(engine=said)


def test_other_engines_are_refused_by_name_even_if_unknown_versions_are_allowed():
    said = {"version": "sglang-0.5", "allowUnknownVersion": True}
    assert "the only engine here is vLLM" in refused(engine=said)


def test_remote_drafters_are_refused_with_what_there_is_instead():
    found = refused(speculation={**MODEL, "extra": {"draft_url": "http://d:8000"}})
    assert "vLLM has no remote drafters" in found


@pytest.mark.parametrize(
    "key, value", [("rejection_sample_method", "synthetic"), ("synthetic_acceptance_length", 3)]
)
def test_a_lossy_setting_has_to_be_said_in_words(key, value):
    speculation = {**MODEL, "extra": {key: value}}
    assert "changes the output" in refused(speculation=speculation)
    said = {**speculation, "allowLossy": "OutputMayDifferFromTarget"}
    assert findings(a_spec(speculation=said)) == []


HEAD = {"numSpeculativeTokens": 3, "draft": DRAFT}
COMBINATIONS = [
    pytest.param("0.26.0", {"method": "MTP", "numSpeculativeTokens": 1}, "refuse", id="H05a"),
    pytest.param("0.32.0", {"method": "MTP", "numSpeculativeTokens": 1}, "warn", id="mtp later"),
    pytest.param("0.26.0", {**HEAD, "method": "Eagle3"}, "refuse", id="eagle3"),
    pytest.param("0.32.0", {**HEAD, "method": "Eagle3"}, "warn", id="eagle3 later"),
    pytest.param("0.9.2", NGRAM, "refuse", id="first generation"),
    pytest.param("0.32.0", NGRAM, "ok", id="ngram"),
    pytest.param("0.32.0", {"method": "None"}, "ok", id="none"),
]


@pytest.mark.parametrize("version, speculation, verdict", COMBINATIONS)
def test_pipeline_parallelism(version, speculation, verdict):
    spec = a_spec(
        speculation=speculation, target={"pipelineParallelSize": 2}, engine={"version": version}
    )
    about = "target.pipelineParallelSize 2: with method"
    assert any(about in text for text in findings(spec)) is (verdict == "refuse")
    assert any(about in text for text in warnings(spec)) is (verdict == "warn")


def test_lora_with_ngram_is_warned_of():
    lora = {"adapters": [{"name": "sql", "model": "file:///models/sql"}]}
    assert "target.lora: with method NGram" in warned(speculation=NGRAM, target={"lora": lora})


def test_a_quantised_draft_is_warned_of_where_it_was_broken():
    speculation = {**MODEL, "extra": {"quantization": "fp8"}}
    assert "extra.quantization fp8" in warned(speculation=speculation, engine={"version": "0.27.0"})
    assert "quantization" not in warned(speculation=speculation)


def test_a_draft_split_otherwise_than_its_target_is_warned_of():
    found = warned(target={"tensorParallelSize": 4}, engine={"gpuMemoryUtilizationPercent": 97})
    assert "engine.gpuMemoryUtilizationPercent 97" in found
    assert "speculation.draft.tensorParallelSize 1 (target.tensorParallelSize 4)" in found


@pytest.mark.parametrize(
    "speculation, says",
    [
        ({**MODEL, "numSpeculativeTokens": 12}, "12 is more than the 3 to 7 to begin with"),
        ({**MODEL, "numSpeculativeTokens": 1}, "1 is less than the 3 to 7 to begin with"),
        ({"method": "Suffix", "numSpeculativeTokens": 32}, "arctic-inference"),
    ],
)
def test_rules_of_thumb_are_warnings_with_both_numbers(speculation, says):
    assert says in warned(speculation=speculation)


def test_short_look_ups_and_tools_are_warned_of():
    found = warned(speculation=NGRAM, engine={"extraArgs": ["--enable-auto-tool-choice"]})
    assert "promptLookupMin 2 is below 8" in found


@pytest.mark.parametrize("flag", ["--async-scheduling", "--async_scheduling", "--async-sched"])
def test_asynchronous_scheduling_is_refused_where_the_engine_refuses_it(flag):
    asked = {"extraArgs": [flag]}
    assert "engine.extraArgs --async-scheduling: with method NGram" in refused(
        speculation=NGRAM, engine=asked
    )
    assert findings(a_spec(engine=asked)) == []


@pytest.mark.parametrize(
    "source, says",
    [
        ("hf://org/model", True),
        ("hf://org/model@main", True),
        ("hf://org/model@" + "a" * 40, False),
        ("file:///models/x", False),
    ],
)
def test_a_hub_model_without_a_commit_is_warned_of(source, says):
    found = warned(speculation=NGRAM, target={"model": source})
    assert ("names no commit" in found) is says
    assert "names no digest" in warned(target={"model": "oci://r/model:1"})
    assert "names no digest" not in warned(target={"model": f"oci://r/model@sha256:{'a' * 64}"})
    assert "names no version" in warned(target={"model": "s3://models/llama"})
    assert "names no version" not in warned(target={"model": f"s3://models/llama@{'a' * 40}"})
    assert "names no commit" not in warned(
        speculation=NGRAM, target={"model": source}, engine={"simulation": {}}
    )
