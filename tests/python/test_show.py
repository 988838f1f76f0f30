"""attnscope.show: the report of a checkpoint as a value that a notebook shows."""

import html.parser
import os
import tempfile
import unittest
from unittest import mock

from places import ROOT, needs_program

import attnscope
from attnscope import _program

HEALTHY = os.path.join(ROOT, "fixtures", "healthy")


class Frame(html.parser.HTMLParser):
    """The tags of a fragment, as a browser reads them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ends, self.texts = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        self.ends.append(tag)

    def handle_data(self, data):
        self.texts.append(data)


class Tensor:
    """What torch and numpy have in common here."""

    def __init__(self, values):
        self.values = values

    @property
    def shape(self):
        sizes, at = [], self.values
        while isinstance(at, list):
            sizes.append(len(at))
            at = at[0]
        return tuple(sizes)

    def tolist(self):
        return self.values

    def __index__(self):
        if isinstance(self.values, int):
            return self.values
        raise TypeError("no integer")


class Model:
    """Something that is no path."""


class Shown(unittest.TestCase):
    """With a page that another program wrote."""

    def shown(self, page, checkpoint="run", **options):
        with mock.patch.object(_program, "run", return_value=page.encode()) as run:
            value = attnscope.show(checkpoint, "a text", **options)
        self.words = run.call_args.args[0]
        return value

    def test_a_page_stays_inside_its_frame_whatever_it_holds(self):
        for page in ('<!DOCTYPE html><p>plain & simple</p>', '"></iframe><script>alert(1)</script><iframe srcdoc="',
                     "&quot;&amp;quot; &lt;b&gt;", "'\"`<>&\n\tö → 𝛼\u2028", '<p title="a&b">'):
            frame = Frame(self.shown(page, checkpoint='x" onload="alert(1)')._repr_html_())
            [(tag, attributes)] = frame.tags
            self.assertEqual((tag, frame.ends, frame.texts), ("iframe", ["iframe"], []))
            self.assertEqual(attributes["srcdoc"], page)
            self.assertNotIn("onload", attributes)
            # The page's script runs without access to the notebook.
            self.assertEqual(attributes["sandbox"], "allow-scripts allow-popups")

    def test_the_height_of_the_frame(self):
        self.assertIn("height: 300px", self.shown("", height=300)._repr_html_())
        for height in (0, -1, "100%", 1.5, True):
            with self.assertRaisesRegex(ValueError, "height is .*expected a whole number of pixels"):
                self.shown("", height=height)

    def test_what_is_no_saved_checkpoint_is_told_what_is(self):
        for model, kind in ((Model(), "test_show.Model"), (None, "NoneType"), (Tensor([1]), r"test_show.Tensor of shape .1,.")):
            with self.assertRaisesRegex(TypeError, f"a directory, a weight file, or a name of the Hugging Face hub; found {kind}. Save a model with save_pretrained"):
                self.shown("", checkpoint=model)
        with self.assertRaisesRegex(TypeError, "takes a text as its second argument, found list; ids go to tokens="):
            attnscope.show("run", [5, 9])

    def test_flags(self):
        self.shown("", checkpoint="-run", tokens=[5, 9], what_if=["scale=none@L1"], quiet=False)
        self.assertEqual(self.words, ["report", "--format=html", "--what-if=scale=none@L1", "--text=a text", "--tokens=5,9",
                                      "--", "-run"])
        for tokens in (Tensor([5, 9]), Tensor([[5, 9]]), [[5, 9]], (5, 9), [Tensor(5), Tensor(9)], range(5, 10, 4)):
            self.shown("", tokens=tokens)
            self.assertIn("--tokens=5,9", self.words)
        self.shown("", tokens=[Tensor(5)])
        self.assertIn("--tokens=5", self.words)
        for tokens in (Tensor([[5, 9], [1, 2]]), Tensor([0.5]), [1, True], ["5"], 7, {"input_ids": [5]}, Tensor(5)):
            with self.assertRaisesRegex(TypeError, r"show\(tokens=…\) takes the ids of one text: .* found "):
                self.shown("", tokens=tokens)
        with self.assertRaisesRegex(TypeError, "found test_show.Tensor of shape .2, 2.$"):
            self.shown("", tokens=Tensor([[5, 9], [1, 2]]))
        with self.assertRaisesRegex(TypeError, "show.. sets format itself"):
            self.shown("", format="json")


@needs_program()
class Report(unittest.TestCase):
    def test_a_checkpoint(self):
        page = attnscope.show(HEALTHY, "the king took a quiet story")
        self.assertTrue(page.html.lower().startswith("<!doctype html>"), page.html[:100])
        self.assertIn("quiet", page.html)
        [(_, attributes)] = Frame(page._repr_html_()).tags
        self.assertEqual(attributes["srcdoc"], page.html)
        self.assertIn("attnscope report of ", repr(page))
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "page.html")
            page.save(path)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), page.html)

    def test_a_text_that_looks_like_a_flag(self):
        self.assertIn("<html", attnscope.show(HEALTHY, "--quiet the king took a quiet story").html)

    def test_errors_are_those_of_the_program(self):
        with self.assertRaisesRegex(attnscope.CommandError, "nowhere"):
            attnscope.show("./nowhere", "text")
        with self.assertRaisesRegex(attnscope.CommandError, "--no-such-flag"):
            attnscope.show(HEALTHY, "text", no_such_flag=True)
        with self.assertRaisesRegex(attnscope.CommandError, "99999"):
            attnscope.show(HEALTHY, tokens=[1, 99999])


if __name__ == "__main__":
    unittest.main()
