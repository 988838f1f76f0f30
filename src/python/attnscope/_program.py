"""Finds the attnscope program, and runs it."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

_NAME = "attnscope" + (sysconfig.get_config_var("EXE") or "")


class CommandError(RuntimeError):
    """The attnscope program could not do what it was asked for; the message is its own.

    code             its exit code
    stdout, stderr   everything that it wrote
    """

    __module__ = "attnscope"  # as tracebacks name it

    def __init__(self, message, code=None, stdout="", stderr=""):
        super().__init__(message)
        self.code, self.stdout, self.stderr = code, stdout, stderr


def find_program():
    """The path of the program that was installed with this module, or else of one on the path."""
    for path in _candidates():
        if path.is_file() and os.access(path, os.X_OK):
            return os.path.join(os.path.realpath(path.parent), path.name)
    found = shutil.which("attnscope")
    if found is None:
        raise FileNotFoundError("the attnscope program was not found beside this module, nor on the path: "
                                "pip install attnscope, or cargo install attnscope")
    return found


def _candidates():
    """Where installers put programs, the surest place first."""
    here = Path(__file__).resolve().parent
    # pip install --target moves the program here after it wrote down another place.
    yield here.parent / "bin" / _NAME
    # What the installer wrote down: right for environments, --user, --prefix, pipx and uv.
    try:
        of_module = importlib.metadata.distribution("attnscope")
        if Path(of_module.locate_file("attnscope")).resolve() == here:
            yield from (Path(of_module.locate_file(file)) for file in of_module.files or () if file.name == _NAME)
    except importlib.metadata.PackageNotFoundError:
        pass
    if "site-packages" in here.parts or "dist-packages" in here.parts:
        yield Path(sysconfig.get_path("scripts")) / _NAME
        yield Path(sysconfig.get_path("scripts", f"{os.name}_user")) / _NAME
    yield Path(sys.executable).parent / _NAME


def version():
    """The version of this module, which is that of the program that was installed with it."""
    try:
        return importlib.metadata.version("attnscope")
    except importlib.metadata.PackageNotFoundError:
        return run(["--version"]).decode().split()[-1]


def run(arguments):
    """Runs the program without a terminal and gives what it wrote on standard output, as bytes."""
    words = [find_program(), *arguments]
    ran = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if ran.returncode:
        out, said = ran.stdout.decode(errors="replace"), ran.stderr.decode(errors="replace")
        raise CommandError(_reason(said, ran.returncode), ran.returncode, out, said)
    return ran.stdout


def _reason(said, code):
    """The error among the lines of standard error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line[len("attnscope: "):] for line in lines if line.startswith("attnscope: ")]
    if errors or lines:
        return (errors or lines)[-1]
    return f"the attnscope program was ended by signal {-code}" if code < 0 else f"the attnscope program ended with {code}"


def flags(options):
    """Command-line flags of keyword arguments: what_if=["drop=zero@L0H2"] is --what-if=drop=zero@L0H2.

    True is a flag without a value, None and False are no flag, and a list repeats its flag.
    """
    words = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                words.append(flag)
            elif one is not None and one is not False:
                words.append(f"{flag}={os.fspath(one) if isinstance(one, os.PathLike) else one}")
    return words


def main(arguments=None):
    """Becomes the program, with the arguments of this one."""
    try:
        program = find_program()
    except FileNotFoundError as error:
        print(f"attnscope: {error}", file=sys.stderr)
        return 2
    # FILE.py:NAME runs in this interpreter, unless --python names another
    os.environ.setdefault("ATTNSCOPE_PYTHON", sys.executable)
    words = [program, *(sys.argv[1:] if arguments is None else arguments)]
    if os.name == "posix":
        sys.stdout.flush()
        os.execv(program, words)
    return subprocess.run(words, check=False).returncode
