"""Turn the packaged GGUF of SmolLM2-135M into two checkpoints for vLLM.

Runs inside the vLLM image, which has transformers, torch and gguf: as
`python3 convert_model.py GGUF OUTPUT`. Writes SmolLM2-135M-Instruct, and
SmolLM2-135M-8layers: the same cut to its first 8 layers, a real draft that is
bad (2 percent of its tokens accepted, measured).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch  # type: ignore[import-not-found]
from transformers import (  # type: ignore[import-not-found]
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
)

TARGET = "SmolLM2-135M-Instruct"
DRAFT = "SmolLM2-135M-8layers"
DRAFT_LAYERS = 8


def main(gguf: Path, output: Path) -> None:
    """Convert; each checkpoint appears whole or not at all."""
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model = AutoModelForCausalLM.from_pretrained(
        **source,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # The weights are plain now; left in, vLLM would take them for quantised ones.
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    save(model, tokenizer, output / TARGET)
    model.model.layers = model.model.layers[:DRAFT_LAYERS]
    model.config.num_hidden_layers = DRAFT_LAYERS
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[:DRAFT_LAYERS]
    save(model, tokenizer, output / DRAFT)


def save(model: AutoModelForCausalLM, tokenizer: AutoTokenizer, folder: Path) -> None:
    """Write one checkpoint beside its place, then move it there."""
    partial = folder.with_name(f".{folder.name}.part")
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    partial.rename(folder)
    print(f"wrote {folder}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
