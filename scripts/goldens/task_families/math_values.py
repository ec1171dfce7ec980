# SPDX-License-Identifier: Apache-2.0
"""MATH-500 by the data set's own comparison of texts, or by math_verify."""

from math_verify import LatexExtractionConfig, parse, verify

from task_families.mathematics import PROMPT
from task_goldens import OUTPUTS, SHORT, load, one

REPOSITORY = "hendrycks/math"
COMMIT = "985bdc1696e88e8643f081a0ff4719da39f2ae2a"
HOW = (
    "prompts: as in mathematics.py; scores: last_boxed_only_string of modeling/dataset/util.py, then is_equiv of"
    " modeling/math_equivalence.py, or verify of math_verify"
)
PACKAGES = ("math-verify", "latex2sympy2_extended")


def make(root, golden):
    texts = load(root / "modeling/math_equivalence.py")
    boxes = load(root / "modeling/dataset/util.py")
    config = [LatexExtractionConfig()]

    def score(output, answer):
        box = boxes.last_boxed_only_string(output)
        if box is None:
            return 0
        inside = box[box.index("{") + 1 : -1]
        if texts.is_equiv(inside, answer):
            return 1
        gold, said = (parse(f"${text}$", extraction_config=config) for text in (answer, inside))
        return 1 if verify(gold, said) else 0

    answers = ["12", "\\frac{1}{2}", "(1, 2)", "2\\sqrt{3}", "x^2-1", "\\{1,2\\}", "70"]
    outputs = OUTPUTS + [
        "12", "so \\boxed{12}", "\\boxed{ 12}", "\\boxed{1} and \\boxed{12}", "\\boxed{12} and \\boxed{1}", "\\boxed{12",
        "\\boxed{12.0}", "\\fbox{12}", "\\boxed{\\frac{1}{2}}", "\\boxed{0.5}", "\\boxed{\\dfrac12}", "\\boxed{2/4}",
        "\\boxed{(1,2)}", "\\boxed{(2,1)}", "\\boxed{\\left(1,2\\right)}", "\\boxed{\\sqrt{12}}", "\\boxed{x^2-1}",
        "\\boxed{(x-1)(x+1)}", "\\boxed{\\{2,1\\}}", "\\boxed{070}", "\\boxed{70\\text{ cm}}", "\\boxed{x=70}", "\\boxed{}",
        "Final answer:  \\boxed{70^\\circ}\n",
    ]  # fmt: skip
    records = [{"problem": SHORT[i % len(SHORT)], "answer": a} for i, a in enumerate(answers)]
    samples = [[PROMPT.format(question=record["problem"])] for record in records]
    rows = [one(s, output, score(output, record["answer"])) for s, record in enumerate(records) for output in outputs]
    golden.add("math500_equal", records, samples, rows)
