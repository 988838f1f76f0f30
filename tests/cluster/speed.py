"""Compares a batch of short prompts with transformers' padded batch: python speed.py ATTNSCOPE [N_PROMPTS REPEATS]

Needs torch and transformers. Both run a random GPT-2 small on prompts of 16 to 256 tokens, on the same number of threads, and make
statistics of every attention row: transformers' eager attention on one padded batch, attnscope batch on one unit. Each is timed
several times by turns, and the least counts. For attnscope that is the whole program: start, reading, digests, files.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

THREADS = len(os.sched_getaffinity(0))


def statistics(attentions, mask):
    """Entropy, largest probability and mass on the first key of every row that is not padding."""
    kept = []
    for pattern in attentions:  # [prompt, head, query, key]
        entropy = -(pattern * pattern.clamp_min(1e-30).log()).sum(-1)
        rows = mask[:, None, :].expand_as(entropy)
        kept.append([(values * rows).sum(-1) / rows.sum(-1) for values in (entropy, pattern.amax(-1), pattern[..., 0])])
    return kept


def main(program, n_prompts=64, repeats=3):
    torch.set_num_threads(THREADS)
    at = Path(tempfile.mkdtemp(prefix="attnscope-speed-"))
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).eval()
    model.save_pretrained(at / "model")
    numbers = random.Random(0)
    prompts = [[numbers.randrange(50257) for _ in range(numbers.randint(16, 256))] for _ in range(n_prompts)]
    (at / "prompts.jsonl").write_text("".join(json.dumps({"tokens": tokens}) + "\n" for tokens in prompts))
    longest = max(map(len, prompts))
    ids = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in prompts])
    mask = torch.tensor([[1] * len(tokens) + [0] * (longest - len(tokens)) for tokens in prompts])
    n_tokens = sum(map(len, prompts))
    print(f"{n_prompts} prompts, {n_tokens} tokens, {n_prompts * longest} with padding; {THREADS} threads; torch {torch.__version__}")
    of_torch, of_program = [], []
    for turn in range(repeats):
        begun = time.perf_counter()
        with torch.inference_mode():
            ran = model.transformer(ids, attention_mask=mask, output_attentions=True)
            statistics(ran.attentions, mask)
            for hidden, tokens in zip(ran.last_hidden_state, prompts):  # the loss, without a batch of all logits
                torch.nn.functional.cross_entropy(model.lm_head(hidden[: len(tokens) - 1]), torch.tensor(tokens[1:]))
        of_torch.append(time.perf_counter() - begun)
        del ran
        words = [program, "batch", str(at / "model"), "--inputs", str(at / "prompts.jsonl"), "--threads", str(THREADS)]
        begun = time.perf_counter()
        subprocess.run([*words, "--output", str(at / f"batch{turn}"), "--quiet"], check=True)
        of_program.append(time.perf_counter() - begun)
        print(f"transformers {of_torch[-1]:.2f} s, attnscope {of_program[-1]:.2f} s", flush=True)
    print(f"least: transformers {min(of_torch):.2f} s, attnscope {min(of_program):.2f} s: {min(of_program) / min(of_torch):.2f}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
