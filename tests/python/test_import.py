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
        for name in ("Monitor", "capture", "probe", "record", "statistics"):
            done = run(f"import attnscope\nattnscope.{name}", ["torch"])
            self.assertIn(f"ImportError: attnscope.{name} needs torch, which is not installed: pip install torch", done.stderr)
        done = run("import attnscope\nattnscope.read", ["pandas"])
        self.assertIn("ImportError: attnscope.read needs pandas, which is not installed: pip install pandas", done.stderr)
        done = run("import attnscope\nattnscope.monitr", [])
        self.assertIn("has no attribute 'monitr'", done.stderr)

    def test_modules_are_there_without_an_import_of_their_own(self):
        # Stand-ins: the module asks its library for one class.
        stand_in = "import sys, types\nlibrary = types.ModuleType({library!r})\nlibrary.{base} = object\n" \
                   "sys.modules[{library!r}] = library\nmonitor = types.ModuleType('attnscope.monitor')\n" \
                   "monitor.Monitor = object\nsys.modules['attnscope.monitor'] = monitor\n"
        for name, library, base in (("transformers", "transformers", "TrainerCallback"),
                                    ("lightning", "pytorch_lightning.callbacks", "Callback")):
            code = stand_in.format(library=library, base=base)
            if name == "lightning":
                code += "sys.modules['pytorch_lightning'] = types.ModuleType('pytorch_lightning')\n"
            code += f"import attnscope\nprint(attnscope.integrations.{name}.MonitorCallback('run.jsonl', every=7).every)"
            done = run(code, ["lightning"])
            self.assertEqual((done.stdout, done.stderr), ("7\n", ""))
        done = run("import attnscope\nprint(sorted(set(dir(attnscope.integrations)) & {'lightning', 'transformers'}),\n"
                   "'integrations' in dir(attnscope), 'torch' in sys.modules)", ["torch", "transformers", "lightning"])
        self.assertEqual((done.stdout, done.stderr), ("['lightning', 'transformers'] True False\n", ""))
        done = run("import attnscope\nattnscope.integrations.transformer", [])
        self.assertIn("has no attribute 'transformer', expected lightning or transformers", done.stderr)

    def test_integrations_say_what_they_lack(self):
        for name, hidden in (("transformers", ["transformers"]), ("lightning", ["lightning", "pytorch_lightning"])):
            for code in (f"import attnscope.integrations.{name}", f"import attnscope\nattnscope.integrations.{name}"):
                done = run(code, hidden)
                self.assertIn(f"attnscope.integrations.{name} needs {name}, which is not installed", done.stderr)


if __name__ == "__main__":
    unittest.main()
