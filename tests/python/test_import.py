"""Importing the module needs nothing; each name says what it lacks."""

import subprocess
import sys
import unittest

from places import IS_INSTALLED, SOURCE

HIDDEN = """
import importlib.abc, sys

class Hides(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Hides())
if {path!r}:
    sys.path.insert(0, {path!r})
"""


def run(code, hidden):
    before = HIDDEN.format(hidden=hidden, path=None if IS_INSTALLED else SOURCE)
    return subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True, check=False)


class Import(unittest.TestCase):
    def test_the_module_alone(self):
        done = run("import attnscope\nassert set(attnscope.__all__) <= set(dir(attnscope))\n"
                   "attnscope.show, attnscope.find_program, attnscope.CommandError\n"
                   "assert 'torch' not in sys.modules", ["torch", "pandas", "numpy", "ray", "IPython"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_names_say_what_they_lack(self):
        for name in ("Monitor", "capture", "probe", "record"):
            done = run(f"import attnscope\nattnscope.{name}", ["torch"])
            self.assertIn(f"ImportError: attnscope.{name} needs torch, which is not installed: pip install torch", done.stderr)
        done = run("import attnscope\nattnscope.read", ["pandas"])
        self.assertIn("ImportError: attnscope.read needs pandas, which is not installed: pip install pandas", done.stderr)
        done = run("import attnscope\nattnscope.monitr", [])
        self.assertIn("has no attribute 'monitr'", done.stderr)

    def test_integrations_say_what_they_lack(self):
        for name, hidden in (("transformers", ["transformers"]), ("lightning", ["lightning", "pytorch_lightning"])):
            done = run(f"import attnscope.integrations.{name}", hidden)
            self.assertIn(f"attnscope.integrations.{name} needs {name}, which is not installed", done.stderr)


if __name__ == "__main__":
    unittest.main()
