# SPDX-License-Identifier: Apache-2.0
"""XSum in the prompts that H2O's authors released: their script, run whole with a model that gives
made-up outputs."""

import contextlib
import io
import json
import pathlib
import runpy
import sys
import tempfile
import types

import task_goldens
from task_goldens import OUTPUTS, TEXTS

REPOSITORY = "FMInference/H2O"
COMMIT = "ac75c2a8a9e76832b2a4139b9363373b56336bfb"
HOW = (
    "prompts and scores: h2o_hf/run_summarization.py run whole, with a tokenizer that keeps the prompts"
    " and a model whose outputs are made up; each output ends in ###, where the script cuts: of one"
    " without it the script drops the last sign, which the task does not"
)
PACKAGES = ("rouge",)

STUBS = ("xopen", "matplotlib", "matplotlib.pyplot", "lost_in_the_middle", "lost_in_the_middle.prompting", "transformers.models",
         "transformers", "transformers.models.llama", "transformers.models.llama.configuration_llama", "utils_real_drop",
         "utils_real_drop.modify_llama")  # fmt: skip


class Inputs:
    def __init__(self):
        self.input_ids = self

    def to(self, device):
        return self

    def __getitem__(self, i):
        return [0]


class Run:
    """The script over pairs of a record and an output: the prompt and ROUGE-L of each."""

    def __init__(self, root):
        self.path = root / "h2o_hf/run_summarization.py"

    def __call__(self, record, output):
        prompts = []
        task_goldens.stub(*STUBS)
        torch = types.ModuleType("torch")
        torch.no_grad = contextlib.nullcontext
        torch.manual_seed = lambda seed: None
        torch.device = lambda name: name
        torch.cuda = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
        sys.modules["torch"] = torch

        def tokenizer(text, add_special_tokens, return_tensors):
            prompts.append(text)
            return Inputs()

        tokenizer.convert_ids_to_tokens = lambda ids: []
        tokenizer.decode = lambda ids: output
        ids = types.SimpleNamespace(squeeze=lambda i: [0])
        model = types.SimpleNamespace(
            device="cpu", generate=lambda *a, **k: {"sequences": ids} | Scores(), named_modules=list
        )
        for name in ("half", "eval", "cuda"):
            setattr(model, name, lambda: model)
        transformers = sys.modules["transformers"]
        transformers.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda *a, **k: tokenizer)
        transformers.AutoConfig = types.SimpleNamespace(from_pretrained=lambda *a, **k: None)
        transformers.AutoModelForCausalLM = types.SimpleNamespace(from_pretrained=lambda *a, **k: model)
        with tempfile.TemporaryDirectory() as folder:
            given = pathlib.Path(folder) / "in.jsonl"
            given.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
            before = sys.argv
            sys.argv = [str(self.path), "--input_path", str(given), "--output_path", str(given) + ".out"]
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    held = runpy.run_path(str(self.path), run_name="__main__")
            finally:
                sys.argv = before
        return prompts, held["rougel_score_list"][0]


class Scores(dict):
    """Log-probabilities of no token."""

    def __init__(self):
        super().__init__(scores=[])


def make(root, golden):
    run = Run(root)
    summaries = ["A  cat sat on the stra\u00dfe.", " Ann met Bob.\nThen \u00c9mile left. ", "12 of \u0661\u0662 men.", "x"]
    outputs = OUTPUTS + ["a cat sat", "A  cat sat on the stra\u00dfe.", "Ann met Bob. Then \u00c9mile left.", "men of 12. 12 men",
                         "\n\nAnn met\nBob", "12", ". .", "x"]  # fmt: skip
    for shots in (0, 3, 5):
        records, samples, rows = [], [], []
        for i, text in enumerate(TEXTS):
            article = "".join(
                f"###\nArticle: {TEXTS[(i + k) % len(TEXTS)]}\n\nSummarize the above article in 1 sentence.\n{summaries[k % 4]}\n\n"
                for k in range(shots)
            )
            article += f"###\nArticle: {text}\n\nSummarize the above article in 1 sentence.\n"
            record = {"article": article, "summary_gt": summaries[i % 4], "logprobs": 1, "max_tokens": 64, "n": 1,
                      "stop": ["###"], "temperature": 0.3, "top_p": 1}  # fmt: skip
            records.append(record)
            prompts, _ = run(record, "x###")
            samples.append(prompts)
            for output in outputs if i < 4 else []:
                for end in ("###", "\n###\nArticle: another"):
                    rows.append(task_goldens.one(i, output + end, lambda: run(record, output + end)[1]))  # noqa: B023
        golden.add(f"xsum/h2o_{shots}shot", records, samples, rows)
