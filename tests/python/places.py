"""Where the tests of the Python module find it, and the program; needs no package."""

import importlib.util
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SOURCE = os.path.join(ROOT, "src", "python")
# With ATTNSCOPE_INSTALLED=1 the tests are of the module that is installed, and not of the one in the source tree.
IS_INSTALLED = bool(os.environ.get("ATTNSCOPE_INSTALLED"))

if not IS_INSTALLED:
    sys.path.insert(0, SOURCE)


def needs(*packages):
    """Skips a test class where a package is not installed."""
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    return unittest.skipIf(missing, f"not installed: {', '.join(missing)}")


def program():
    """The attnscope command: of the environment, the one that was installed beside Python, or one that was built here."""
    given = [os.environ.get("ATTNSCOPE", "")]
    if IS_INSTALLED:
        given.append(os.path.join(os.path.dirname(sys.executable), "attnscope"))
    built = [os.path.join(ROOT, "target", kind, "attnscope") for kind in ("release", "debug")]
    return next((p for p in given + built if p and os.path.exists(p)), None)


def needs_program():
    """Skips a test class where the attnscope command is not built; puts it on the path where it is."""
    found = program()
    if found is not None and not IS_INSTALLED:
        os.environ["PATH"] = os.path.dirname(found) + os.pathsep + os.environ.get("PATH", "")
    return unittest.skipIf(found is None and not IS_INSTALLED, "the attnscope program is not built")
