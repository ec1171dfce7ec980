# SPDX-License-Identifier: Apache-2.0
"""`python -m kvgauge` and the functions that call the program."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import kvgauge

HOME = pathlib.Path(os.environ["KVGAUGE_HOME"])
TASK = {"task": "reference/needle", "samples": 2, "source": {"lengths": "512"}}


def program(*arguments):
    return subprocess.run([sys.executable, "-m", "kvgauge", *arguments], capture_output=True,
                          text=True)


class BuildTree(unittest.TestCase):
    def test_shipped_files_are_found_from_anywhere(self):
        environment = {name: value for name, value in os.environ.items() if name != "KVGAUGE_HOME"}
        done = subprocess.run([sys.executable, "-m", "kvgauge", "methods", "snapkv"], cwd="/",
                              env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SnapKV", done.stdout)


RUN = f"""
import io, sys, kvgauge
SETUP
kvgauge.run(model={str(HOME / "models/ref-gqa")!r}, task="reference/needle", method="snapkv",
            budget="10%", limit=2, db="p.db")
print("done", file=sys.__stdout__)
SHOWN
"""


class Progress(unittest.TestCase):
    """What a run writes to standard error is seen once, wherever Python's own goes."""

    def run_code(self, setup="", shown="", **more):
        code = RUN.replace("SETUP", setup).replace("SHOWN", shown)
        with tempfile.TemporaryDirectory() as directory:
            return subprocess.run([sys.executable, "-c", code], cwd=directory, timeout=120,
                                  stdout=subprocess.PIPE, text=True, **more)

    def test_in_a_file(self):
        done = self.run_code(stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
        self.assertEqual(done.stderr.count("4 cells recorded"), 1, done.stderr)

    def test_in_a_notebook(self):
        done = self.run_code("sys.stderr = io.StringIO()",
                             "print(sys.stderr.getvalue(), file=sys.__stderr__)",
                             stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), done.stderr)
        self.assertEqual(done.stderr.count("4 cells recorded"), 1, done.stderr)

    def test_in_a_terminal(self):
        ours, theirs = os.openpty()
        written = []

        def read():
            while True:
                try:
                    chunk = os.read(ours, 4096)
                except OSError:
                    return
                written.append(chunk)

        reader = threading.Thread(target=read)
        reader.start()
        done = self.run_code(stderr=theirs)
        os.close(theirs)
        reader.join()
        os.close(ours)
        text = b"".join(written).decode()
        self.assertEqual((done.returncode, done.stdout), (0, "done\n"), text)
        self.assertIn("[1/1]", text)
        self.assertIn("\r", text)
        self.assertLess(text.count("[1/1]"), 100)

    def test_an_error_is_its_message_alone(self):
        with self.assertRaisesRegex(kvgauge.BadInput, "^error: --method: .*snapvk"):
            kvgauge.check(model=str(HOME / "models/ref-gqa"), task="reference/needle",
                          method="snapvk", budget="10%")


class Docstrings(unittest.TestCase):
    def test_examples_hold(self):
        for name in ("_program", "_results", "_stages", "_arrays"):
            module = importlib.import_module(f"kvgauge.{name}")
            found = doctest.testmod(module, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
            self.assertEqual(found.failed, 0, name)
            self.assertGreater(found.attempted, 0, name)

    def test_everything_public_is_described(self):
        for name in kvgauge.__all__:
            self.assertTrue((getattr(kvgauge, name).__doc__ or "").strip(), name)


class Stubs(unittest.TestCase):
    """What __init__.pyi declares is there, with the same parameters in the same order."""

    def test_they_match(self):
        stub = ast.parse((pathlib.Path(kvgauge.__file__).parent / "__init__.pyi").read_text())
        declared = {node.name: node for node in stub.body
                    if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
        self.assertEqual(set(kvgauge.__all__) - {"View"}, set(declared))
        for name, node in declared.items():
            if isinstance(node, ast.ClassDef):
                real = getattr(kvgauge, name)
                for member in node.body:
                    if isinstance(member, ast.FunctionDef):
                        self.assertTrue(hasattr(real, member.name), f"{name}.{member.name}")
                    elif isinstance(member, ast.AnnAssign) and dataclasses.is_dataclass(real):
                        self.assertIn(member.target.id, real.__dataclass_fields__, name)
                continue
            arguments = node.args
            stubbed = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
            stubbed += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
            self.assertEqual(list(inspect.signature(getattr(kvgauge, name)).parameters), stubbed,
                             name)


class Program(unittest.TestCase):
    def test_version(self):
        done = program("--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(kvgauge.__version__, done.stdout)

    def test_bad_input(self):
        done = program("run", "nothing-of-that-name")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nothing-of-that-name", done.stderr)

    def test_stages_of_a_file(self):
        done = program("--python", str(HOME / "examples/python/methods.py"), "methods", "--stages")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("short_keys", "looked_at", "lower_layers_first", "NearestKeys"):
            self.assertIn(name, done.stdout)

    def test_a_file_that_is_missing(self):
        done = program("--python", "none.py", "methods")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "kvgauge: --python none.py: no such file\n")

    def test_a_file_that_fails(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "bad.py"
            path.write_text("import kvgauge\n1 / 0\n")
            done = program("--python", str(path), "methods")
        self.assertEqual(done.returncode, 2)
        self.assertIn("bad.py: ZeroDivisionError: division by zero (bad.py:2 in <module>",
                      done.stderr)

    def test_a_plan(self):
        plan = kvgauge.check({"models": [str(HOME / "models/ref-gqa")], "methods": ["snapkv"],
                              "budgets": ["10%", "20%"], "tasks": [TASK]})
        self.assertTrue(plan)

    def test_an_unknown_method_is_an_exception(self):
        with self.assertRaisesRegex(kvgauge.BadInput, "did you mean"):
            kvgauge.check(model=str(HOME / "models/ref-gqa"), task="reference/needle",
                          method="snapvk", budget="10%")

    def test_an_unknown_stage_kind(self):
        with self.assertRaisesRegex(kvgauge.BadInput, "no stage kind 'scores'"):
            kvgauge.method("p", scores="knorm")


if __name__ == "__main__":
    unittest.main()
