# SPDX-License-Identifier: Apache-2.0
"""`python -m kvgauge` and the functions that call the program."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import kvgauge

HOME = pathlib.Path(os.environ["KVGAUGE_HOME"])
TASK = {"task": "reference/needle", "samples": 2, "source": {"lengths": "512"}}


def program(*arguments):
    return subprocess.run([sys.executable, "-m", "kvgauge", *arguments], capture_output=True,
                          text=True)


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
