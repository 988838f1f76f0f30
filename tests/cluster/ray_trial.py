"""Tries a batch on a Ray cluster of two nodes on one machine: python ray_trial.py ATTNSCOPE

Needs the ray package. While the units run, a program is killed, then a worker of Ray, then a whole node is removed. The merged table
must be that of one process, byte for byte, with shared storage and with results that are sent back.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkpoints
import ray
from ray.cluster_utils import Cluster

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "src" / "python"


def processes(word):
    """The processes whose command begins with a word."""
    found = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout.splitlines()[1:]
    return [int(line.split()[0]) for line in found if line.split(None, 1)[1].startswith(word)]


def kill(word):
    """Kills the first process of a kind, as soon as there is one."""
    while True:
        for pid in processes(word):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
            return
        time.sleep(0.01)


def units(batch):
    return len(list((batch / "parts").glob("*.json")))


def trial(program, at, name, more, disturb):
    batch = at / name
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    words = [sys.executable, "-m", "attnscope.ray", "--checkpoints", str(at / "steps"), "--inputs", str(at / "prompts.jsonl")]
    words += ["--output", str(batch), "--chunk", "10", "--address", cluster.address, "--program", program, *more]
    begun = time.time()
    driver = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    if disturb:
        wait_for(batch, 5, driver)
        kill(f"{program} batch")
        print(f"{name}: killed a program after {units(batch)} units", flush=True)
        wait_for(batch, 12, driver)
        kill("ray::run_units")
        print(f"{name}: killed a worker of Ray after {units(batch)} units", flush=True)
        wait_for(batch, 20, driver)
        cluster.remove_node(second, allow_graceful=False)
        print(f"{name}: removed a node after {units(batch)} units", flush=True)
    code = driver.wait()
    print(f"{name}: exit code {code}, {units(batch)} units, {time.time() - begun:.0f} s", flush=True)
    cluster.shutdown()
    subprocess.run([program, "merge", str(batch), "--output", str(at / f"{name}.parquet"), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    assert code == 0
    again = subprocess.run([program, "batch", str(at / "steps"), "--inputs", str(at / "prompts.jsonl"), "--output", str(batch), "--chunk", "10"], capture_output=True, text=True)
    print(f"{name}: another run says:", again.stdout.strip().splitlines()[-1], flush=True)
    return (at / f"{name}.parquet").read_bytes()


def wait_for(batch, n, driver):
    while units(batch) < n:
        assert driver.poll() is None, "the driver ended before it was disturbed"
        time.sleep(0.02)


def main(program):
    print("ray", ray.__version__, flush=True)
    at = Path(tempfile.mkdtemp(prefix="attnscope-ray-"))
    checkpoints.make(at, 12, 60)
    one = [program, "batch", str(at / "steps"), "--inputs", str(at / "prompts.jsonl"), "--output", str(at / "one"), "--chunk", "10", "--quiet"]
    subprocess.run(one, check=True)
    subprocess.run([program, "merge", str(at / "one"), "--output", str(at / "one.parquet")], check=True, stdout=subprocess.DEVNULL)
    expected = (at / "one.parquet").read_bytes()
    assert trial(program, at, "shared", [], True) == expected
    assert trial(program, at, "sent_back", ["--send-back"], True) == expected
    print("both merged tables are that of one process, byte for byte")


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
