# SPDX-License-Identifier: Apache-2.0
"""LLMLingua-2: a prompt without the words that a trained encoder lets go, by the llmlingua package (PyPI) with a
tiny encoder of tests/golden/encoders. The model reads what is left, tokenized anew, in a NumPy forward (float64)."""

import os
import tempfile

import numpy as np

from common import GOLDEN
from method_authors_thin import SelectiveContextByAuthors


class LlmLingua2(SelectiveContextByAuthors):
    """Tokens of the text that is left stand on rows of equal tokens where one is near, and on the next row else."""

    near = 64

    def at_the_end(self, ids, logits):
        from tokenizers import Tokenizer

        s, n = self.settings, len(ids)
        self.tokenizer = Tokenizer.from_file(str(GOLDEN / "methods" / "model" / "tokenizer.json"))
        context = [int(i) for i in ids[s.sinks : n - s.recent]]
        reduce = min(s.drop * n / len(context), 1)
        text = self.tokenizer.decode(context, skip_special_tokens=False)
        left = [self.dropped(text, reduce, double) for double in (False, True)]
        assert left[0] == left[1], "rounding decides"
        tokens = self.encode(left[0])
        assert 0 < len(tokens) <= len(context)
        rows, row = [], 0
        for i, token in enumerate(tokens):
            end = min(row + self.near, len(context) - (len(tokens) - i) + 1)
            row = next((at for at in range(row, end) if context[at] == token), row)
            rows.append(s.sinks + row)
            row += 1
        self.rewritten = np.array(ids)
        self.rewritten[rows] = tokens
        self.gone = len(context) - len(tokens)
        return np.r_[: s.sinks, rows, n - s.recent : n].astype(int)

    def read(self, ids, places, again=False):
        return super().read(self.rewritten if again else ids, places, again)

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def dropped(self, text, reduce, double):
        from llmlingua import PromptCompressor, prompt_compressor

        prompt_compressor.tiktoken.encoding_for_model = lambda _: self
        with tempfile.TemporaryDirectory() as parent:
            path = os.path.join(parent, "bert-base-multilingual-cased")
            os.symlink(GOLDEN / "encoders" / "bert", path)
            made = PromptCompressor(path, device_map="cpu", use_llmlingua2=True)
        if double:
            made.model.double()
        return made.compress_prompt_llmlingua2(
            [text], rate=1 - reduce, force_reserve_digit=self.settings.digits)["compressed_prompt"]


CASES = [
    ("llmlingua2",
     dict(method="llmlingua2", budget="none",
          set=["thin.encoder={inputs}/../../encoders/bert", "thin.drop=0.5", "thin.sinks=4", "thin.recent=24",
               "thin.force_reserve_digit=true"]),
     "compress_prompt_llmlingua2 of llmlingua 0.2.2, run in torch, whose words count by the model's own tokenizer; a NumPy"
     " forward of what it leaves, float64",
     LlmLingua2, dict(drop=0.5, sinks=4, recent=24, digits=True)),
]
