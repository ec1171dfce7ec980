# SPDX-License-Identifier: Apache-2.0
"""The tokenizer: SentencePiece BPE trained on generated texts, in both forms that loaders read."""
import io
import json
import re

import sentencepiece

from data import TASKS, Texts

SIZE = 1792
FILES = ("tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
UNSPACED = re.compile(r"(?:^|[(_=])([A-Za-z]+)")


def train(path, program, tasks=TASKS, size=SIZE, split_digits=True, seed=1):
    """Trains on texts of the train split. A line gets a space in front from the tokenizer, so words
    that follow a line break are shown once more behind a sign, where they have none."""
    lines = [" ".join(map(chr, range(33, 127)))] * 3  # every printable sign is a piece
    for length in (256, 512):
        for text in Texts(program, tasks, length, seed, texts=2100):
            for line in text["text"].split("\n"):
                lines.append(line)
                lines += ["(" + word for word in UNSPACED.findall(line)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=size,
        split_digits=split_digits, byte_fallback=True, normalization_rule_name="identity",
        add_dummy_prefix=True, remove_extra_whitespaces=False, character_coverage=1.0,
        num_threads=2, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2)
    path.write_bytes(model.getvalue())
    write_config(path.parent)


def size_of(folder):
    return sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "tokenizer.model")).vocab_size()


def write_config(folder):
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "add_bos_token": True, "add_eos_token": False, **special,
        "clean_up_tokenization_spaces": False, "legacy": False, "model_max_length": 8192,
        "sp_model_kwargs": {}, "tokenizer_class": "LlamaTokenizer"}, indent=2) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")
    # Some loaders read only the JSON form. Its backend is the same BPE, written by transformers.
    from transformers import LlamaTokenizer
    LlamaTokenizer.from_pretrained(folder, legacy=False).backend_tokenizer.save(
        str(folder / "tokenizer.json"))
