"""What the monitor costs: steps of a GPT-2 of 124M parameters with and without it, in interleaved blocks.

    python benches/monitor_overhead.py [--every 50] [--rows 64] [--batch 2] [--length 256] [--blocks 8] [--cpu-time --threads 1]
    python benches/monitor_overhead.py --unseen --layers 4 --width 128 [--steps 500]

A plain step is timed often; a recorded step is timed against plain steps right before and after it, so that a machine that
grows slower in between harms neither. The overhead at `every` is the median of what a recorded step takes longer, divided by
the time of `every` plain steps. Needs torch; the model is written here, with scaled_dot_product_attention.

`--unseen` makes the attention one that the monitor cannot see, a linear one. It tells what looking in vain costs a step, how many of
`steps` steps the monitor looks at, and the overhead that follows.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "python"))

import torch
from torch import nn

from attnscope import Monitor


def linear_attention(q, k, v, is_causal):
    """Attention without a matrix of queries by keys: the state of a recurrence, summed along the sequence."""
    q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
    state, total = (k.unsqueeze(-1) * v.unsqueeze(-2)).cumsum(2), k.cumsum(2)
    return (q.unsqueeze(-1) * state).sum(-2) / (q * total).sum(-1, keepdim=True)


class Block(nn.Module):
    def __init__(self, width, n_heads, attention):
        super().__init__()
        self.n_heads, self.attention = n_heads, attention
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.n_heads, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        z = self.attention(q, k, v, is_causal=True)
        x = x + self.out(z.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, n_layers=12, width=768, attention=nn.functional.scaled_dot_product_attention, vocabulary=50257, length=1024):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, width // 64, attention) for _ in range(n_layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embed.weight.T


def looks_in_vain(given, directory):
    """How many of so many steps the monitor looks at: of a model of two positions, since nothing is timed."""
    from attnscope.watch import Watch

    model, n_looked = Model(1, 64, linear_attention, 8, 2), 0
    begin = Watch.begin

    def counted(watch):
        nonlocal n_looked
        n_looked += 1
        begin(watch)

    Watch.begin = counted
    try:
        with Monitor(model, os.path.join(directory, "unseen.jsonl"), every=given.every, rows=given.rows) as monitor:
            for number in range(given.steps):
                model(torch.zeros(1, 2, dtype=torch.long)).sum().backward()
                monitor.step(number)
    finally:
        Watch.begin = begin
    return n_looked


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("every", 50), ("rows", 64), ("batch", 2), ("length", 256), ("blocks", 8), ("layers", 12), ("width", 768),
                        ("steps", 500)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cpu-time", action="store_true", help="count the time of processors, where others use them too")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--unseen", action="store_true", help="attention that the monitor cannot see")
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    if given.threads:
        torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    attention = linear_attention if given.unseen else nn.functional.scaled_dot_product_attention
    model = Model(given.layers, given.width, attention, length=given.length).to(given.device)
    run = torch.compile(model) if given.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 50257, (given.batch, given.length + 1), device=given.device)
    n_parameters = sum(p.numel() for p in model.parameters())
    directory = tempfile.mkdtemp()
    n_looked = looks_in_vain(given, directory) if given.unseen else None
    # every=1 here: each step with the monitor is a recorded one, and the plain ones have none
    monitor = Monitor(run, os.path.join(directory, "run.jsonl"), every=1, rows=given.rows)
    monitor.entry.disarm()

    def step(watched, number):
        if watched:
            monitor.arm()
        if given.device == "cuda":
            torch.cuda.synchronize()
        begin = clock()
        loss = nn.functional.cross_entropy(run(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if watched:
            monitor.step(number, loss=loss)
        if given.device == "cuda":
            torch.cuda.synchronize()
        spent = clock() - begin
        monitor.entry.disarm()
        return spent

    for number in range(3):
        step(number > 0, number)
    plain, extra = [], []
    for number in range(given.blocks):
        before, watched, after = step(False, 0), step(True, number + 10), step(False, 0)
        plain += [before, after]
        extra.append(watched - (before + after) / 2)
        print(f"plain {before:.3f} s, recorded {watched:.3f} s, plain {after:.3f} s", flush=True)
    # between recorded steps: one comparison
    monitor._last, monitor._until = 0, 1 << 60
    begin = clock()
    for number in range(1, 100_001):
        monitor.step(number)
    idle = (clock() - begin) / 100_000
    usual, cost = statistics.median(plain), statistics.median(extra)
    what = (f"{n_parameters / 1e6:.0f}M parameters, batch {given.batch} x {given.length}, {torch.get_num_threads()} threads, "
            f"{given.device}{', compiled' if given.compile else ''}, {'processor' if given.cpu_time else 'wall'} time, "
            f"torch {torch.__version__}")
    if given.unseen:
        print(f"{what}\na step {usual:.3f} s; one that is looked at in vain {cost * 1e3:.0f} ms longer ({cost / usual:.1%}); "
              f"{n_looked} of {given.steps} steps are, at every={given.every}: {cost * n_looked / (usual * given.steps):.3%}")
        return
    size = os.path.getsize(os.path.join(directory, "run.jsonl")) / (given.blocks + 2)
    share = (cost + given.every * idle) / (given.every * usual)
    print(what)
    print(f"a step {usual:.3f} s; a recorded one {cost * 1e3:.0f} ms longer ({cost / usual:.1%}); "
          f"a step between {idle * 1e9:.0f} ns; {size / 1e3:.1f} kB a record")
    print(f"overhead at every={given.every}, rows={given.rows}: {share:.3%}")


if __name__ == "__main__":
    main()
