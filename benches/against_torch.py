#!/usr/bin/env python3
"""attnscope against PyTorch on the same work: both sides in turn, several rounds, each run in a process of its own.

    python benches/against_torch.py [--rows layer,model] [--rounds 5] [--threads 2] [--checkpoint DIR]

The other side is what a PyTorch user would write to get the same statistics, in the order that costs PyTorch least.
A ratio is our median time over theirs in the same round, and of the rounds the median. Start-up and loading are left
out, except where a whole process is measured. Needs torch, transformers and cargo; run it on a machine that does
nothing else. Rows against llama.cpp and ONNX Runtime (`peers.py`) need their packages, and are left out without them.
Nothing here is a test: the last column says whether what is promised holds on this machine.
"""

import argparse
import functools
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import peers

ROOT = Path(__file__).resolve().parent.parent
LENGTH = 1024
D_VOCAB = 50257


# ---- The other side. Each of these runs in a process of its own, which alone imports torch.


def pooled(pattern):
    """A picture of at most 64 x 64 cells per head."""
    import torch.nn.functional as F

    return F.avg_pool2d(pattern, max(1, pattern.shape[-1] // 64))


@functools.cache
def causal(n):
    """Which keys are hidden from which queries, and how many are not. Kept, so that it costs nothing in a timed call."""
    import torch

    return torch.ones(n, n, dtype=torch.bool).triu(1), torch.arange(1, n + 1, dtype=torch.float32)


def attention_with_statistics(scores, v):
    """Statistics of every row of causal scores [.., query, key], which are overwritten, and the output."""
    import torch

    hidden, n_visible = causal(scores.shape[-1])
    masked = scores.masked_fill(hidden, -math.inf)
    pattern = torch.softmax(masked, -1)
    log_sum_exp = torch.logsumexp(masked, -1)
    largest = masked.amax(-1)
    # Zeros where masked: then sums are over visible keys, and 0 times their probability is 0.
    visible = scores.masked_fill_(hidden, 0.0)
    mean = visible.sum(-1) / n_visible
    norm = torch.linalg.vector_norm(visible, dim=-1)
    deviation = (norm.square() / n_visible - mean.square()).clamp_min_(0).sqrt_()
    entropy = log_sum_exp - torch.einsum("...qk,...qk->...q", pattern, visible)
    smallest = visible.masked_fill_(hidden, math.inf).amin(-1)
    top, at = pattern.max(-1)
    told = {
        "mean": mean, "deviation": deviation, "norm": norm, "smallest": smallest, "largest": largest,
        "log_sum_exp": log_sum_exp, "entropy": entropy, "top": top, "argmax": at, "first": pattern[..., 0].clone(),
        "received": pattern.sum(-2), "pooled": pooled(pattern),
    }
    return told, pattern @ v


def statistics_of_pattern(pattern):
    """What can be told from probabilities alone, as output_attentions gives them."""
    import torch

    top, at = pattern.max(-1)
    return {
        "entropy": torch.special.entr(pattern).sum(-1), "top": top, "argmax": at, "first": pattern[..., 0].clone(),
        "received": pattern.sum(-2), "pooled": pooled(pattern),
    }


def timed(work, reps):
    """Medians of time and CPU time of so many calls in ms, after one that warms up."""
    times = []
    for _ in range(reps + 1):
        started = time.perf_counter(), time.process_time()
        work()
        times.append(((time.perf_counter() - started[0]) * 1e3, (time.process_time() - started[1]) * 1e3))
    walls, cpus = zip(*times[1:])
    return {"median_ms": statistics.median(walls), "min_ms": min(walls), "cpu_ms": statistics.median(cpus)}


def layer_side(how):
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    heads, kv_heads, d, n = how["heads"], how["kv_heads"], how["d_head"], how["length"]
    q, k, v = torch.randn(heads, n, d) * 1.5, torch.randn(kv_heads, n, d), torch.randn(kv_heads, n, d)
    per_kv = heads // kv_heads

    def sdpa():
        F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=per_kv > 1)

    def eager():
        wide_k, wide_v = (t.repeat_interleave(per_kv, 0) if per_kv > 1 else t for t in (k, v))
        attention_with_statistics((q @ wide_k.transpose(-1, -2)).mul_(1 / math.sqrt(d)), wide_v)

    return timed({"sdpa": sdpa, "eager": eager}[how["attention"]], how["reps"])


def prompt(n):
    return [(i * 7919 + 13) % D_VOCAB for i in range(n)]


def prompts():
    """64 prompts of 16 to 256 tokens."""
    return [prompt(LENGTH)[i : i + 16 + (i * 37) % 241] for i in range(64)]


def open_model(directory, attention, told=None, dtype="float32"):
    """A model with one of its attentions, or with ours that tells all statistics."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.utils import logging

    logging.disable_progress_bar()

    def with_statistics(module, q, k, v, attention_mask, scaling=None, dropout=0.0, **_):
        scale = scaling if scaling is not None else 1 / math.sqrt(q.shape[-1])
        of_layer, z = attention_with_statistics((q @ k.transpose(-1, -2)).mul_(scale), v)
        told.append(of_layer)
        return z.transpose(1, 2).contiguous(), None

    ALL_ATTENTION_FUNCTIONS.register("with_statistics", with_statistics)
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation=attention, dtype=getattr(torch, dtype))
    return model.eval()


def loss_of(logits, ids):
    import torch.nn.functional as F

    return F.cross_entropy(logits[0, :-1], ids[0, 1:]).item()


def model_side(how):
    import torch

    attention, dtype = how["attention"], how.get("dtype", "float32")
    model, ids, last = open_model(how["checkpoint"], attention, dtype=dtype), torch.tensor([prompt(LENGTH)]), {}

    def run():
        last.clear()
        out = model(ids, output_attentions=attention == "eager", use_cache=False)
        if attention == "eager":
            last["told"] = [statistics_of_pattern(pattern) for pattern in out.attentions]
        last["logits"] = out.logits

    measured = timed(run, how["reps"])
    # Products in 16 bits lose otherwise, which is no mistake.
    return {**measured, "loss": loss_of(last["logits"], ids)} if dtype == "float32" else measured


def padded_side(how):
    """All prompts in batches of eight, padded on the right, with the statistics that probabilities leave possible."""
    import torch

    model, all_ids, told = open_model(how["checkpoint"], "eager"), prompts(), []
    started = time.perf_counter(), time.process_time()
    for first in range(0, len(all_ids), 8):
        some = all_ids[first : first + 8]
        longest = max(map(len, some))
        ids = torch.tensor([one + [0] * (longest - len(one)) for one in some])
        real = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in some])
        out = model(ids, attention_mask=real, output_attentions=True, use_cache=False)
        for pattern in out.attentions:
            told.append({name: value.float().mean().item() for name, value in statistics_of_pattern(pattern).items()})
        told += [loss_of(out.logits[i : i + 1, : len(one)], ids[i : i + 1, : len(one)]) for i, one in enumerate(some)]
    return {"wall_s": time.perf_counter() - started[0], "cpu_s": time.process_time() - started[1]}


def read_side(how):
    """CPU time to read a file once in parts and to touch each of its numbers."""
    import numpy

    part = bytearray(4 << 20)
    values, started = numpy.frombuffer(part, dtype=numpy.float32), time.process_time()
    with open(how["file"], "rb", buffering=0) as file:
        while n := file.readinto(part):
            values[: n // 4].max()
    return {"cpu_s": time.process_time() - started}


def process_side(how):
    """A whole program: opens the model, runs it, and writes means of every statistic of every head."""
    import torch

    told = []
    model, ids = open_model(how["checkpoint"], "with_statistics", told), torch.tensor([prompt(LENGTH)])
    loss = loss_of(model(ids, use_cache=False).logits, ids)
    layers = [{name: value.float().flatten(2).mean(-1)[0].tolist() for name, value in layer.items()} for layer in told]
    Path(how["output"]).write_text(json.dumps({"loss": loss, "layers": layers}))
    return {}


# Blocks of Qwen3: sizes of the published models of 0.6 and 1.7 billion parameters.
QWEN3 = {
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": True, "rope_theta": 1e6,
}  # fmt: skip
SHAPES = {
    "0.6B": {**QWEN3, "hidden_size": 1024, "intermediate_size": 3072},
    "1.7B": {**QWEN3, "hidden_size": 2048, "intermediate_size": 6144},
}


def make_side(how):
    """A checkpoint with random weights: of GPT-2 small's shape in f32 and in bf16, or one of `SHAPES` in bf16."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    if how["shape"] in SHAPES:
        torch.set_default_dtype(torch.bfloat16)
        Qwen3ForCausalLM(Qwen3Config(**SHAPES[how["shape"]])).save_pretrained(how["bf16"])
        return {}
    model = GPT2LMHeadModel(GPT2Config())
    with torch.no_grad():
        for name, values in model.named_parameters():
            if name.endswith("bias"):
                values.normal_(0, 0.02)
            elif "c_attn" in name:
                values.mul_(4)  # else attention is nearly uniform
    model.save_pretrained(how["f32"])
    model.to(torch.bfloat16).save_pretrained(how["bf16"])
    return {}


SIDES = {
    "layer": layer_side, "model": model_side, "process": process_side, "padded": padded_side, "read": read_side, "make": make_side,
    **peers.SIDES,
}  # fmt: skip


def be_a_side(name, how):
    if name in peers.SIDES:
        print(json.dumps(peers.SIDES[name]({**how, "ids": prompt(LENGTH), "timed": timed})))
        return
    import torch

    torch.set_num_threads(how["threads"])
    with torch.inference_mode(name != "make"):
        print(json.dumps(SIDES[name](how)))


# ---- Measuring. This process stays small: a child's peak memory counts its parent's at the time it was started.


def measured_process(command, reads_json):
    """Wall time and CPU time in s and peak resident memory in MB of a program, and what it printed."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as printed:
        started = time.perf_counter()
        program = subprocess.Popen(command, stdout=printed, stderr=said, cwd=ROOT)
        _, status, usage = os.wait4(program.pid, 0)
        wall = time.perf_counter() - started
        program.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        if program.returncode != 0:
            sys.exit(f"{said.read().decode()}against_torch: {command[0]} ended with {program.returncode}")
        printed.seek(0)
        lines = printed.read().splitlines()
    unit = 1 if platform.system() == "Darwin" else 1024
    told = json.loads(lines[-1]) if reads_json else {}
    measured = {"wall_s": wall, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss * unit / 1e6}
    return {**measured, **told}


def build():
    """The programs of our side, built as they are released."""
    command = ["cargo", "bench", "--no-run", "--message-format", "json", "--bench", "layer", "--bench", "model"]
    try:
        built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"against_torch: our side cannot be built ({problem})")
    messages = map(json.loads, built.stdout.splitlines())
    return {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}


class Programs:
    """Both sides, as functions that run one process and give what it measured."""

    def __init__(self, threads, directory):
        self.threads, self.directory, self.ours = threads, directory, build()

    def torch(self, name, **how):
        how = json.dumps({"threads": self.threads, **how})
        return lambda: measured_process([sys.executable, __file__, "--side", name, "--how", how], reads_json=True)

    def bench(self, name, *arguments):
        command = [self.ours[name], "--json", "--threads", str(self.threads), *map(str, arguments)]
        return lambda: measured_process(command, reads_json=True)

    def report(self, checkpoint, *given):
        """A whole process of the program."""
        output = str(self.directory / "ours.json")
        command = [self.ours["attnscope"], "report", str(self.directory / checkpoint), *given,
                   "--threads", str(self.threads), "--format", "json", "--output", output, "--force"]
        return lambda: measured_process(command, reads_json=False)

    def made(self, name, side, **how):
        """A file that some side makes of the checkpoint, once."""
        path = self.directory / name
        if not path.exists():
            self.torch(side, checkpoint=str(self.directory / "f32"), **how)()
        return str(path)


def tokens(n):
    return "--tokens", ",".join(map(str, prompt(n)))


def layer_group(heads, kv_heads, d_head, length, reps):
    def sides(p):
        size = {"heads": heads, "kv_heads": kv_heads, "d_head": d_head, "length": length}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in size.items()]
        return {
            "ours": p.bench("layer", *flags, "--reps", reps * 2),
            "eager": p.torch("layer", attention="eager", reps=reps, **size),
            "sdpa": p.torch("layer", attention="sdpa", reps=reps * 2, **size),
        }

    return sides


def model_sides(p):
    directory = str(p.directory / "f32")
    return {
        "ours": p.bench("model", directory, "--length", LENGTH, "--reps", 3),
        "eager": p.torch("model", checkpoint=directory, attention="eager", reps=3),
        "sdpa": p.torch("model", checkpoint=directory, attention="sdpa", reps=3),
    }


def bf16_sides(p):
    directory = str(p.directory / "bf16")
    return {
        "ours": p.bench("model", directory, "--length", LENGTH, "--reps", 3),
        "sdpa": p.torch("model", checkpoint=directory, attention="sdpa", reps=3),
    }


def process_sides(p):
    directory, output = str(p.directory / "f32"), str(p.directory / "theirs.json")
    return {"ours": p.report("f32", *tokens(LENGTH)), "stats": p.torch("process", checkpoint=directory, output=output)}


def brief_sides(p):
    return {"ours": p.report("f32", *tokens(16)), "read": p.torch("read", file=str(p.directory / "f32" / "model.safetensors"))}


def prompts_sides(p):
    inputs = p.directory / "prompts.jsonl"
    inputs.write_text("".join(json.dumps({"tokens": one}) + "\n" for one in prompts()))
    return {"ours": p.report("f32", "--inputs", str(inputs)), "padded": p.torch("padded", checkpoint=str(p.directory / "f32"))}


def large_sides(shape):
    """A model of billions of parameters: our whole process against one forward pass that begins when the model is open."""

    def sides(p):
        directory = str(p.directory / shape)
        theirs = {"checkpoint": directory, "attention": "sdpa", "reps": 1}
        return {
            "ours": p.report(shape, *tokens(LENGTH)),
            "f32": p.torch("model", **theirs),
            "bf16": p.torch("model", dtype="bfloat16", **theirs),
        }

    return sides


def llama_sides(kind):
    def sides(p):
        gguf = str(p.directory / f"gpt2-{kind}.gguf")
        p.made(f"gpt2-{kind}.gguf", "gguf", gguf=gguf, kind=kind)
        ours = str(p.directory / "f32") if kind == "f32" else gguf
        return {"ours": p.bench("model", ours, "--length", LENGTH, "--reps", 3), "llama": p.torch("llama", gguf=gguf, kind=kind, reps=3)}

    return sides


def onnx_sides(p):
    onnx = str(p.directory / "gpt2.onnx")
    p.made("gpt2.onnx", "to_onnx", onnx=onnx)
    ours = p.bench("model", str(p.directory / "f32"), "--length", LENGTH, "--reps", 3)
    return {"ours": ours, "onnx": p.torch("onnx", onnx=onnx, reps=3)}


def memory_sides(p):
    return {"ours": p.bench("layer", "--heads=12", "--d-head=64", f"--length={LENGTH}", "--reps", 3)}


MS, WALL, CPU = ("median_ms", "ms", 1), ("wall_s", "s", 1), ("cpu_s", "s of CPU", 1)
PEAK, HEAP = ("peak_mb", "MB", 1), ("peak_bytes", "MB", 1e-6)
# Seconds of our whole process against milliseconds of their forward pass.
WALL_AND_MS = (WALL, ("median_ms", "s", 1e-3))
# What takes the place of a time with `--cpu`; both sides' CPU time has the unit of their time.
OF_CPU = {"median_ms": "cpu_ms", "wall_s": "cpu_s"}

# Group: its sides, and rows of (work, against, their side, what is compared, at most or None where nothing is promised).
GROUPS = {
    "layer": (layer_group(12, 12, 64, 1024, 7), [
        ("one layer, 12 heads, d 64, L 1024, causal, all statistics", "torch eager + the same statistics", "eager", MS, 0.08),
        ("the same", "torch sdpa alone, no statistics", "sdpa", MS, 1.0),
    ]),
    "grouped": (layer_group(8, 2, 128, 4096, 3), [
        ("8 heads (2 kv), d 128, L 4096", "torch eager + the same statistics", "eager", MS, 0.12),
        ("the same", "torch sdpa alone, no statistics", "sdpa", MS, 1.1),
    ]),
    "model": (model_sides, [
        ("GPT-2-small shape, L 1024, all statistics and loss", "HF eager, output_attentions + statistics of probabilities", "eager", MS, 0.55),
        ("the same", "HF sdpa, no statistics", "sdpa", MS, 1.05),
    ]),
    "bf16": (bf16_sides, [
        ("the same from a bf16 checkpoint (AMX machine)", "HF sdpa f32, no statistics", "sdpa", MS, 0.8),
    ]),
    "process": (process_sides, [
        ("whole process: `report`, GPT-2-small shape, L 1024", "the same statistics in a Python process", "stats", WALL, 0.25),
        ("the same, peak memory", "the same statistics in a Python process", "stats", PEAK, 0.35),
    ]),
    "memory": (memory_sides, [
        ("extra memory of one layer's analysis, 12 heads, L 1024", None, None, HEAP, 25),
    ]),
    "brief": (brief_sides, [
        ("whole process: `report` of 16 tokens, GPT-2-small shape, f32", "reading the weights once, each number touched", "read", CPU, 2.0),
    ]),
    "prompts": (prompts_sides, [
        ("whole process: `report --inputs`, 64 prompts of 16–256 tokens, GPT-2-small shape", "HF eager, padded batches of 8 + statistics of probabilities", "padded", WALL, 0.55),
    ]),
    "0.6B": (large_sides("0.6B"), [
        ("whole process: `report`, 0.6B in bf16, L 1024", "HF sdpa f32, forward pass alone", "f32", WALL_AND_MS, 0.8),
        ("the same", "HF sdpa bf16, forward pass alone", "bf16", WALL_AND_MS, None),
    ]),
    "1.7B": (large_sides("1.7B"), [
        ("whole process: `report`, 1.7B in bf16, L 1024", "HF sdpa f32, forward pass alone", "f32", WALL_AND_MS, 0.8),
        ("the same", "HF sdpa bf16, forward pass alone", "bf16", WALL_AND_MS, None),
        ("the same, peak memory", None, None, PEAK, 1610),
    ]),
    "llama": (llama_sides("f32"), [
        ("GPT-2-small shape, L 1024, all statistics and loss", "llama.cpp f32, logits of every position, no statistics", "llama", MS, None),
    ]),
    "q8_0": (llama_sides("q8_0"), [
        ("the same from a q8_0 GGUF file", "llama.cpp q8_0, logits of every position, no statistics", "llama", MS, None),
    ]),
    "onnx": (onnx_sides, [
        ("GPT-2-small shape, L 1024, all statistics and loss", "ONNX Runtime f32, no statistics", "onnx", MS, None),
    ]),
}  # fmt: skip

# Peers that groups need, and checkpoints that they read; the others measure a layer alone.
PEERS = {"llama": "llama", "q8_0": "llama", "onnx": "onnx"}
CHECKPOINTS = {
    **dict.fromkeys(["model", "bf16", "process", "brief", "prompts", "llama", "q8_0", "onnx"], "gpt2"), "0.6B": "0.6B", "1.7B": "1.7B",
}  # fmt: skip


def can_run(group):
    """Whether the peer of a group is installed."""
    if group not in PEERS:
        return True
    modules, packages = peers.NEEDS[PEERS[group]]
    missing = [name for name in modules if not importlib.util.find_spec(name)]
    if missing:
        print(f"against_torch: {group} left out: {missing[0]} is not installed (pip install {packages})", file=sys.stderr)
    return not missing


def make(programs, shape):
    """Makes a checkpoint that is not there yet."""
    names = ("f32", "bf16") if shape == "gpt2" else (shape,)
    places = {"f32": programs.directory / "f32", "bf16": programs.directory / names[-1]}
    if not all((programs.directory / name / "config.json").exists() for name in names):
        programs.torch("make", shape=shape, **{dtype: str(place) for dtype, place in places.items()})()


def rounds_of(sides, n_rounds, group):
    """What every side measured in every round; every other round begins from the other end."""
    rounds = []
    for i in range(n_rounds):
        order = list(sides) if i % 2 == 0 else list(reversed(sides))
        print(f"{group}: round {i + 1} of {n_rounds}", file=sys.stderr)
        rounds.append({name: sides[name]() for name in order})
    return rounds


def has_amx():
    try:
        return "amx_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def row(work, against, side, compared, most, rounds, by_cpu):
    both = compared if isinstance(compared[0], tuple) else (compared, compared)
    of_ours, of_theirs = ((OF_CPU.get(one[0], one[0]) if by_cpu else one[0], *one[1:]) for one in both)

    def middle(name, of):
        return statistics.median(r[name][of[0]] for r in rounds) * of[2]

    def shown(name, of):
        value = middle(name, of)
        return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {of[1]}"

    if side is None:
        holds = "yes" if middle("ours", of_ours) <= most else "**no**"
        return [work, "–", shown("ours", of_ours), "–", "–", f"{most} {of_ours[1]}", holds]
    factor = of_ours[2] / of_theirs[2]
    ratio = statistics.median(factor * r["ours"][of_ours[0]] / r[side][of_theirs[0]] for r in rounds)
    given = [work, against, shown("ours", of_ours), shown(side, of_theirs), f"{ratio:.3f}"]
    if most is None:
        return [*given, "–", "–"]
    holds = "yes" if ratio <= most else "**no**"
    if "AMX" in work and not has_amx():
        holds = "needs AMX"
    return [*given, f"{most:g}", holds]


def check_losses(group, rounds):
    """A side that computes something else is no opponent."""
    losses = {name: told["loss"] for name, told in rounds[0].items() if "loss" in told}
    if losses and max(losses.values()) - min(losses.values()) > 1e-3:
        print(f"against_torch: {group}: the sides' losses differ: {losses}", file=sys.stderr)


def run(args):
    chosen = list(GROUPS) if args.only is None else args.only.split(",")
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        sys.exit(f"against_torch: --rows {unknown[0]}: expected some of {', '.join(GROUPS)}")
    chosen = [group for group in chosen if can_run(group)]
    with tempfile.TemporaryDirectory() as spare:
        directory = Path(args.checkpoint or spare).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        programs = Programs(args.threads, directory)
        table = [["work", "against", "ours", "theirs", "ratio", "at most", "holds?"], ["---"] * 7]
        for group in chosen:
            sides, rows = GROUPS[group]
            if group in CHECKPOINTS:
                make(programs, CHECKPOINTS[group])
            rounds = rounds_of(sides(programs), args.rounds, group)
            check_losses(group, rounds)
            table += [row(*of_row, rounds, args.cpu) for of_row in rows]
    for cells in table:
        print(f"| {' | '.join(cells)} |")
    times = "CPU time of all threads" if args.cpu else "times"
    print(f"\n{args.rounds} rounds, {args.threads} threads, {times}; ratios are medians over rounds of ours / theirs in that round.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", "--only", dest="only", metavar="GROUP,GROUP", help=f"some of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both sides; all cores unless given")
    parser.add_argument("--cpu", action="store_true", help="compare CPU time, which other programs disturb less than time")
    parser.add_argument("--checkpoint", metavar="DIR", help="keep the random checkpoints here (up to 7 GB)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--how", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        print("against_torch: needs torch and transformers: pip install torch transformers", file=sys.stderr)
        sys.exit(2)
    if args.side:
        be_a_side(args.side, args.how)
    else:
        run(args)


if __name__ == "__main__":
    main()
