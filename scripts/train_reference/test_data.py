"""Checks of the generator and the tokenizer. Run: python test_data.py"""
import pathlib
import tempfile
import unittest

import tasks
import vocabulary


class Data(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        vocabulary.train(path / "tokenizer.model", 1280)
        vocabulary.write_config(path)
        cls.codec = vocabulary.Codec(path / "tokenizer.model")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def pages(self):
        for task in tasks.TASKS:
            for length in (128, 1024):
                for limit in (1, 10**6):
                    for index in range(5):
                        yield tasks.make(self.codec, task, length, tasks.HELD_OUT, 1, index, limit)

    def test_pieces_encode_like_the_whole_text(self):
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained(self.folder.name)
        for page in self.pages():
            text = "".join(string for string, _ in page.segments)
            self.assertEqual(page.ids, [1] + self.codec.processor.encode(text))
            self.assertEqual(page.ids, tokenizer(text).input_ids)
            self.assertEqual(text, tokenizer.decode(page.ids, skip_special_tokens=True))

    def test_pages_fit_and_ask(self):
        for page in self.pages():
            self.assertLessEqual(len(page.ids), page.limit)
            self.assertIn(True, page.counts)
            self.assertEqual(len(page.ids), len(page.counts))

    def test_a_prompt_ends_in_words_that_stand_before_the_answer(self):
        for task in ("key_value", "needles", "passages"):
            for index in range(10):
                page = tasks.make(self.codec, task, 512, tasks.HELD_OUT, 1, index, limit=1)
                prompt, answer = tasks.prompt_and_answer(page)
                lead = " ".join(prompt.split()[-4:])
                self.assertIn(f"{lead.split(' - ')[-1].lstrip('- ')} {answer}", prompt)

    def test_splits_differ_and_streams_repeat(self):
        def text(split):
            page = tasks.make(self.codec, "needles", 256, split, 1, 0)
            return "".join(string for string, _ in page.segments)
        self.assertEqual(text(tasks.TRAIN), text(tasks.TRAIN))
        self.assertNotEqual(text(tasks.TRAIN), text(tasks.HELD_OUT))


if __name__ == "__main__":
    unittest.main()
