# SPDX-License-Identifier: Apache-2.0
"""L-Eval's script for Llama-2-chat and auto_eval.py. The Llama-2 tags are taken off the prompts: a
task has the chat template of its model. The system text stands in a prompt where the task file has it
there."""

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile
import types

import task_goldens
from task_goldens import OUTPUTS, SHORT, TEXTS, load, one

REPOSITORY = "OpenLMLab/LEval"
COMMIT = "cd34b050269148aed75acbbe4a599873ad0f37e9"
HOW = (
    "prompts and which records count: build_key_data_pairs and main of Baselines/llama2-chat-test.py,"
    " without Llama-2's tags; scores: what auto_eval.py does with a prediction, its functions called"
    " in its order. The sentence splitter is left out: only ROUGE-Lsum sees it, which does not count"
)
PACKAGES = ("rouge-score",)

CLOSED = ["coursera", "quality", "topic_retrieval_longchat", "tpo", "gsm100", "codeU", "sci_fi"]
SYSTEM_IN_PROMPT = ("quality", "tpo", "sci_fi", "codeU")


class Prompts:
    """Runs the script over records, with a tokenizer that keeps the texts."""

    def __init__(self, root):
        sys.path.insert(0, str(root))
        task_goldens.stub("torch", "torch.nn", "transformers", "datasets", "llama_flash_attn_monkey_patch")
        sys.modules["torch"].nn = types.SimpleNamespace(Module=object)
        self.module = load(root / "Baselines/llama2-chat-test.py", "leval_llama2")
        self.root = root

    def __call__(self, name, metric, records):
        texts = []

        def tokenizer(text, return_tensors=None):
            texts.append(text)
            return Inputs()

        class Inputs(dict):
            def __init__(self):
                super().__init__(input_ids=[[0]])
                self.input_ids = types.SimpleNamespace(size=lambda: [1, 0])

            def to(self, device):
                return self

        tokenizer.decode = lambda ids: ""
        module = self.module
        module.tokenizer, module.device = tokenizer, None
        module.model = types.SimpleNamespace(generate=lambda **_: [[]])
        module.open_source_model, module.max_length = "m", 1 << 40
        module.args = types.SimpleNamespace(metric=metric, task_name=None, mc_tasks=False, task_path=None)
        # The script's own choice of records, over one data set.
        module.build_key_data_pairs.__globals__["load_dataset"] = (
            lambda _, task, split: records if task == name else []
        )
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                module.key_data_pairs = pairs = {}
                module.build_key_data_pairs(module.args, pairs, "Predictions/m")
                for key in [k for k in pairs if f"/{name}." not in k]:
                    del pairs[key]
                kept = list(*pairs.values())
                texts.clear()
                with contextlib.redirect_stdout(io.StringIO()):
                    module.main()
            finally:
                os.chdir(before)
        # The document is tokenized to count it, before its questions and for what is printed.
        documents = {r["input"] for r in records}
        system = module.get_sys_prompt(module.args, name)
        prompts = [self.bare(t, system, name) for t in texts if t not in documents]
        facts = [t for t in prompts if t[1] is None]
        asked = [t for t in prompts if t[1] is not None]
        return kept, asked, facts

    @staticmethod
    def bare(text, system, name):
        """The user's text, and what stands behind the closing tag; without tags (None)."""
        open_tags = "[INST]<<SYS>>\n" + system + "\n<</SYS>>\n\n"
        if not text.startswith(open_tags):
            return text, None
        text = text[len(open_tags) :]
        user, _, prefix = text.rpartition("[/INST]")
        if not user:
            user, prefix = text, ""
        return (system if name in SYSTEM_IN_PROMPT else "") + user, prefix


class Scores:
    def __init__(self, root):
        from rouge_score import rouge_scorer

        self.rouge_scorer = rouge_scorer
        nltk = types.ModuleType("nltk")
        nltk.sent_tokenize = lambda text: [text]
        sys.modules["nltk"] = nltk
        datasets = types.ModuleType("datasets")
        datasets.Metric, datasets.load_dataset = object, None
        sys.modules["datasets"] = datasets
        sys.modules.pop("rouge", None)
        sys.path.insert(0, str(root / "Evaluation"))
        self.module = load(root / "Evaluation/auto_eval.py", "leval_auto_eval")
        self.em = importlib.import_module("em")
        self.rouge = importlib.import_module("rouge")
        sys.path.remove(str(root / "Evaluation"))

    def __call__(self, name, kind, prediction, answer):
        m = self.module
        m.args = types.SimpleNamespace(pred_file=f"x/{name}.pred.jsonl")
        with contextlib.redirect_stdout(io.StringIO()):
            if name in ("coursera", "quality", "tpo"):
                prediction, answer = m.process_output_mc(prediction), m.process_gt_mc(answer)
            elif name == "gsm100":
                prediction, answer = m.process_math(prediction), m.process_math(answer)
            elif name == "codeU":
                prediction = m.process_output_code(prediction, answer)
                answer = m.process_gt_code(answer)
            if kind == "exam":
                return m.compute_exact_match([prediction], [[answer]]) / 100
            if kind == "f1":
                return m.compute_f1([prediction], [[answer]]) / 100
            scorer = self.rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
            texts = [self.rouge.postprocess_text(t) for t in (answer, prediction)]
            got = scorer.score(*texts)
            product = 1.0
            for value in got.values():
                product *= value.fmeasure * 100
            return product ** (1.0 / 3.0) / 100

    def judged(self, prediction, answer, which):
        """sci_fi: the story's truth (0) or the world's (1)."""
        want = self.module.process_gt_judge(answer)[which]
        texts = ["x", "x"]
        texts[which] = prediction
        got = self.module.process_output_judge(f"{texts[0]} [fact: {texts[1]}]")[which]
        with contextlib.redirect_stdout(io.StringIO()):
            return self.module.compute_exact_match([got], [[want]]) / 100


def records(answers, kinds):
    return [
        {"input": TEXTS[i % len(TEXTS)], "instructions": [SHORT[(i + k) % len(SHORT)] for k in range(len(a))],
         "outputs": a, "source": "s", "evaluation": kinds[i % len(kinds)]}
        for i, a in enumerate(answers)
    ]  # fmt: skip


def closed(golden, prompts, scores):
    letters = [["A", "B. two"], ["ABD", "D\nbecause"], ["(C) three", "AC"]]
    numbers = [["18", "The answer is 1,250."], ["so 3.75\n#### 3", "\u0663"]]
    words = [["the role of art", "2.0"], ["Stra\u00dfe", "[1, 2.0, 'x']"]]
    outputs = {
        "letters": ["A", "B", " B", "AB", "A B D", "A, B and D", "ABD.", "B) two", "D\n", "the answer is C.",
                    "BA", "ABCD", "\u0410", "E", "Question A", "AC AC", "a"],
        "numbers": ["18", "The answer is 18.", "The answer is  18", "It is 18.0", "-18", "3", "x 3.75 y",
                    "The answer is $1,250", "\u0663", "The answer is \u0663.", "so 3\n\n4"],
        "words": ["the role of art", "The Role of  Art!", "2", "2.0", " 2e0 ", "two", "STRASSE", "stra\u00dfe",
                  "[1, 2, x]", "the final output is [1, 2, 'x'] .", "The value of x will be 2.0", "1_0", "nan"],
    }  # fmt: skip
    for name in CLOSED[:-1]:
        kind = {"gsm100": "numbers", "codeU": "words", "topic_retrieval_longchat": "words"}.get(name, "letters")
        made = records({"letters": letters, "numbers": numbers, "words": words}[kind], ["exam"])
        kept, asked, _ = prompts(name, "exam_eval", made)
        rows = [
            one(s, text, lambda: scores(name, "exam", text, a), question=q)
            for s, record in enumerate(kept)
            for q, a in enumerate(record["outputs"])
            for text in OUTPUTS + outputs[kind]
        ]
        add(golden, name.lower(), made, kept, asked, rows)
    made = records([["True [fact: False]", "false [Fact: True]"], ["True. [fact: True]"]], ["exam"])
    for record in made:
        record["instructions"] = [
            t + " based on the world described in the document." for t in record["instructions"]
        ]
    kept, asked, facts = prompts("sci_fi", "exam_eval", made)
    outputs = OUTPUTS + ["True", " false.", "It is true", "untrue", "False or true", "\u0130true", "TRUE\n"]
    for which, name, texts in ((0, "sci_fi", asked), (1, "sci_fi_fact", facts)):
        rows = [
            one(s, text, lambda: scores.judged(text, a, which), question=q)
            for s, record in enumerate(kept)
            for q, a in enumerate(record["outputs"])
            for text in outputs
        ]
        add(golden, name, made, kept, texts, rows)


def add(golden, name, made, kept, asked, rows):
    samples, prefixes, at = [], [], 0
    for record in kept:
        part = asked[at : at + len(record["instructions"])]
        at += len(part)
        samples.append([user for user, _ in part])
        prefixes.append([prefix or "" for _, prefix in part])
    assert at == len(asked), name
    golden.add(f"leval/{name}", made, samples, rows)
    for sample, prefix in zip(golden.tasks[-1]["samples"], prefixes):
        sample["prefixes"] = prefix


def make(root, golden):
    prompts = Prompts(root)
    module = prompts.module
    scores = Scores(root)
    closed(golden, prompts, scores)
    answers = [
        ["a short answer", "parted\nby a\tbreak,  and two blanks"],
        ["asked of people only"],
        ["\u3000wide blanks\u00a0count\u2003too ", "The\u0301 cafe\u0301 of \u0662 men"],
        ["for another model to judge"],
        ["one", "An apple a day. Keeps the doctor away!"],
    ]
    outputs = OUTPUTS + ["a short answer", "The short  ANSWER.", "parted by a break and two blanks",
                         "wide blanks count too", "one one one", "apple day, keeps the doctor",
                         "\u0662 men", "caf\u00e9"]  # fmt: skip
    f1 = set("financial_qa legal_contract_qa multidoc_qa natural_question narrative_qa scientific_qa".split())
    for name in module.datasets_open_ended:
        kind = "f1" if name in f1 else "rouge"
        made = records(answers, [kind, "human", kind, "LLM", kind])
        kept, asked, _ = prompts(name, "ngram_eval", made)
        rows = [
            one(s, text, lambda: scores(name, kind, text, a), question=q)
            for s, record in enumerate(kept)
            for q, a in enumerate(record["outputs"])
            for text in outputs
        ]
        add(golden, name, made, kept, asked, rows)
