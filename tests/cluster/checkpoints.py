"""Makes small checkpoints of GPT-2's kind with random weights, and a set of prompts: python checkpoints.py DIR N_CHECKPOINTS N_PROMPTS

Needs nothing but Python. The same arguments give the same files.
"""

import array
import json
import random
import struct
import sys
from pathlib import Path

LAYERS, HEADS, WIDTH, VOCABULARY, POSITIONS = 2, 4, 32, 64, 64


def shapes():
    """Names and shapes of all tensors."""
    yield "wte.weight", (VOCABULARY, WIDTH)
    yield "wpe.weight", (POSITIONS, WIDTH)
    for layer in range(LAYERS):
        at = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            yield f"{at}{norm}.weight", (WIDTH,)
            yield f"{at}{norm}.bias", (WIDTH,)
        for name, inner, outer in (
            ("attn.c_attn", WIDTH, 3 * WIDTH),
            ("attn.c_proj", WIDTH, WIDTH),
            ("mlp.c_fc", WIDTH, 4 * WIDTH),
            ("mlp.c_proj", 4 * WIDTH, WIDTH),
        ):
            yield f"{at}{name}.weight", (inner, outer)
            yield f"{at}{name}.bias", (outer,)
    yield "ln_f.weight", (WIDTH,)
    yield "ln_f.bias", (WIDTH,)


def checkpoint(directory, seed):
    numbers = random.Random(seed)
    header, data = {}, array.array("f")
    for name, shape in shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        begin = len(data) * 4
        if "ln_" in name:
            data.extend([1.0 if name.endswith("weight") else 0.0] * count)
        else:
            data.extend(numbers.gauss(0.0, 0.2) for _ in range(count))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, len(data) * 4]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
    config = {
        "model_type": "gpt2",
        "n_layer": LAYERS,
        "n_head": HEADS,
        "n_embd": WIDTH,
        "vocab_size": VOCABULARY,
        "n_positions": POSITIONS,
    }
    (directory / "config.json").write_text(json.dumps(config))


def make(directory, n_checkpoints, n_prompts):
    directory = Path(directory)
    for step in range(n_checkpoints):
        checkpoint(directory / "steps" / f"step-{step}", step)
    numbers = random.Random(-1)
    with open(directory / "prompts.jsonl", "w") as file:
        for _ in range(n_prompts):
            tokens = [numbers.randrange(VOCABULARY) for _ in range(numbers.randint(8, 32))]
            file.write(json.dumps({"tokens": tokens}) + "\n")


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
