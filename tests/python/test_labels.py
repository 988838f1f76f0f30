"""Which ids of a model's inputs are the labels of a loss, and which a decoder reads."""

import os
import tempfile
import unittest

import support  # noqa: F401  (skips these tests where torch is not installed)
import torch
import torch.nn.functional as F
from attnscope._live.inputs import Inputs
from attnscope._live.labels import are_labels
from attnscope._live.pytorch import Subject
from places import needs_program
from test_added import findings
from torch import nn

D, N = 32, 12

LOSS_INSIDE = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.head = nn.Embedding(20, 32), nn.Linear(32, 96), nn.Linear(32, 20)
        self.at = nn.Parameter(torch.randn(64, 32))

    def forward(self, data, target):
        x = self.embed(data) + self.at[:data.shape[1]]
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = q @ k.transpose(1, 2) / 32 ** 0.5
        x = x + scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        x = x[:, -target.shape[1]:]  # as many as there are labels
        return F.cross_entropy(self.head(x).transpose(1, 2), target, reduction="none")


def load():
    text = torch.randint(20, (1, 13), generator=torch.Generator().manual_seed(1))
    return Model(), None, (text[:, :-1], text[:, 1:])
"""


class Loss(nn.Module):
    """A decoder that returns its loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(20, D), nn.Linear(D, 20)

    def forward(self, data, target):
        x = self.embed(data)
        x = (x @ x.transpose(1, 2)).softmax(-1) @ x
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


class Translator(Loss):
    """A decoder that reads its target."""

    def forward(self, data, target):
        source, x = self.embed(data), self.embed(target)
        return self.head((x @ source.transpose(1, 2)).softmax(-1) @ source)


class OneHot(Loss):
    """A decoder that reads its target without a table."""

    def forward(self, data, target):
        source, x = self.embed(data), F.one_hot(target, 20).float() @ self.embed.weight
        return self.head((x @ source.transpose(1, 2)).softmax(-1) @ source)


def two(n=N):
    ids = torch.randint(20, (2, 1, n), generator=torch.Generator().manual_seed(2))
    return ids[0], ids[1]


class Labels(unittest.TestCase):
    def test_a_loss_is_told_from_a_decoder(self):
        for kind, expected in ((Loss, True), (Translator, False), (OneHot, False)):
            model = kind().eval()
            self.assertEqual(are_labels(model, Inputs(model, two())), expected, kind.__name__)
        model = Loss().eval()
        alike = (two()[0], torch.zeros(1, N, dtype=torch.long))
        self.assertFalse(are_labels(model, Inputs(model, alike)), "labels of one kind tell nothing")

    def test_changed_inputs_keep_the_labels(self):
        subject = Subject(Loss().eval(), None, two())
        subject._tell_labels()
        inputs, target = subject.inputs, two()[1]
        self.assertEqual((inputs.places, inputs.labels), ([0], [1]))
        self.assertEqual(inputs.own_ids(), two()[0][0].tolist())
        for n in (5, N, 15):
            (ids, labels), _ = inputs.of(torch.arange(n).expand(3, n), None)
            self.assertEqual((ids.shape, labels.shape), ((3, n), (3, n)))
            for row in labels:
                self.assertEqual(row.tolist(), [target[0, i % N].item() for i in range(n)])

    def test_arguments_called_labels(self):
        ids, labels = two()
        inputs = Inputs(nn.Identity(), {"input_ids": ids, "labels": labels, "label_of_text": torch.tensor([1])})
        self.assertEqual(inputs.labels, ["labels"])
        _, given = inputs.of([1, 2, 3], None)
        self.assertEqual([given[name].tolist() for name in ("input_ids", "labels")], [[[1, 2, 3]], labels[:, :3].tolist()])

    @needs_program()
    def test_check_of_a_model_that_returns_its_loss(self):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "model.py")
            with open(path, "w") as file:
                file.write(LOSS_INSIDE)
            said = findings(f"{path}:load")
        self.assertEqual([name for name, of in said.items() if any(severity == "error" for severity, _ in of)], [], said)


if __name__ == "__main__":
    unittest.main()
