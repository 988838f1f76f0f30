"""The module finds the program that was installed with it, wherever an installer puts both, and runs it."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from places import SOURCE, needs_program

# Stands for the program: says which one it is, what it was given, and ends with a code of its own.
STAND_IN = """#!/bin/sh
if [ "$1" = fail ]; then echo "attnscope: $2: cannot be read" >&2; exit 2; fi
echo "{name}: $*"
exit ${{CODE:-0}}
"""
# The Python below any environment: an environment may have a program of its own.
PYTHON = os.path.realpath(sys.executable)
METADATA = "Metadata-Version: 2.1\nName: attnscope\nVersion: 7.8.9\n"


@unittest.skipIf(os.name != "posix", "the stand-in is a shell script")
class Program(unittest.TestCase):
    def setUp(self):
        self.directory = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)

    def stand_in(self, *parts):
        path = os.path.join(self.directory, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(STAND_IN.format(name="/".join(parts)))
        os.chmod(path, 0o755)
        return path

    def module(self, *parts, record=None):
        """A copy of the module, with what an installer writes down where `record` says so."""
        place = os.path.join(self.directory, *parts)
        shutil.copytree(os.path.join(SOURCE, "attnscope"), os.path.join(place, "attnscope"),
                        ignore=shutil.ignore_patterns("__pycache__"))
        if record is not None:
            about = os.path.join(place, "attnscope-7.8.9.dist-info")
            os.makedirs(about)
            for name, text in (("METADATA", METADATA), ("RECORD", f"{record},,\nattnscope/__init__.py,,\n")):
                with open(os.path.join(about, name), "w", encoding="utf-8") as file:
                    file.write(text)
        return place

    def run_module(self, place, *arguments, path="/nowhere", **environment):
        known = {"PYTHONPATH": place, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        return subprocess.run([PYTHON, "-m", "attnscope", *arguments], capture_output=True, text=True, check=False,
                              env=known, cwd=self.directory)

    def test_the_program_that_the_installer_wrote_down(self):
        # --user, --prefix, a virtual environment, a system: all have the program some levels above the module.
        for base in ("home/.local", "prefix", "venv"):
            self.stand_in(base, "bin", "attnscope")
            place = self.module(base, "lib", "python3", "site-packages", record="../../../bin/attnscope")
            done = self.run_module(place, "check", "a b", "--x=1")
            self.assertEqual((done.stdout, done.returncode), (f"{base}/bin/attnscope: check a b --x=1\n", 0), done.stderr)

    def test_a_target_directory(self):
        # pip install --target moves the program after it wrote down another place.
        self.stand_in("target", "bin", "attnscope")
        place = self.module("target", record="../../bin/attnscope")
        done = self.run_module(place, "x")
        self.assertEqual((done.stdout, done.stderr), ("target/bin/attnscope: x\n", ""))

    def test_the_path_comes_last(self):
        other = self.stand_in("elsewhere", "attnscope")
        self.stand_in("venv", "bin", "attnscope")
        installed = self.module("venv", "lib", "site-packages", record="../../bin/attnscope")
        source = self.module("source")
        path = os.path.dirname(other) + ":/bin:/usr/bin"
        self.assertEqual(self.run_module(installed, path=path).stdout, "venv/bin/attnscope: \n")
        self.assertEqual(self.run_module(source, path=path).stdout, "elsewhere/attnscope: \n")

    def test_a_source_tree_does_not_take_the_program_of_another_installation(self):
        # What is installed elsewhere has the same name; what was written down is of that module, and not of this one.
        self.stand_in("venv", "bin", "attnscope")
        installed = self.module("venv", "lib", "site-packages", record="../../bin/attnscope")
        other = self.stand_in("elsewhere", "attnscope")
        source = self.module("source")
        done = self.run_module(source + os.pathsep + installed, path=os.path.dirname(other) + ":/bin:/usr/bin")
        self.assertEqual(done.stdout, "elsewhere/attnscope: \n")

    def test_exit_codes_come_through(self):
        self.stand_in("venv", "bin", "attnscope")
        place = self.module("venv", "lib", "site-packages", record="../../bin/attnscope")
        for code in (0, 1, 2, 143):
            self.assertEqual(self.run_module(place, CODE=str(code)).returncode, code)

    def test_no_program(self):
        done = self.run_module(self.module("source"))
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"^attnscope: the attnscope program was not found .*pip install attnscope")

    def test_a_file_that_cannot_be_run_is_no_program(self):
        os.chmod(self.stand_in("venv", "bin", "attnscope"), 0o644)
        place = self.module("venv", "lib", "site-packages", record="../../bin/attnscope")
        self.assertEqual(self.run_module(place).returncode, 2)

    def test_the_version_is_that_of_the_installation(self):
        place = self.module("venv", "lib", "site-packages", record="../../bin/attnscope")
        done = subprocess.run([PYTHON, "-c", "import attnscope; print(attnscope.__version__)"], capture_output=True,
                              text=True, check=True, env={"PYTHONPATH": place})
        self.assertEqual(done.stdout, "7.8.9\n")


@needs_program()
class RealProgram(unittest.TestCase):
    def test_the_program_and_the_module_have_one_version(self):
        import attnscope

        done = subprocess.run([attnscope.find_program(), "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, f"attnscope {attnscope.__version__}\n")

    def test_errors_are_exceptions_with_the_words_of_the_program(self):
        import attnscope
        from attnscope import _program

        with self.assertRaisesRegex(attnscope.CommandError, "^nowhere: ") as caught:
            _program.run(["tensors", "nowhere"])
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("attnscope: nowhere: ", caught.exception.stderr)


class Flags(unittest.TestCase):
    def test_keyword_arguments_become_flags(self):
        from attnscope._program import flags

        given = {"what_if": ["scale=none", "drop=zero@L0H2"], "threads": 2, "quiet": True, "force": False, "log": None,
                 "set": ("a=b",), "text": "--not a flag"}
        self.assertEqual(flags(given), ["--what-if=scale=none", "--what-if=drop=zero@L0H2", "--threads=2", "--quiet",
                                        "--set=a=b", "--text=--not a flag"])


if __name__ == "__main__":
    unittest.main()
