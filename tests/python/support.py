# SPDX-License-Identifier: Apache-2.0
"""What several suites of the package do."""

import os
import pathlib
import tempfile
import unittest

import kvgauge

HOME = pathlib.Path(os.environ["KVGAUGE_HOME"])
MODEL = str(HOME / "models" / "ref-gqa")


def records(table):
    return table.to_dict("records") if hasattr(table, "to_dict") else table


def samples_of(*rows, backend="cpu", budget="10%", samples=2, length=512):
    """Runs methods on the reference model; method -> its samples, with their texts and faults."""
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    config = {"name": "arrays", "models": [MODEL], "methods": list(rows), "budgets": [budget],
              "tasks": [{"task": "reference/needle", "samples": samples,
                         "source": {"lengths": str(length)}}]}
    store = kvgauge.run(config, db=pathlib.Path(directory.name) / "arrays.db", progress=False,
                        backend=backend)
    sql = ("SELECT method.name AS method, sample.status, sample.reason, answer.prediction "
           "FROM sample JOIN cell ON cell.id = cell_id JOIN method ON method.id = method_id "
           "LEFT JOIN answer ON answer.sample_id = sample.id ORDER BY method.name, position")
    found = {}
    for row in records(store.query(sql)):
        found.setdefault(row["method"], []).append(row)
    return found


class Same(unittest.TestCase):
    def same(self, found, name, built_in):
        """Both methods ran, and answered alike."""
        for rows in (found[name], found[built_in]):
            self.assertTrue(all(row["status"] == "ok" for row in rows), rows)
        self.assertEqual([row["prediction"] for row in found[name]],
                         [row["prediction"] for row in found[built_in]], name)

    def fault(self, found, name, beside="b"):
        """Why the method failed; the one beside it did not."""
        self.assertTrue(all(row["status"] == "ok" for row in found[beside]), found[beside])
        self.assertTrue(all(row["status"] != "ok" for row in found[name]), found[name])
        return found[name][0]["reason"]
