# SPDX-License-Identifier: Apache-2.0
"""`python -m kvgauge ARGUMENTS`: the program. `--python FILE` loads stages written in Python."""

import os
import pathlib
import runpy
import sys

PROGRAM = pathlib.Path(__file__).resolve().parent / "bin" / "kvgauge"


def main():
    arguments, files = [], []
    rest = iter(sys.argv[1:])
    for argument in rest:
        if argument == "--python":
            files.append(next(rest, ""))
        elif argument.startswith("--python="):
            files.append(argument.split("=", 1)[1])
        else:
            arguments.append(argument)
    if not files and PROGRAM.exists():
        sys.stdout.flush()
        os.execv(PROGRAM, [str(PROGRAM), *arguments])
    from . import _program

    for file in files:
        if not os.path.isfile(file):
            sys.exit(_program.say_error(f"--python {file}: no such file"))
        sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
        try:
            runpy.run_path(file, run_name=pathlib.Path(file).stem)
        except Exception as error:
            from ._stages import describe_error

            sys.exit(_program.say_error(f"{file}: {describe_error(error, error.__traceback__)}"))
    sys.exit(_program.command(arguments))


if __name__ == "__main__":
    main()
