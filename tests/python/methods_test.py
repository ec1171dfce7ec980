# SPDX-License-Identifier: Apache-2.0
"""Stages written in Python: equal to built-in ones, and what happens when they fail."""

import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import kvgauge

HOME = pathlib.Path(os.environ["KVGAUGE_HOME"])
sys.path.insert(0, str(HOME / "examples" / "python"))
import methods  # noqa: E402,F401  registers the stages of the guide

MODEL = str(HOME / "models" / "ref-gqa")
TASK = {"task": "reference/needle", "samples": 4, "source": {"lengths": "512"}}


def scratch():
    """A directory that goes when the tests are over."""
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    return directory.name


def run(*rows, **more):
    directory = scratch()
    config = {"name": "python", "models": [MODEL], "tasks": [TASK], "methods": list(rows),
              "budgets": ["10%"], **more}
    return kvgauge.run(config, db=pathlib.Path(directory) / "python.db", progress=False)


def records(table):
    return table.to_dict("records") if hasattr(table, "to_dict") else table


def answers(store):
    """method -> its samples, with the text of their answers."""
    texts = {(row["method"], row["budget"], row["position"]): row["prediction"]
             for row in records(store.answers())}
    found = {}
    for row in records(store.samples()):
        text = texts.get((row["method"], row["budget"], row["position"]))
        found.setdefault(row["method"], []).append({**row, "prediction": text})
    return found


kept = []  # what a stage kept after its call
late = []


@kvgauge.score
def no_number(view):
    return [np.full(view.lengths[head], np.nan) for head in range(view.kv_heads)]


@kvgauge.score
def too_few(view):
    return [np.zeros(3) for head in range(view.kv_heads)]


@kvgauge.score
def raises(view):
    return broken_helper(view)


def broken_helper(view):
    raise ArithmeticError(f"no idea at layer {view.layer}")


@kvgauge.score
def undeclared(view):
    return view.column_sums()


@kvgauge.score
def keeps_memory(view):
    kept.append(view.keys(0))
    return [np.zeros(n) for n in view.lengths]


@kvgauge.score
def keeps_view(view):
    late.append(view)
    return [np.zeros(n) for n in view.lengths]


@kvgauge.score
def writes(view):
    view.keys(0)[:] = 0
    return [np.zeros(n) for n in view.lengths]


@kvgauge.score(time_limit=0.5)
def for_ever(view):
    while True:
        pass


@kvgauge.reduce
def out_of_range(view, scores, allotted):
    return [np.arange(count) + 10**6 for count in allotted]


@kvgauge.reduce
def half_entries(view, scores, allotted):
    return [np.arange(count) + 0.5 for count in allotted]


@kvgauge.allocate
def too_much(request):
    return [request.length + 1] * request.layers


class Equal(unittest.TestCase):
    """A stage in Python gives what the built-in one gives."""

    def same(self, python, built_in):
        store = run(python, built_in)
        found = answers(store)
        self.assertEqual(set(found), {"full", python.id, built_in.id})
        self.assertTrue(all(row["status"] == "ok" for row in found[python.id]), found[python.id])
        for ours, theirs in zip(found[python.id], found[built_in.id]):
            self.assertEqual(ours["prediction"], theirs["prediction"])
        return store

    def test_key_norms(self):
        self.same(kvgauge.method("p", score="short_keys"), kvgauge.method("b", score="knorm"))

    def test_the_window(self):
        self.same(kvgauge.method("p", score={"id": "looked_at", "window": 16}, protect={"recent": 16}),
                  kvgauge.method("b", score={"id": "snapkv", "window": 16, "pool": "avg"},
                                 protect={"recent": 16}))

    def test_a_reducer(self):
        self.same(kvgauge.method("p", score="knorm", reduce="keep_the_best"),
                  kvgauge.method("b", score="knorm"))

    def test_allotments_are_spent(self):
        store = run(kvgauge.method("p", score="knorm", allocate="lower_layers_first"))
        found = answers(store)["p"]
        self.assertTrue(all(row["status"] == "ok" for row in found), found)

    def test_a_reader_that_reads_everything(self):
        found = answers(run({"method": kvgauge.method("p", read={"id": "NearestKeys",
                                                                 "tokens": 100000})}))
        self.assertEqual([row["prediction"] for row in found["p"]],
                         [row["prediction"] for row in found["full"]])

    def test_many_rows_keep_lockstep(self):
        rows = [{"method": kvgauge.method("p", score="looked_at"),
                 "budgets": [f"{share}%" for share in range(5, 85, 5)]}]
        found = answers(run(*rows))["p"]
        self.assertEqual(len(found), 16 * 4)
        self.assertTrue(all(row["status"] == "ok" for row in found))


class Fails(unittest.TestCase):
    """A fault is the recorded result of its cell, and other rows go on."""

    def fault(self, **stages):
        found = answers(run(kvgauge.method("p", **stages), kvgauge.method("b", score="knorm")))
        self.assertTrue(all(row["status"] == "ok" for row in found["b"]))
        self.assertTrue(all(row["status"] != "ok" for row in found["p"]), found["p"])
        return found["p"][0]["reason"]

    def test_scores_that_are_no_numbers(self):
        self.assertRegex(self.fault(score="no_number"),
                         "score.no_number: .*head 0 are not finite: entry 0 has nan")

    def test_too_few_scores(self):
        self.assertRegex(self.fault(score="too_few"), r"shape \[3\]; expected \[\d+\]")

    def test_an_exception(self):
        self.assertRegex(self.fault(score="raises"),
                         r"ArithmeticError: no idea at layer 0 \(methods_test.py:\d+ in "
                         r"broken_helper, methods_test.py:\d+ in raises\)")

    def test_a_signal_that_was_not_declared(self):
        self.assertRegex(self.fault(score="undeclared"), 'needs={"column_sums": ...}')

    def test_an_array_that_is_kept(self):
        self.assertRegex(self.fault(score="keeps_memory"), "keeps an array .* after its call")
        kept.clear()
        gc.collect()

    def test_a_view_that_is_kept(self):
        run(kvgauge.method("p", score="keeps_view"))
        with self.assertRaisesRegex(RuntimeError, "uses a view after its call"):
            late[0].keys(0)
        late.clear()

    def test_writing_into_the_cache(self):
        self.assertRegex(self.fault(score="writes"), "read-only")

    def test_a_call_that_does_not_end(self):
        self.assertRegex(self.fault(score="for_ever"), "took longer than 0.5 s")

    def test_entries_that_are_not_there(self):
        self.assertRegex(self.fault(score="knorm", reduce="out_of_range"),
                         r"keep of head 0: entry 1000000; the head holds \d+")

    def test_entries_that_are_no_whole_numbers(self):
        self.assertRegex(self.fault(score="knorm", reduce="half_entries"), "expected whole numbers")

    def test_more_than_there_is(self):
        self.assertRegex(self.fault(score="knorm", allocate="too_much"),
                         r"layer 0, head 0 is given \d+ entries; expected")


class Registers(unittest.TestCase):
    def test_an_id_that_is_taken(self):
        with self.assertRaisesRegex(ValueError, "registered twice: score.knorm"):
            @kvgauge.score(id="knorm")
            def mine(view):
                return None

    def test_a_parameter_without_default(self):
        with self.assertRaisesRegex(TypeError, "parameter 'window' has no default"):
            @kvgauge.score
            def windowed(view, window):
                return None

    def test_a_need_that_is_none(self):
        @kvgauge.score(needs={"windows": 3})
        def misspelt(view):
            return [np.zeros(n) for n in view.lengths]
        with self.assertRaisesRegex(Exception, "needs has no 'windows'; it has window"):
            run(kvgauge.method("p", score="misspelt"))

    def test_values_out_of_range(self):
        with self.assertRaisesRegex(kvgauge.BadInput, r"window.*\[1, 4096\]"):
            kvgauge.check({"models": [MODEL], "tasks": [TASK], "budgets": ["10%"],
                           "methods": [kvgauge.method("p", score={"id": "looked_at",
                                                                  "window": 0})]})

    def test_a_change_of_the_source_is_another_cell(self):
        source = """
import kvgauge, numpy as np
@kvgauge.score
def first_entries(view):
    return [SIGN * np.arange(n, dtype=float) for n in view.lengths]
if __name__ == "__main__":
    config = {"name": "c", "models": [MODEL], "budgets": ["50%"],
              "tasks": [{"task": "reference/needle", "samples": 1, "source": {"lengths": "512"}}],
              "methods": [kvgauge.method("p", score="first_entries")]}
    store = kvgauge.run(config, db=DB, progress=False)
    rows = store.cells()
    rows = rows.to_dict("records") if hasattr(rows, "to_dict") else rows
    print(sum(row["method"] == "p" for row in rows))
"""
        directory = pathlib.Path(scratch())
        counts = []
        for sign in ("-1", "-1", "1"):
            text = source.replace("SIGN", sign).replace("MODEL", repr(MODEL))
            text = text.replace("DB", repr(str(directory / "c.db")))
            (directory / "stage.py").write_text(text)
            done = subprocess.run([sys.executable, str(directory / "stage.py")],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            counts.append(done.stdout.strip())
        self.assertEqual(counts, ["1", "1", "2"])


if __name__ == "__main__":
    unittest.main()
