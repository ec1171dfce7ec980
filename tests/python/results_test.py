# SPDX-License-Identifier: Apache-2.0
"""Result stores as tables."""

import contextlib
import os
import pathlib
import sqlite3
import tempfile
import unittest

import kvgauge

HOME = pathlib.Path(os.environ["KVGAUGE_HOME"])
TESTS = pathlib.Path(__file__).resolve().parents[1]


def records(table):
    return table.to_dict("records") if hasattr(table, "to_dict") else table


class Results(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.store = kvgauge.run(
            {"name": "r", "models": [str(HOME / "models/ref-gqa")], "budgets": ["10%", "20%"],
             "methods": ["snapkv"],
             "tasks": [{"task": "reference/needle", "samples": 3, "source": {"lengths": "512"}}]},
            db=pathlib.Path(cls.directory.name) / "r.db", progress=False)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_the_leaderboard(self):
        rows = records(self.store.leaderboard())
        self.assertEqual(len(rows), 3)
        self.assertEqual(sorted({row["method"] for row in rows}), ["full", "snapkv"])
        for row in rows:
            self.assertLessEqual(0, row["score"])
            self.assertEqual(next(iter(row)), "method")
        every = records(self.store.leaderboard("all", by="task"))
        self.assertLess(set(rows[0]), set(every[0]))
        self.assertEqual(set(records(self.store.leaderboard(["score", "rank"]))[0]),
                         {"score", "rank"})
        for wrong in ("most", ["scores"]):
            with self.assertRaisesRegex(ValueError, "columns: no '(most|scores)'"):
                self.store.leaderboard(wrong)

    def test_cells_and_samples(self):
        self.assertEqual(len(self.store.cells()), 3)
        self.assertEqual(len(self.store.samples()), 9)

    def test_speculations(self):
        self.assertEqual(len(self.store.speculations()), 0)
        path = pathlib.Path(self.directory.name) / "drafts.db"
        self.assertEqual(kvgauge.command(
            ["bench", "speculate", HOME / "models/ref-gqa", "--drafts", "streaming_llm",
             "--gammas", "2", "--prompts", "1", "--prompt-tokens", "64", "--answer-tokens", "4",
             "--repetitions", "1", "--db", path]), 0)
        row, = records(kvgauge.Store(path).speculations())
        self.assertEqual((row["method"], row["budget"], row["gamma"]), ("streaming_llm", "20%", 2))
        self.assertEqual(row["accepted"] + row["checks"], 3)
        self.assertGreater(row["tokens_per_s"], 0)
        # A store of the schema before has none.
        old = pathlib.Path(self.directory.name) / "old.db"
        with contextlib.closing(sqlite3.connect(old)) as database:
            database.executescript((TESTS / "reports/data/store_v10.sql").read_text())
        self.assertEqual(len(kvgauge.Store(old).speculations()), 0)
        self.assertEqual(len(kvgauge.Store(old, path).speculations()), 1)

    def test_several_stores_count_as_one(self):
        path = pathlib.Path(self.directory.name) / "copy.db"
        path.write_bytes(self.store.paths[0].read_bytes())
        both = kvgauge.Store(self.store.paths[0], path)
        rows = records(both.samples())
        self.assertEqual(len(rows), 18)
        self.assertEqual({row["store"] for row in rows}, {str(p) for p in both.paths})

    def test_queries_cannot_write(self):
        with self.assertRaises(Exception):
            self.store.query("DELETE FROM sample")
        self.assertEqual(len(self.store.samples()), 9)

    def test_the_report(self):
        path = pathlib.Path(self.directory.name) / "r.html"
        report = self.store.report(path)
        self.assertIn("<iframe", report._repr_html_())
        self.assertIn("snapkv", path.read_text())

    def test_a_store_that_is_missing(self):
        with self.assertRaisesRegex(FileNotFoundError, "none.db"):
            kvgauge.Store("none.db")

    def test_a_file_that_is_no_store(self):
        path = pathlib.Path(self.directory.name) / "text.db"
        path.write_text("not a database")
        for look in (kvgauge.Store.leaderboard, kvgauge.Store.cells, kvgauge.Store.samples):
            with self.assertRaisesRegex(kvgauge.BadInput, "text.db"):
                look(kvgauge.Store(path))

    def test_a_store_of_a_newer_version(self):
        path = pathlib.Path(self.directory.name) / "newer.db"
        path.write_bytes(self.store.paths[0].read_bytes())
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA user_version = 99")
            database.commit()
        before = path.read_bytes()
        for look in (kvgauge.Store.leaderboard, kvgauge.Store.cells, kvgauge.Store.answers):
            with self.assertRaisesRegex(kvgauge.BadInput, "newer.db: has schema version 99"):
                look(kvgauge.Store(path))
        self.assertEqual(path.read_bytes(), before)


if __name__ == "__main__":
    unittest.main()
