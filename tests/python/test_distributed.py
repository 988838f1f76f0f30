"""Several processes: rank 0 writes, and heads of tensor-parallel processes are brought together."""

import os
import socket
import sys
import time
import unittest
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from support import Case, Model, batch, loss_of
import torch
from torch import distributed, nn

from attnscope import Monitor

N_STEPS = 4


def grads(model):
    return [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad.clone()
            for p in model.parameters() if p.grad is not None]


def steps(model, monitor, rank=0):
    """Gradients of all steps; each process has sequences of its own."""
    left = []
    for step in range(N_STEPS):
        torch.manual_seed(step)
        loss = loss_of(model, (batch(4, 12) + rank) % 50)
        loss.backward()
        left += grads(model)
        model.zero_grad()
        if monitor is not None:
            monitor.step(step, loss=loss)
    return left


def compared(make, rank, path):
    torch.manual_seed(3)
    plain = steps(make(), None, rank)
    torch.manual_seed(3)
    model = make()
    with Monitor(model, path, every=2, rows=8) as monitor:
        watched = steps(model, monitor, rank)
        assert monitor.error is None, monitor.error
    assert len(plain) == len(watched) and all(torch.equal(a, b) for a, b in zip(plain, watched))


def data_parallel(rank, path):
    from torch.nn.parallel import DistributedDataParallel

    compared(lambda: DistributedDataParallel(Model()), rank, path)


def data_parallel_compiled(rank, path):
    from torch.nn.parallel import DistributedDataParallel

    compared(lambda: torch.compile(DistributedDataParallel(Model()), backend="aot_eager"), rank, path)


def fully_sharded(rank, path):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))

    def make():
        model = Model()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    compared(make, rank, path)


def fully_sharded_compiled(rank, path):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))

    def make():
        model = Model()
        for block in model.blocks:
            block.compile(backend="aot_eager")
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    compared(make, rank, path)


class Part(nn.Module):
    """Some of the heads of an attention."""

    def __init__(self, whole, rank):
        super().__init__()
        weight, bias = whole.qkv.weight.detach(), whole.qkv.bias.detach()
        width = weight.shape[1]
        kept = torch.cat([torch.arange(width // 2) + rank * width // 2 + i * width for i in range(3)])
        self.qkv = nn.Linear(width, 3 * width // 2)
        self.qkv.weight.data, self.qkv.bias.data = weight[kept].clone(), bias[kept].clone()
        self.out, self.rank = whole.out, rank

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 2, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=2))
        z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c // 2)
        weight = self.out.weight[:, self.rank * c // 2:(self.rank + 1) * c // 2]
        part = z @ weight.T
        summed = part.detach().clone()
        distributed.all_reduce(summed)
        return part + (summed - part.detach()) + self.out.bias


def tensor_parallel(rank, path):
    torch.manual_seed(3)
    model = Model()
    for block in model.blocks:
        block.attn = Part(block.attn, rank)
    with Monitor(model, path, every=2, rows=0, tensor_parallel_group=distributed.group.WORLD) as monitor:
        steps(model, monitor)
        assert monitor.error is None, monitor.error


def tensor_parallel_dtensor(rank, path):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Apart(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))

        def forward(self, x):
            q, k, v = (f(x).unflatten(-1, (-1, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
            z = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(z.transpose(1, 2).flatten(2))

    torch.manual_seed(3)
    model = Model()
    for block in model.blocks:
        block.attn = Apart()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for block in model.blocks:
        parallelize_module(block.attn, mesh, {"q": ColwiseParallel(), "k": ColwiseParallel(), "v": ColwiseParallel(),
                                              "o": RowwiseParallel()})
    with Monitor(model, path, every=2, rows=8) as monitor:
        steps(model, monitor)
        assert monitor.error is None, monitor.error


def one_fails(rank, path):
    """What goes wrong in one process turns the monitor off in all, and none waits for another."""
    model = Model()
    monitor = Monitor(model, path, every=1, rows=8, tensor_parallel_group=distributed.group.WORLD)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for step in range(N_STEPS):
            if step == 2 and rank == 1:
                monitor.sampler = None
            loss_of(model, batch()).backward()
            monitor.step(step)
    assert monitor.is_off
    assert len([w for w in told if "attnscope" in str(w.message)]) == 1


def process(rank, what, port, path):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        globals()[what](rank, path if rank == 0 else path + ".other")
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


@unittest.skipUnless(distributed.is_available() and distributed.is_gloo_available(), "this torch has no gloo")
class Distributed(Case):
    def spawn(self, what):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
        running = torch.multiprocessing.spawn(process, (what, port, self.path), nprocs=2, join=False)
        deadline = time.monotonic() + 120
        try:
            while not running.join(timeout=1):
                self.assertLess(time.monotonic(), deadline, "the processes wait for each other")
        finally:
            for child in running.processes:
                child.kill()
        self.assertFalse(os.path.exists(self.path + ".other"), "another rank than 0 wrote a log")
        return self.records()

    def test_data_parallel(self):
        for what in ("data_parallel", "data_parallel_compiled"):
            records = self.spawn(what)
            self.assertEqual([r["step"] for r in records], [0, 2])
            self.assertEqual([layer["name"] for layer in self.lines()[0]["layers"]], ["blocks.0.attn", "blocks.1.attn"])
            os.remove(self.path)

    def test_fully_sharded(self):
        for what in ("fully_sharded", "fully_sharded_compiled"):
            records = self.spawn(what)
            self.assertEqual([r["step"] for r in records], [0, 2])
            os.remove(self.path)

    def test_tensor_parallel(self):
        records = self.spawn("tensor_parallel")
        torch.manual_seed(3)
        whole = Model()
        for block in whole.blocks:
            block.attn.drop.p = 0.0
        path = self.path + ".whole"
        with Monitor(whole, path, every=2, rows=0) as monitor:
            steps(whole, monitor)
        expected = self.records(path)
        self.assertEqual(len(records), 2)
        for ours, theirs in zip(records, expected):
            for name in theirs["values"]:
                for a, b in zip(sum(ours["values"][name], []), sum(theirs["values"][name], [])):
                    if a is None or b is None:  # a statistic of what the batch does not have
                        self.assertEqual(a, b, name)
                    else:
                        self.assertAlmostEqual(a, b, delta=1e-4, msg=name)
        self.assertEqual([layer["n_heads"] for layer in self.lines()[0]["layers"]], [4, 4])

    def test_tensor_parallel_of_torch(self):
        records = self.spawn("tensor_parallel_dtensor")
        self.assertEqual([[len(layer) for layer in r["values"]["entropy"]] for r in records], [[4, 4], [4, 4]])

    def test_one_process_fails(self):
        self.assertEqual([r["step"] for r in self.spawn("one_fails")], [0, 1])


if __name__ == "__main__":
    unittest.main()
