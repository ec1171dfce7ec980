# SPDX-License-Identifier: Apache-2.0
"""Answers of a store before a judge: over https from a server on this machine, or a local model."""

import http.server
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

import kvgauge

MODEL = str(pathlib.Path(os.environ["KVGAUGE_HOME"]) / "models" / "ref-gqa")
TASK = {"task": "reference/needle", "samples": 2, "source": {"lengths": "512"}}


class Endpoint(http.server.BaseHTTPRequestHandler):
    """The next of the server's replies: a status, or what the judge says."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        reply = self.server.replies.pop(0)
        content = b"busy" if isinstance(reply, int) else json.dumps(
            {"choices": [{"message": {"content": reply}}], "usage": {"total_tokens": 7}}).encode()
        self.send_response(reply if isinstance(reply, int) else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class Judges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.home = pathlib.Path(directory.name)
        cls.store = kvgauge.run(
            {"name": "j", "models": [MODEL], "tasks": [TASK], "budgets": ["5%", "10%"],
             "methods": ["streaming_llm"]}, db=cls.home / "j.db", progress=False)
        cls.pairs = cls.home / "pairs.jsonl"
        assert cls.store.pairs(cls.pairs, "streaming_llm", "5%", against="full") == 2

    def score(self, *arguments, **variables):
        return subprocess.run(
            [sys.executable, "-m", "kvgauge", "score", "--pairs", str(self.pairs), "--json",
             *map(str, arguments)], capture_output=True, text=True, timeout=120,
            env={**os.environ, "no_proxy": "127.0.0.1", "KVGAUGE_JUDGE_KEY": "secret", **variables})

    def served(self, replies):
        """An address over https, its certificate, and what was asked there."""
        pem = self.home / "server.pem"
        if not pem.exists():
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=judge",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", pem, "-out",
                            self.home / "certificate.pem"], check=True, capture_output=True)
            with open(pem, "a", encoding="utf-8") as file:
                file.write((self.home / "certificate.pem").read_text())
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.replies, server.asked = replies, []
        server.handle_error = lambda *_: None  # a client that does not trust it hangs up
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return (f"https://127.0.0.1:{server.server_port}/v1", self.home / "certificate.pem",
                server.asked)

    @unittest.skipUnless(shutil.which("openssl"), "openssl makes the server's certificate")
    def test_a_judge_over_https(self):
        # In both orders ours; then the first of each order, after a time that it was busy.
        url, certificate, asked = self.served(["B\nbecause", "A", 503, "A", "A"])
        judged = ["--metric", "judge_wins", "--judge", url, "--judge-model", "m"]
        distrusted = self.score(*judged)
        self.assertEqual(distrusted.returncode, 1, distrusted.stderr)
        self.assertIn("no TLS connection", distrusted.stderr)
        self.assertIn("certificate", distrusted.stderr)
        self.assertEqual(asked, [])

        grades = self.home / "grades.jsonl"
        judged += ["--grades", grades]
        capped = self.score(*judged, "--judge-requests", 3, SSL_CERT_FILE=str(certificate))
        self.assertEqual(capped.returncode, 1, capped.stderr)
        self.assertIn("status 503", capped.stderr)
        self.assertEqual(json.loads(capped.stdout)["requests"], 3)
        done = self.score(*judged, SSL_CERT_FILE=str(certificate))
        self.assertEqual(done.returncode, 0, done.stderr)
        table = json.loads(done.stdout)
        self.assertEqual([row["verdict"] for row in table["scores"]], ["win", "tie"])
        self.assertEqual((table["win_rate"], table["reused"], table["requests"], table["tokens"]),
                         (0.75, 2, 2, 14))

        self.assertEqual(len(asked), 5)
        self.assertEqual(asked[0][:2], ("/v1/chat/completions", "Bearer secret"))
        told = [json.loads(line) for line in grades.read_text().splitlines()]
        self.assertEqual([(line["judge"], line["line"], line["reply"]) for line in told],
                         [("m", 1, "B\nbecause"), ("m", 1, "A"), ("m", 2, "A"), ("m", 2, "A")])
        pair = json.loads(self.pairs.read_text().splitlines()[0])
        for line, first in zip(told, (pair["answers"][0], pair["prediction"])):
            self.assertIn(f"[Assistant A]\n{first}\n", line["prompt"])
            self.assertIn(pair["question"], line["prompt"])
        self.assertEqual([line["prompt"] for line in told],
                         [asked[i][2]["messages"][0]["content"] for i in (0, 1, 2, 4)])

    def test_a_judge_of_our_own(self):
        grades = self.home / "local.jsonl"
        first = self.score("--metric", "judge", "--judge", MODEL, "--grades", grades)
        self.assertEqual(first.returncode, 0, first.stderr)
        table = json.loads(first.stdout)
        self.assertEqual((table["requests"], len(table["scores"])), (2, 2))
        self.assertTrue(table["judge_model"].startswith("local "), table)
        again = self.score("--metric", "judge", "--judge", MODEL, "--grades", grades)
        later = json.loads(again.stdout)
        self.assertEqual((later["requests"], later["reused"]), (0, 2))
        self.assertEqual(later["scores"], table["scores"])
        both = self.score("--metric", "judge", "--judge", MODEL, "--judge-model", "m")
        self.assertEqual(both.returncode, 2)
        self.assertIn("expected none with a judge of our own", both.stderr)

    def test_which_answers(self):
        path = self.home / "more.jsonl"
        self.assertEqual(self.store.pairs(path, "full"), 2)
        answers = self.store.answers()
        answers = answers.to_dict("records") if hasattr(answers, "to_dict") else answers
        full = [row for row in answers if row["method"] == "full"]
        for line, row in zip(map(json.loads, path.read_text().splitlines()), full):
            self.assertEqual((line["prediction"], line["answers"]),
                             (row["prediction"], json.loads(row["answers"])))
        groups = self.store.query("SELECT model, sample, group_key FROM result WHERE method = 'full'")
        groups = groups.to_dict("records") if hasattr(groups, "to_dict") else groups
        told = {(line["id"], line["group"]) for line in map(json.loads, path.read_text().splitlines())}
        self.assertEqual(told, {(f"{row['model']}/{row['sample']}", f"{row['model']}/{row['group_key']}")
                                for row in groups})
        with self.assertRaisesRegex(ValueError, "'streaming_llm': more than one row of a task"):
            self.store.pairs(path, "streaming_llm")
        with self.assertRaisesRegex(ValueError, "'h2o': no answers"):
            self.store.pairs(path, "full", against="h2o")


if __name__ == "__main__":
    unittest.main()
