"""Other engines on the same work as `against_torch.py`, which runs these in processes of their own: llama.cpp and ONNX Runtime.

They predict and compute no statistics. Each reads the random weights of the checkpoint that attnscope and PyTorch read.
"""

import json
import math
from pathlib import Path

# Modules that a peer needs, and what installs them.
NEEDS = {
    "llama": (("llama_cpp", "gguf"), "llama-cpp-python gguf"),
    "onnx": (("onnxruntime", "onnx", "onnxscript"), "onnxruntime onnx onnxscript"),
}


def mean_loss(logits, ids):
    """Mean loss of the next token in nats. // logits: [position, token]"""
    import numpy as np

    told = np.asarray(logits[: len(ids) - 1], dtype=np.float32)
    largest = told.max(-1)
    log_sum_exp = largest + np.log(np.exp(told - largest[:, None]).sum(-1))
    of_labels = told[np.arange(len(ids) - 1), np.asarray(ids[1:])]
    return float((log_sum_exp - of_labels).mean())


def write_gguf(how):
    """GPT-2 as a GGUF file without a vocabulary: names and kinds as llama.cpp's own converter has them."""
    import gguf
    import numpy as np
    from safetensors.numpy import load_file

    directory = Path(how["checkpoint"])
    config = json.loads((directory / "config.json").read_text())
    writer = gguf.GGUFWriter(how["gguf"], "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(config["vocab_size"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config["n_layer"])
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    for name, values in load_file(directory / "model.safetensors").items():
        name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if name is None:
            raise SystemExit("peers: a tensor of the checkpoint has no name in GGUF")
        is_map = any(part in name for part in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")) and values.ndim == 2
        values = np.ascontiguousarray(values.T if is_map else values)
        if how["kind"] == "q8_0" and values.ndim == 2 and "position" not in name:
            writer.add_tensor(name, gguf.quants.quantize(values, q8_0), raw_dtype=q8_0)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {}


def llama_side(how):
    """llama.cpp on a GGUF file, with the logits of every position."""
    from llama_cpp import Llama

    ids, threads = how["ids"], how["threads"]
    n = len(ids)
    model = Llama(how["gguf"], n_ctx=n, n_batch=n, n_threads=threads, n_threads_batch=threads, logits_all=True, verbose=False)

    def run():
        model.reset()
        model.eval(ids)

    measured = how["timed"](run, how["reps"])
    # With weights of 8 bits it rounds what it multiplies them with too, and loses otherwise.
    return {**measured, "loss": mean_loss(model.scores, ids)} if how["kind"] == "f32" else measured


def write_onnx(how):
    """The torch model as ONNX, from its own exporter, for prompts of one length."""
    import torch
    from transformers import AutoModelForCausalLM

    class Predicting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModelForCausalLM.from_pretrained(how["checkpoint"], attn_implementation="sdpa", dtype=torch.float32)

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False).logits

    ids = torch.tensor([how["ids"]])
    torch.onnx.export(Predicting().eval(), (ids,), how["onnx"], input_names=["input_ids"], output_names=["logits"], dynamo=True)
    return {}


def onnx_side(how):
    """ONNX Runtime on the exported model, with all of its optimisations."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = how["threads"]
    session = onnxruntime.InferenceSession(how["onnx"], options, providers=["CPUExecutionProvider"])
    given, last = {"input_ids": np.asarray([how["ids"]], dtype=np.int64)}, {}

    def run():
        last["logits"] = session.run(["logits"], given)[0]

    measured = how["timed"](run, how["reps"])
    loss = mean_loss(last["logits"][0], how["ids"])
    return {**measured, "loss": loss if math.isfinite(loss) else None}


SIDES = {"gguf": write_gguf, "llama": llama_side, "to_onnx": write_onnx, "onnx": onnx_side}
