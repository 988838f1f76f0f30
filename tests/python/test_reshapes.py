"""heads_moved: whether code moves the axis of heads, or mixes heads with positions by a reshape alone."""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
from places import needs_program, program
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F

from attnscope import capture

N_HEADS, D_MODEL = 4, 16


class Attention(nn.Module):
    """Attention whose heads are split and merged with a transpose or without one."""

    def __init__(self, split, merge, layout, kernel):
        super().__init__()
        self.split, self.merge, self.layout, self.kernel = split, merge, layout, kernel
        self.q, self.k, self.v, self.out = (nn.Linear(D_MODEL, D_MODEL) for _ in range(4))
        self.fused = nn.Linear(D_MODEL, 3 * D_MODEL)

    def heads(self, x):
        batch, n = x.shape[:2]
        return x.view(batch, n, N_HEADS, -1).transpose(1, 2) if self.split else x.reshape(batch, N_HEADS, n, -1)

    def forward(self, x):
        if self.layout == "apart":
            q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        elif self.layout == "chunks":
            q, k, v = (self.heads(part) for part in self.fused(x).chunk(3, -1))
        else:  # the three side by side in each head
            q, k, v = self.heads(self.fused(x)).chunk(3, -1)
        if self.kernel:
            z = F.scaled_dot_product_attention(q, k, v)
        else:
            z = (q @ k.transpose(-2, -1) / 2).softmax(-1) @ v
        return self.out((z.transpose(1, 2) if self.merge else z).reshape(x.shape))


class Model(nn.Module):
    def __init__(self, *kinds):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.positions = nn.Embedding(20, D_MODEL), nn.Embedding(20, D_MODEL)
        self.blocks = nn.ModuleList([Attention(*kinds) for _ in range(2)])

    def forward(self, ids):
        x = self.table(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = x + block(x)
        return x


def moved(model, ids, **options):
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "t.safetensors")
        with torch.no_grad(), capture(model, path, values=True, **options):
            model(ids)
        with safe_open(path, "np") as file:
            return [call.get("heads_moved") for call in json.loads(file.metadata()["attnscope.calls"])]


class Reshapes(unittest.TestCase):
    def test_each_way_to_split_and_merge_is_told_from_its_mistake(self):
        ids = torch.arange(18).view(2, 9) % 20
        for split, merge, layout, kernel in itertools.product((True, False), (True, False), ("apart", "chunks", "inside"), (True, False)):
            expected = {"rot_q": split, "rot_k": split, "v": split, "z": merge}
            for row in (0, 1):
                found = moved(Model(split, merge, layout, kernel), ids, row=row)
                self.assertEqual(found, [expected] * 2, (split, merge, layout, kernel, row))

    def test_nothing_is_said_where_numbers_do_not_tell(self):
        model = Model(False, False, "apart", False)
        self.assertEqual(moved(model, torch.arange(1).view(1, 1)), [None] * 2)  # one position has one layout
        for block in model.blocks:
            for layer in (block.q, block.k, block.v):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.assertEqual(moved(model, torch.arange(9).view(1, 9)), [None] * 2)  # zeros look the same in both

    def test_torchs_own_layer_moves_its_heads(self):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(20, D_MODEL)
                self.layer = nn.TransformerEncoderLayer(D_MODEL, N_HEADS, batch_first=True)

            def forward(self, ids):
                return self.layer(self.table(ids))

        for found in moved(Own().eval(), torch.arange(9).view(1, 9)):
            self.assertNotIn(False, (found or {}).values())

    @needs_program()
    def test_check_names_the_mistake_in_an_encoder_where_nothing_leaks(self):
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "mine.py"), "w") as file:
                file.write("import sys\nsys.path.insert(0, %r)\nfrom test_reshapes import Model\n\n"
                           "def load(merge=True):\n    return Model(True, merge, 'apart', False)\n" % os.path.dirname(__file__))
            for call, expected in (("load", 0), ("load(merge=False)", 1)):
                done = subprocess.run(
                    [program(), "check", f"{place}/mine.py:{call}", "--python", sys.executable, "--mask", "bidirectional",
                     "--tokens", "1,2,3,4,5,6,7,8,9"], capture_output=True, text=True)
                self.assertEqual(done.returncode, expected, done.stdout + done.stderr)
                self.assertEqual("head-reshape" in done.stdout, expected == 1, done.stdout)
                if expected:
                    self.assertIn("merge heads with transpose(1, 2)", done.stdout)


if __name__ == "__main__":
    unittest.main()
