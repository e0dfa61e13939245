"""Checks that this Python can build framecap; prints one sentence and exits with 1 if it can't.

Called by the Makefile before anything is installed, possibly by a very old Python, so the syntax is that
of any Python 2 or 3.
"""

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile

SUPPORTED = [(3, 11)]


def why_not_python():
    """Return a sentence if this interpreter can't run framecap, else None."""
    version = sys.version_info[:2]
    found = "%s %s at %s" % (platform.python_implementation(), platform.python_version(), sys.executable)
    wanted = " or ".join("%d.%d" % v for v in SUPPORTED)
    if version < SUPPORTED[0]:
        return "framecap needs CPython %s and this is %s, which is too old; " % (wanted, found) + CHOOSE
    if platform.python_implementation() != "CPython" or version not in SUPPORTED:
        return "framecap needs CPython %s and this is %s; " % (wanted, found) + CHOOSE
    try:
        import ensurepip
        import venv
    except ImportError:
        return "%s can't make virtual environments: install its venv package (python3.11-venv on Debian)." % found
    assert ensurepip and venv
    return None


CHOOSE = "install such a Python and name it: make PYTHON=/path/to/python3.11"


def why_not_headers():
    """Return a sentence if Python.h is missing, else None."""
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        return "%s is missing: install the Python headers (python3.11-dev on Debian)." % header
    return None


def why_not_compiler():
    """Return a sentence if no C compiler works, else None."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    folder = tempfile.mkdtemp()
    source = os.path.join(folder, "probe.c")
    target = os.path.join(folder, "probe.o")
    try:
        with open(source, "w") as out:
            out.write("int framecap_probe(void) { return 0; }\n")
        try:
            child = subprocess.Popen(
                shlex.split(command) + ["-c", source, "-o", target],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            output = child.communicate()[0].decode("utf-8", "replace").strip()
        except OSError as error:
            return "no C compiler: %r can't be run (%s); install gcc or clang, or set CC." % (command, error)
        if child.returncode != 0:
            last = output.splitlines()[-1] if output else "no message"
            return "the C compiler %r fails on an empty program (%s)." % (command, last)
    finally:
        for path in (source, target):
            if os.path.exists(path):
                os.remove(path)
        os.rmdir(folder)
    return None


def main():
    for check in (why_not_python, why_not_headers, why_not_compiler):
        problem = check()
        if problem is not None:
            sys.stderr.write("framecap: %s\n" % problem)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
