"""Pre-flight over real files: vocabularies, context lengths, missing files."""

import asyncio
import dataclasses
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.worker.a_worker import a_config

from speculative_api.model_images import image_of
from speculative_worker.errors import WorkerFailure
from speculative_worker.models import resolved_models
from speculative_worker.settings import Settings

TOKENS = ["<s>", "a", "b", "c"]


def a_model(folder, *, tokens=TOKENS, added=(), config=None, without=()):
    """Writes a checkpoint's files; returns its source."""
    folder.mkdir(parents=True)
    size = len(tokens) + len(added)
    words = {"vocab_size": size, "max_position_embeddings": 4096} | (config or {})
    files = {
        "config.json": json.dumps(words),
        "tokenizer.json": json.dumps(
            {
                "model": {"vocab": {token: index for index, token in enumerate(tokens)}},
                "added_tokens": [
                    {"id": len(tokens) + index, "content": token}
                    for index, token in enumerate(added)
                ],
            }
        ),
        "model.safetensors": "\x02\0\0\0\0\0\0\0{}",
    }
    for name, text in files.items():
        if name not in without:
            (folder / name).write_text(text)
    return f"file://{folder}"


def settings_for(target, draft=None, *, extra=None, max_model_len=2048, **changes) -> Settings:
    speculation = (
        {"method": "DraftModel", "numSpeculativeTokens": 4, "draft": {"model": draft}}
        if draft
        else {"method": "None"}
    )
    config = a_config(
        model=target,
        maxModelLen=max_model_len,
        speculation=speculation | ({"extra": extra} if extra else {}),
        **changes,
    )
    return Settings(config=config)


async def refusal(settings: Settings) -> WorkerFailure:
    with pytest.raises(WorkerFailure) as caught:
        await resolved_models(settings)
    return caught.value


async def test_a_fitting_pair_passes(tmp_path):
    target = a_model(tmp_path / "target", added=["<|im_end|>"])
    draft = a_model(tmp_path / "draft", added=["<|im_end|>"])
    found = await resolved_models(settings_for(target, draft))
    assert (found.target, found.draft) == (tmp_path / "target", tmp_path / "draft")


async def test_a_lone_target_passes(tmp_path):
    found = await resolved_models(settings_for(a_model(tmp_path / "target")))
    assert found.draft is None


@pytest.mark.parametrize(
    "changes, says",
    [
        pytest.param(
            {"tokens": ["<s>", "a", "X", "c"]},
            "token 2 is 'X' in the draft and 'b' in the target",
            id="same size, another token",
        ),
        pytest.param(
            {"tokens": ["<s>", "a", "b"]},
            "token 3 is absent in the draft and 'c' in the target; the draft has 3 tokens, the "
            "target 4 (vocab_size 3 and 4)",
            id="one token fewer",
        ),
        pytest.param(
            {"added": ["<tool>"]},
            "token 4 is '<tool>' in the draft and absent in the target",
            id="one added token more",
        ),
        pytest.param({"config": {"vocab_size": 8}}, "only the padding differs", id="padding only"),
        pytest.param(
            {"config": {"vocab_size": 8}, "without": ["tokenizer.json"]},
            "vocab_size is 8 in the draft and 4 in the target",
            id="sizes alone",
        ),
    ],
)
async def test_vocabularies_that_differ_are_refused_in_words(tmp_path, changes, says):
    target = a_model(tmp_path / "target")
    draft = a_model(tmp_path / "draft", **changes)
    found = await refusal(settings_for(target, draft))
    assert (found.reason, found.retryable) == ("VocabularyMismatch", False)
    assert says in found.detail


async def test_unequal_vocabularies_pass_when_the_user_says_so(tmp_path):
    target = a_model(tmp_path / "target")
    draft = a_model(tmp_path / "draft", tokens=["<s>", "x"])
    settings = settings_for(target, draft, extra={"use_heterogeneous_vocab": True})
    assert (await resolved_models(settings)).draft == tmp_path / "draft"


@pytest.mark.parametrize(
    "max_model_len, draft_config, numbers",
    [
        pytest.param(8192, {}, ("4096", "8192"), id="asked for more than the draft has"),
        pytest.param(
            None, {"max_position_embeddings": 2048}, ("2048", "4096"), id="the target's own limit"
        ),
        pytest.param(
            8192,
            {"rope_scaling": {"rope_type": "yarn", "factor": 4}},
            ("4096", "8192"),
            id="a factor that the limit counts already",
        ),
        pytest.param(
            8192, {"text_config": {"max_position_embeddings": 1024}}, ("1024", "8192"), id="nested"
        ),
    ],
)
async def test_a_draft_with_a_shorter_context_is_refused_with_both_numbers(
    tmp_path, max_model_len, draft_config, numbers
):
    long_enough = {"max_position_embeddings": max(4096, max_model_len or 0)}
    target = a_model(tmp_path / "target", config=long_enough)
    draft = a_model(tmp_path / "draft", config=draft_config)
    found = await refusal(settings_for(target, draft, max_model_len=max_model_len))
    assert (found.reason, found.retryable) == ("DraftContextTooShort", False)
    assert f"takes {numbers[0]} tokens" in found.detail
    assert f"is {numbers[1]}:" in found.detail


@pytest.mark.parametrize(
    "max_model_len, draft_config",
    [
        pytest.param(4096, {}, id="just as long"),
        pytest.param(
            8192, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, id="stretched"
        ),
        pytest.param(8192, {"max_position_embeddings": None}, id="unknown"),
    ],
)
async def test_a_draft_that_is_long_enough_passes(tmp_path, max_model_len, draft_config):
    long_enough = {"max_position_embeddings": max(4096, max_model_len or 0)}
    target = a_model(tmp_path / "target", config=long_enough)
    draft = a_model(tmp_path / "draft", config=draft_config)
    settings = settings_for(target, draft, max_model_len=max_model_len)
    assert (await resolved_models(settings)).draft is not None


@pytest.mark.parametrize(
    "without, says",
    [
        (["config.json"], "config.json does not exist"),
        (["tokenizer.json"], "it has no tokenizer file"),
        (["model.safetensors"], "it has no weights"),
    ],
)
async def test_missing_files_are_named(tmp_path, without, says):
    source = a_model(tmp_path / "target", without=without)
    found = await refusal(settings_for(source))
    assert (found.reason, found.retryable) == ("ModelNotFound", False)
    assert found.detail.startswith(source)
    assert says in found.detail


async def test_a_broken_config_is_named(tmp_path):
    source = a_model(tmp_path / "target")
    (tmp_path / "target" / "config.json").write_text("{")
    assert "config.json cannot be read" in (await refusal(settings_for(source))).detail


async def test_a_claim_is_a_folder_below_the_mount(tmp_path):
    a_model(tmp_path / "claims" / "weights" / "org" / "model")
    settings = dataclasses.replace(
        settings_for("pvc://weights/org/model"), claims_directory=str(tmp_path / "claims")
    )
    found = await resolved_models(settings)
    assert found.target == tmp_path / "claims" / "weights" / "org" / "model"


@pytest.mark.parametrize(
    "status, code, reason, retryable",
    [
        (401, None, "ModelNotFound", False),
        (403, "GatedRepo", "ModelNotFound", False),
        (404, "RepoNotFound", "ModelNotFound", False),
        (404, None, "ModelNotFound", False),
        (503, None, "HubUnreachable", True),
    ],
)
async def test_answers_of_the_hub(tmp_path, monkeypatch, status, code, reason, retryable):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"X-Error-Code": code} if code else {})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(application) as server:
        found = await hub_refusal(monkeypatch, tmp_path, str(server.make_url("")).rstrip("/"))
    assert (found.reason, found.retryable) == (reason, retryable)
    assert "hf://org/model@main" in found.detail


async def test_a_hub_that_nobody_answers_for_can_be_retried(tmp_path, monkeypatch):
    found = await hub_refusal(monkeypatch, tmp_path, "http://127.0.0.1:1")
    assert (found.reason, found.retryable) == ("HubUnreachable", True)
    assert "HF_HUB_OFFLINE" in found.detail


async def hub_refusal(monkeypatch, tmp_path, endpoint: str) -> WorkerFailure:
    """What a worker says that loads from this hub."""
    hub = await asyncio.to_thread(__import__, "huggingface_hub.constants")
    monkeypatch.setattr(hub.constants, "ENDPOINT", endpoint)
    return await refusal(
        settings_for("hf://org/model@main", cacheDirectory=str(tmp_path / "cache"))
    )


async def test_a_pair_that_does_not_fit_may_be_tried_if_that_is_said(tmp_path, capfd):
    target = a_model(tmp_path / "target")
    draft = a_model(tmp_path / "draft", config={"max_position_embeddings": 1024})
    settings = settings_for(target, draft, max_model_len=4096, preflight="Warn")
    assert (await resolved_models(settings)).draft == tmp_path / "draft"
    assert "takes 1024 tokens, target.maxModelLen is 4096" in capfd.readouterr().err


async def test_missing_weights_end_a_pod_whatever_is_said(tmp_path):
    source = a_model(tmp_path / "target", without=["model.safetensors"])
    assert (await refusal(settings_for(source, preflight="Warn"))).reason == "ModelNotFound"


async def test_a_model_in_an_image_is_read_where_it_is_mounted(tmp_path):
    image = image_of("oci://r/models:1//target")
    a_model(tmp_path / image.mount_name / "target")
    a_model(tmp_path / image.mount_name / "draft", tokens=["<s>", "a", "X", "c"])
    settings = settings_for("oci://r/models:1//target", "oci://r/models:1//draft")
    failure = await refusal(dataclasses.replace(settings, images_directory=str(tmp_path)))
    assert failure.reason == "VocabularyMismatch"
    alone = dataclasses.replace(
        settings_for("oci://r/models:1//target"), images_directory=str(tmp_path)
    )
    assert (await resolved_models(alone)).target == tmp_path / image.mount_name / "target"


async def test_a_cluster_without_image_volumes_is_named():
    failure = await refusal(settings_for("oci://r/models:1"))
    assert (failure.reason, failure.retryable) == ("ModelNotFound", False)
    assert "feature gate ImageVolume" in failure.detail
