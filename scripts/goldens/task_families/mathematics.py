# SPDX-License-Identifier: Apache-2.0
"""MATH-500 and AIME 2025 as kvpress grades them."""

from task_goldens import OUTPUTS, SHORT, one

REPOSITORY = "NVIDIA/kvpress"
COMMIT = "8bb29b9c3078452a86d692f29123fa6c793e2b05"
HOW = (
    "prompts: the template of Zefan-Cai/R-KV@d15c976 run_math.py, restated; scores: score_aime of"
    " evaluation/benchmarks/{math500,aime25}/calculate_metrics.py"
)
PACKAGES = ()

PROMPT = (
    "You are given a math problem.\n\nProblem: {question}\n\n You need to solve the problem step by step."
    " First, you need to provide the chain-of-thought, then provide the final answer.\n\n Provide the final"
    " answer in the format: Final answer:  \\boxed{{}}"
)


def grader(root, name):
    path = root / "evaluation/benchmarks" / name / "calculate_metrics.py"
    source = path.read_text(encoding="utf-8").replace("import pandas as pd", "").replace("df: pd.DataFrame", "df")
    space = {}
    exec(compile(source, str(path), "exec"), space)
    return space["score_aime"]


def make(root, golden):
    answers = ["12", "070", "\\frac{1}{2}", "x", "(1, 2)", "\\frac{1"]
    outputs = OUTPUTS + [
        "12", " 12", "so \\boxed{12}", "\\boxed{12}.", "\\boxed{ 12}", "\\boxed{1} and \\boxed{12}",
        "\\boxed{12} and \\boxed{1}", "boxed{12", "\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", "\\boxed{x}", "x}", "12}3",
        "\\boxed{070}", "\\boxed{70}", "\\boxed{boxed{12}}", "\\boxed{(1, 2)}", "\\boxed{}", "\\boxed{\\text{x}}",
        "Final answer:  \\boxed{12}\n", "\\boxed {12}", "\\fbox{12}",
    ]  # fmt: skip
    for name, field in (("math500", "problem"), ("aime25", "question")):
        score = grader(root, name)
        records = [{field: SHORT[i % len(SHORT)], "answer": a} for i, a in enumerate(answers)]
        samples = [[PROMPT.format(question=record[field])] for record in records]
        rows = [one(s, output, score(output, record["answer"])) for s, record in enumerate(records)
                for output in outputs]  # fmt: skip
        golden.add(name, records, samples, rows)
