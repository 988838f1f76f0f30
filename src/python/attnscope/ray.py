"""Runs the units of a batch as tasks of a Ray cluster: python -m attnscope.ray --checkpoints DIR --inputs FILE --output DIR

The driver asks `attnscope batch --plan` what there is to do. A task is one unit, or with `--layout packed` several units of one
checkpoint; it runs `attnscope batch --only-chunks` on some node, with the resources that it asked for. A task whose worker or node goes
away is run again by Ray; a unit that is there already is not. `attnscope merge` makes one table of the units; with `--table` that runs
as tasks too.

Needs the `ray` package here, and the `attnscope` program on every node.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ._program import find_program

PARTS = ("parts", "weights")
ENDINGS = (".json", ".parquet", ".units")
# Units of a task where the layout packs them into one file.
PACKED = 64


class Killed(RuntimeError):
    """The program was ended by a signal: another try may succeed."""


def arguments(words=None):
    parser = argparse.ArgumentParser(
        prog="python -m attnscope.ray",
        description="Run the units of a batch as tasks of a Ray cluster.",
        epilog="Flags after -- go to attnscope batch: -- --what-if scale=none --unit-timeout 600",
    )
    parser.add_argument("--checkpoints", nargs="+", required=True, metavar="TARGET", help="as the targets of attnscope batch")
    parser.add_argument("--inputs", required=True, metavar="FILE.jsonl", help="set of prompts")
    parser.add_argument("--output", required=True, metavar="DIR", help="directory of the batch")
    parser.add_argument("--address", help="cluster to use: auto, or its address [default: one that is started here]")
    parser.add_argument("--chunk", type=int, default=64, metavar="PROMPTS", help="prompts of a unit [default: 64]")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs of a task, and threads of its program [default: 1]")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of a task; with any the program computes on cuda [default: 0]")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="memory of a task")
    parser.add_argument("--retries", type=int, default=5, help="how often a unit is tried again after its worker is gone [default: 5]")
    parser.add_argument("--layout", choices=("files", "directories", "packed"), help="as of attnscope batch: how units are written")
    parser.add_argument("--units-per-task", type=int, metavar="N", help=f"units of one checkpoint that a task does [default: 1; {PACKED} with --layout packed]")
    parser.add_argument("--table", metavar="FILE", help="merge the units into this file at the end")
    parser.add_argument("--merge-shards", type=int, default=1, metavar="N", help="merge as so many tasks, and join their tables [default: 1, on the driver]")
    parser.add_argument("--send-back", action="store_true", help="nodes share no storage: results go to the driver, which writes them")
    parser.add_argument("--retry-failed", action="store_true", help="run units again that failed before")
    parser.add_argument("--program", help="the attnscope program, where it is not on the path of the nodes")
    parser.add_argument("more", nargs="*", metavar="FLAG", help="further flags of attnscope batch, after --")
    return parser.parse_args(words)


def program_of(given):
    """The program that was installed with this module, or else the one on the path."""
    try:
        return given or find_program()
    except FileNotFoundError as error:
        raise SystemExit(f"attnscope.ray: {error}; or name it with --program") from None


def common(args):
    """Flags that the plan and every unit have in common: they are part of the units' ids."""
    flags = ["--chunk", str(args.chunk)]
    if args.gpus > 0 and "--device" not in args.more:
        flags += ["--device", "cuda"]
    return flags + args.more


def plan(args, program):
    """What there is to do: targets, chunks, and which of the units are missing."""
    flags = ["--retry-failed"] if args.retry_failed else []
    flags += ["--layout", args.layout] if args.layout else []
    words = [program, "batch", *args.checkpoints, "--inputs", args.inputs, "--output", args.output, "--plan"]
    ran = subprocess.run([*words, *flags, *common(args)], stdout=subprocess.PIPE)
    if ran.returncode:
        raise SystemExit(ran.returncode)
    return json.loads(ran.stdout)


def dies_with_parent():
    """Lets the program end with the worker that started it, where the system can."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)
    except (AttributeError, OSError):
        pass


def run(words, name):
    """Runs the program on a node. Gives the exit code, what it printed, and the last line that was said."""
    # What started the node is no share of this batch.
    mine = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_ARRAY_") and k != "JOB_COMPLETION_INDEX"}
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=mine, preexec_fn=dies_with_parent)
    said = ran.stderr.decode(errors="replace").strip().splitlines()
    if ran.returncode < 0 or ran.returncode == 143:
        raise Killed(f"{name}: ended by signal {-ran.returncode}")
    errors = [line for line in said if line.startswith("attnscope: ")]
    return ran.returncode, ran.stdout.decode(errors="replace"), (errors or said or [""])[-1]


def run_units(program, target, chunks, inputs, output, flags):
    """Runs units of one checkpoint on a node.

    Gives how many of them are not done, the last line that was said, and the files where there is no shared output.
    """
    with tempfile.TemporaryDirectory(prefix="attnscope-") as scratch:
        to = output or os.path.join(scratch, "batch")
        if isinstance(inputs, bytes):
            path = os.path.join(scratch, "prompts.jsonl")
            Path(path).write_bytes(inputs)
            inputs = path
        only = ",".join(map(str, chunks))
        words = [program, "batch", target, "--inputs", inputs, "--output", to, "--only-chunks", only, *flags]
        code, printed, said = run(words, place(target, chunks))
        files = {}
        if output is None:
            for path in (path for part in PARTS for path in Path(to, part).rglob("*") if path.suffix in ENDINGS):
                files[str(path.relative_to(to))] = path.read_bytes()
        return (n_not_done(printed, len(chunks)) if code else 0), said, files


def run_merge(program, output, shard):
    """Merges a share of the checkpoints on a node. Gives the exit code and the last line that was said."""
    code, _, said = run([program, "merge", output, "--shard", shard, "--quiet"], f"merge {shard}")
    return code, said


def place(target, chunks):
    """Names the units of a task."""
    return f"{target}, chunk {chunks[0]}" if len(chunks) == 1 else f"{target}, chunks {chunks[0]} to {chunks[-1]}"


def n_not_done(printed, n):
    """How many of n units are not done, as the program's last line says; all of them where it does not say."""
    found = re.search(r"(\d+) units? done, (\d+) already there", printed)
    return n - sum(map(int, found.groups())) if found else n


def tasks_of(missing, n_units):
    """Puts missing units of one target together, so many at a time: target and chunks of each task."""
    tasks = []
    for target, chunk in missing:
        if tasks and tasks[-1][0] == target and len(tasks[-1][1]) < n_units:
            tasks[-1][1].append(chunk)
        else:
            tasks.append((target, [chunk]))
    return tasks


def write(directory, files):
    """Writes what a node sent back: rows before their record, each file whole or not at all."""
    for name in sorted(files, key=lambda name: (not name.endswith(".parquet"), name)):
        path = Path(directory, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tmp", delete=False) as file:
            file.write(files[name])
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)


class Bar:
    """How many units have ended: one line on a terminal, once the work has taken a second, and nothing elsewhere."""

    def __init__(self, n):
        self.n, self.n_done, self.n_failed = n, 0, 0
        self.begun = self.shown = time.monotonic()
        self.is_drawn = False

    def ended(self, is_done, n=1):
        self.n_done += n * is_done
        self.n_failed += n * (not is_done)
        n = self.n_done + self.n_failed
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self.begun < 1.0 or n < self.n and now - self.shown < 0.1:
            return
        self.shown, self.is_drawn = now, True
        width = 30 * n // max(self.n, 1)
        failed = f", {self.n_failed} failed" if self.n_failed else ""
        self.put(f"[{'#' * width:30}] {n} of {counted(self.n, 'unit')}{failed}, {now - self.begun:.0f} s")

    def clear(self):
        """Takes the line away, so that something else can be said."""
        if self.is_drawn:
            self.put("")
            self.is_drawn = False

    def put(self, line):
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def counted(n, one):
    """So many of something: 1 unit, 2 units."""
    return f"{n} {one}" if n == 1 else f"{n} {one}s"


def merge(args, program, ray):
    """Merges the units into one table, as tasks where there are several shares. Gives the exit code of the program."""
    words = [program, "merge", args.output, "--output", args.table, "--force"]
    # Only the driver has what was sent back.
    if args.merge_shards > 1 and not args.send_back:
        resources = {"num_cpus": args.cpus, "max_retries": args.retries, "retry_exceptions": [Killed]}
        task = ray.remote(**resources)(run_merge)
        shards = [f"{idx}/{args.merge_shards}" for idx in range(args.merge_shards)]
        for code, said in ray.get([task.remote(program, os.path.abspath(args.output), shard) for shard in shards]):
            if code:
                print(said, file=sys.stderr)
                return code
        words += ["--join", str(args.merge_shards)]
    return subprocess.run(words).returncode


def main(words=None):
    args = arguments(words)
    program = program_of(args.program)
    try:
        import ray
    except ImportError:
        raise SystemExit("attnscope.ray: the ray package is missing: pip install ray") from None
    planned = plan(args, program)
    missing = planned["missing"]
    if not missing and not args.table:
        print("nothing to do: every unit is there")
        return 0
    ray.init(address=args.address, logging_level="warning", log_to_driver=False)
    resources = {"num_cpus": args.cpus, "num_gpus": args.gpus}
    if args.memory:
        resources["memory"] = args.memory
    task = ray.remote(max_retries=args.retries, retry_exceptions=[Killed], **resources)(run_units)
    flags = [*common(args), "--layout", planned["layout"], "--threads", str(max(1, int(args.cpus))), "--quiet"]
    if args.retry_failed:
        flags.append("--retry-failed")
    inputs = ray.put(Path(args.inputs).read_bytes()) if args.send_back else os.path.abspath(args.inputs)
    output = None if args.send_back else os.path.abspath(args.output)
    targets = [target["target"] for target in planned["targets"]]
    n_units = args.units_per_task or (PACKED if planned["layout"] == "packed" else 1)
    waiting = {}
    for target, chunks in tasks_of(missing, n_units):
        waiting[task.remote(program, targets[target], chunks, inputs, output, flags)] = (target, chunks)
    bar = Bar(len(missing))
    while waiting:
        ready, _ = ray.wait(list(waiting), num_returns=1)
        for reference in ready:
            target, chunks = waiting.pop(reference)
            try:
                n_failed, said, files = ray.get(reference)
            except (Killed, ray.exceptions.RayError) as error:
                line = str(error).strip().splitlines()[-1]
                n_failed, said, files = len(chunks), f"attnscope: {place(targets[target], chunks)}: {line}", {}
            write(args.output, files)
            if n_failed:
                bar.clear()
                print(said, file=sys.stderr)
            bar.ended(True, len(chunks) - n_failed)
            bar.ended(False, n_failed)
    bar.clear()
    ended = f"{counted(bar.n_done, 'unit')} done, {bar.n_failed} failed"
    print(ended if args.table else f"{ended}; attnscope merge {args.output} makes one table")
    code = merge(args, program, ray) if args.table else 0
    ray.shutdown()
    return 2 if bar.n_failed else code


if __name__ == "__main__":
    sys.exit(main())
