"""The tokenizer: SentencePiece BPE trained on the generated text, and a fast encoder for the same."""
import io
import json
import re

import sentencepiece

import tasks

# Where BPE can never join: before a space, between letters, digits and punctuation.
CHUNK = re.compile(r" ?[A-Za-z]+| ?[0-9]+|\n| ?[^A-Za-z0-9\s]+| ")


class Counter:
    """Stands in for the tokenizer while it does not exist: one token a word, digit or sign."""

    def encode_piece(self, string):
        return CHUNK.findall(string)


class Codec:
    """Encodes text in pieces at word boundaries, remembering each piece's ids."""

    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.known = {}
        self.memory = {}

    def _chunk(self, chunk):
        ids = self.known.get(chunk)
        if ids is None:
            # After a neutral letter-free prefix, so that no space is put in front of the chunk.
            prefix = self.processor.encode("(")
            ids = self.processor.encode("(" + chunk)
            assert ids[:len(prefix)] == prefix, chunk
            ids = self.known[chunk] = ids[len(prefix):]
        return ids

    def encode_piece(self, string):
        ids = self.memory.get(string)
        if ids is None:
            ids = [i for chunk in CHUNK.findall(string) for i in self._chunk(chunk)]
            if len(self.memory) < 200000:
                self.memory[string] = ids
        return ids


def train(path, size, seed=1):
    """Trains on generated pages. A line start gets a space from the tokenizer, so the words that
    follow a line break are shown once more behind a sign, where they have none."""
    lines = [" ".join(map(chr, range(33, 127)))] * 3  # every printable sign is a piece
    for index in range(1500):
        for task in tasks.TASKS:
            page = tasks.make(Counter(), task, 256, tasks.TRAIN, f"vocabulary{seed}", index)
            for line in "".join(string for string, _ in page.segments).split("\n"):
                lines.append(line)
                word = re.match(r"[A-Za-z]+", line)
                if word:
                    lines.append("(" + word.group(0))
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=size,
        split_digits=True, byte_fallback=True, normalization_rule_name="identity",
        add_dummy_prefix=True, remove_extra_whitespaces=False, character_coverage=1.0,
        num_threads=2, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2)
    path.write_bytes(model.getvalue())


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
