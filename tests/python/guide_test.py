# SPDX-License-Identifier: Apache-2.0
"""What the front page and the guide show in Python runs, and does what they say."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import kvgauge

try:
    import torch
except ImportError:
    torch = None

HOME = pathlib.Path(os.environ["KVGAUGE_HOME"])
MODEL = HOME / "models" / "ref-gqa"


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (HOME / page).read_text(), re.M | re.S)


class Pages(unittest.TestCase):
    def test_ten_lines_to_a_row(self):
        """From the code of either page to a leaderboard with its row, in an empty directory."""
        first, guide = blocks("README.md")[0], blocks("docs/python.md")[0]
        self.assertEqual(first.replace("                # pip install .", ""), guide)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "mine.py"
            path.write_text(guide.replace("limit=20", "limit=2"))
            done = subprocess.run([sys.executable, str(path)], cwd=directory, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("mine", "snapkv", "full"):
                self.assertIn(name, done.stdout)

    def test_the_gate_of_the_guide_is_that_of_the_example(self):
        example = (HOME / "examples/python/gate.py").read_text()
        shown = blocks("docs/python.md")[1].splitlines()
        self.assertIn("\n".join(shown[2:]), example)
        self.assertIn("depends=[WEIGHTS]", shown[0])


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Gate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.directory.name)
        cls.weights = root / "gate.safetensors"
        text = root / "text.txt"
        text.write_text("The secret number of the green box is 4821. Ruth sold the old lamp. " * 200)
        code = kvgauge.command(["calibrate", MODEL, "--method", "qfilters", "--text-file", text,
                                "--window", "256", "--limit", "4", "--out", cls.weights])
        assert code == 0
        os.environ["GATE"] = str(cls.weights)
        sys.path.insert(0, str(HOME / "examples" / "python"))
        import gate  # noqa: F401  registers the stage

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_it_answers_as_the_built_in_one(self):
        protect = {"recent": 32}
        built_in = {"id": "qfilters", "calibration": str(self.weights)}
        store = kvgauge.run(
            {"name": "gate", "models": [str(MODEL)], "budgets": ["10%", "20%"],
             "tasks": [{"task": "reference/needle", "samples": 4, "source": {"lengths": "512"}},
                       {"task": "reference/pairs", "samples": 4, "source": {"lengths": "512"}}],
             "methods": [kvgauge.method("p", score="gated", protect=protect),
                         kvgauge.method("b", score=built_in, protect=protect)]},
            db=pathlib.Path(self.directory.name) / "gate.db", progress=False)
        table = store.answers()
        rows = table.to_dict("records") if hasattr(table, "to_dict") else table
        texts = {}
        for row in rows:
            key = row["task"], row["budget"], row["position"]
            texts.setdefault(row["method"], {})[key] = row["prediction"]
        self.assertEqual(len(texts["p"]), 16)
        self.assertEqual(texts["p"], texts["b"])


if __name__ == "__main__":
    unittest.main()
