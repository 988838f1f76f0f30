"""Compares N shards on this machine with one process on as many threads: python efficiency.py ATTNSCOPE [SHARDS CHECKPOINTS PROMPTS ROUNDS]

Needs nothing but Python; the machine should be quiet. The shards run at the same time with one thread each, the process alone with
SHARDS threads. Rounds take turns, so that whatever else the machine does meets both. Wall time is that until the last shard has ended,
processor time the sum over all processes; of each the median counts. The exit code is 1 where the shards take more than 1.1 times as
long, or where the two merged tables differ.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST = 1.1


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def timed(program, at, out, n_processes, n_threads):
    """Wall and processor seconds of a batch that several processes share."""
    shutil.rmtree(out, ignore_errors=True)
    command = [program, "batch", at / "steps", "--inputs", at / "prompts.jsonl", "--output", out, "--quiet", "--threads", str(n_threads)]
    before, begun = processor_time(), time.perf_counter()
    workers = [subprocess.Popen([*command, "--shard", f"{idx}/{n_processes}"]) for idx in range(n_processes)]
    codes = [worker.wait() for worker in workers]
    assert not any(codes), codes
    return time.perf_counter() - begun, processor_time() - before


def main(program, n_shards=2, n_checkpoints=40, n_prompts=200, n_rounds=5):
    at = Path(tempfile.mkdtemp(prefix="attnscope-efficiency-"))
    here = Path(__file__).resolve().parent
    subprocess.run([sys.executable, here / "checkpoints.py", at, str(n_checkpoints), str(n_prompts)], check=True)
    alone, shared = [], []
    for nth in range(n_rounds):
        order = [(alone, "one", 1, n_shards), (shared, "shards", n_shards, 1)]
        for times, name, n_processes, n_threads in order if nth % 2 == 0 else reversed(order):
            times.append(timed(program, at, at / name, n_processes, n_threads))
    for name in ("one", "shards"):
        subprocess.run([program, "merge", at / name, "--output", at / f"{name}.parquet", "--quiet"], check=False)
    is_same = (at / "one.parquet").read_bytes() == (at / "shards.parquet").read_bytes()
    median = lambda times, which: statistics.median(one[which] for one in times)
    print(f"{n_checkpoints} checkpoints x {n_prompts} prompts, {n_rounds} rounds, {len(os.sched_getaffinity(0))} cores")
    worst = 0.0
    for which, what in enumerate(("wall", "processor")):
        one, many = median(alone, which), median(shared, which)
        worst = max(worst, many / one)
        print(f"{what}: one process on {n_shards} threads {one:.2f} s, {n_shards} shards on one thread each {many:.2f} s, ratio {many / one:.3f}")
    print("the merged tables are equal" if is_same else "THE MERGED TABLES DIFFER")
    shutil.rmtree(at)
    return int(worst > MOST or not is_same)


if __name__ == "__main__":
    sys.exit(main(os.path.realpath(sys.argv[1]), *map(int, sys.argv[2:])))
