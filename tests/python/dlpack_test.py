# SPDX-License-Identifier: Apache-2.0
"""Arrays go to and come from other libraries by DLPack, without copies and without harm."""

import gc
import unittest

import numpy as np
from support import Same, samples_of

import kvgauge

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed")


class Exported:
    """An array of another library: nothing of it but DLPack."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = np.ascontiguousarray(array), device

    def __dlpack__(self, **more):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


def lengths_of(view):
    return [-np.linalg.norm(view.keys(head), axis=1) for head in range(view.kv_heads)]


seen = []
kept = []


@kvgauge.score(any_time=True)
def looks(view):
    """Notes whether another array over the same memory is there without a copy."""
    keys = view.keys(0)
    other = np.from_dlpack(keys)
    seen.append((type(keys), keys.__dlpack_device__(), other.shape == keys.shape,
                 other.ctypes.data == keys.ctypes.data, keys.flags.writeable))
    part = keys[1::2]
    seen.append(np.array_equal(np.from_dlpack(part), part))
    seen.append(np.from_dlpack(keys.copy()).ctypes.data != keys.ctypes.data)
    del other, part
    return lengths_of(view)


@kvgauge.score(any_time=True, age=lambda view, scores: [
    np.from_dlpack(scores)[head, :n] + 1 for head, n in enumerate(view.lengths)])
def exports_as_it_ages(view):
    return lengths_of(view)


@kvgauge.score
def on_the_host(view):
    keys = view.keys(0)
    seen.append(keys.host() is keys)
    return lengths_of(view)


@kvgauge.score
def exports(view):
    return [Exported(scores) for scores in lengths_of(view)]


@kvgauge.score
def exports_at_once(view):
    return Exported(np.stack(lengths_of(view)))


@kvgauge.score
def exports_doubles(view):
    return [Exported(scores.astype(np.float64)) for scores in lengths_of(view)]


@kvgauge.score
def elsewhere(view):
    return [Exported(scores, (2, 0)) for scores in lengths_of(view)]


@kvgauge.score
def complex_numbers(view):
    return [scores.astype(np.complex64) for scores in lengths_of(view)]


@kvgauge.score
def words(view):
    return [["1"] * n for n in view.lengths]


@kvgauge.score
def a_dict(view):
    return dict(enumerate(lengths_of(view)))


@kvgauge.score
def no_capsule(view):
    class Liar:
        def __dlpack__(self, **more):
            return "a tensor"
    return [Liar() for _ in view.lengths]


@kvgauge.score
def keeps_an_export(view):
    kept.append(np.from_dlpack(view.keys(0)))
    return lengths_of(view)


@kvgauge.score
def raises_and_keeps_the_view(view):
    kept.append(view)
    raise ValueError("on purpose")


@kvgauge.reduce
def weights_of_no_number(view, scores, allotted):
    return [{"keep": np.arange(n), "log_weight": np.full(n, np.nan)} for n in allotted]


@kvgauge.allocate
def counts_in_an_array(request):
    return np.full(request.layers, request.per_head)


@kvgauge.allocate
def exported_counts(request):
    return Exported(np.full((request.layers, request.kv_heads), request.per_head))


class Exchange(Same):
    def answers_alike(self, *scorers):
        found = samples_of(kvgauge.method("b", score="knorm"),
                           *(kvgauge.method(name, score=name) for name in scorers))
        for name in scorers:
            self.same(found, name, "b")

    def test_numpy_sees_the_same_memory(self):
        seen.clear()
        self.answers_alike("looks")
        self.assertGreater(len(seen), 0)
        for one in seen:
            self.assertIn(one, (True, (kvgauge.Array, (1, 0), True, True, False)))

    def test_the_host_needs_no_copy(self):
        seen.clear()
        self.answers_alike("on_the_host")
        self.assertTrue(seen and all(seen))

    def test_scores_that_are_exported_and_age(self):
        found = samples_of(kvgauge.method("p", score="exports_as_it_ages",
                                          trigger={"id": "interval", "steps": 1}))
        self.assertTrue(all(row["status"] == "ok" for row in found["p"]), found["p"])

    def test_scores_of_another_library(self):
        self.answers_alike("exports", "exports_at_once", "exports_doubles")

    def test_allotments_of_another_library(self):
        found = samples_of(*(kvgauge.method(name, score="knorm", allocate=name)
                             for name in ("counts_in_an_array", "exported_counts")))
        self.same(found, "counts_in_an_array", "exported_counts")

    def test_wishes_that_host_memory_cannot_fulfil(self):
        array = np.arange(3.0).view(kvgauge.Array)
        with self.assertRaisesRegex(BufferError, "streams"):
            array.__dlpack__(stream=1)
        with self.assertRaisesRegex(BufferError, "host memory"):
            array.__dlpack__(dl_device=(2, 0))
        with self.assertRaisesRegex(BufferError, "complex"):
            np.zeros(2, np.complex64).view(kvgauge.Array).__dlpack__()
        self.assertIn("dltensor_versioned", repr(array.__dlpack__(max_version=(1, 0))))
        self.assertNotIn("versioned", repr(array.__dlpack__()))


class Checked(Same):
    def why(self, **stages):
        """Why the method failed; another one beside it does not."""
        return self.fault(samples_of(kvgauge.method("p", **stages),
                                     kvgauge.method("b", score="knorm")), "p")


class Faults(Checked):
    def test_memory_of_a_device(self):
        self.assertRegex(self.why(score="elsewhere"),
                         r"score.elsewhere: scores: an array in the memory of CUDA device 0; .*host")

    def test_numbers_that_are_not_real(self):
        self.assertRegex(self.why(score="complex_numbers"),
                         "score.complex_numbers: scores is an array of complex64; expected real")
        self.assertRegex(self.why(score="words"), "score.words: .*expected real numbers")

    def test_results_that_are_no_arrays(self):
        self.assertRegex(self.why(score="a_dict"), "returned a dict; expected an array")
        self.assertRegex(self.why(score="no_capsule"), "gave no tensor of DLPack 1")

    def test_weights_that_are_no_numbers(self):
        self.assertRegex(self.why(score="knorm", reduce="weights_of_no_number"),
                         "log_weight of head 0: number 0 is nan, not finite")

    def test_an_export_that_is_kept(self):
        self.assertRegex(self.why(score="keeps_an_export"), "keeps an array .* after its call")
        kept.clear()
        gc.collect()

    def test_a_view_that_is_kept_by_a_call_that_fails(self):
        self.assertRegex(self.why(score="raises_and_keeps_the_view"), "on purpose")
        with self.assertRaisesRegex(RuntimeError, "uses a view after its call"):
            kept[0].keys(0)
        kept.clear()


if torch is not None:
    @kvgauge.score
    def torch_scores(view):
        shared = torch.from_dlpack(view.keys(0))
        seen.append(shared.data_ptr() == view.keys(0).ctypes.data)
        del shared
        return [-torch.from_dlpack(view.keys(head)).norm(dim=1) for head in range(view.kv_heads)]

    @kvgauge.score
    def torch_bfloats(view):
        scores = [-torch.from_dlpack(view.keys(head)).norm(dim=1).bfloat16()
                  for head in range(view.kv_heads)]
        return torch.stack(scores)

    @kvgauge.score
    def widened_bfloats(view):
        scores = [-torch.from_dlpack(view.keys(head)).norm(dim=1).bfloat16().float()
                  for head in range(view.kv_heads)]
        return torch.stack(scores)

    @kvgauge.score
    def torch_keeps(view):
        kept.append(torch.from_dlpack(view.keys(0)))
        return lengths_of(view)

    @kvgauge.score
    def torch_writes(view):
        torch.from_dlpack(view.values(0)).mul_(2)
        return lengths_of(view)

    @kvgauge.score
    def torch_gradients(view):
        weight = torch.ones(view.key_dim, requires_grad=True)
        return [torch.from_dlpack(view.keys(head)) @ weight for head in range(view.kv_heads)]

    @kvgauge.reduce
    def torch_best(view, scores, allotted):
        scores = torch.from_dlpack(scores)
        return [torch.sort(scores[head, :view.lengths[head]], descending=True,
                           stable=True).indices[:count] for head, count in enumerate(allotted)]


@needs_torch
class Torch(Checked):
    def test_scores_without_a_copy(self):
        seen.clear()
        self.same(samples_of(kvgauge.method("p", score="torch_scores"),
                             kvgauge.method("b", score="knorm")), "p", "b")
        self.assertTrue(seen and all(seen))

    def test_bfloats(self):
        self.same(samples_of(kvgauge.method("p", score="torch_bfloats"),
                             kvgauge.method("q", score="widened_bfloats")), "p", "q")

    def test_a_plan(self):
        self.same(samples_of(kvgauge.method("p", score="knorm", reduce="torch_best"),
                             kvgauge.method("b", score="knorm")), "p", "b")

    def test_a_tensor_that_is_kept(self):
        self.assertRegex(self.why(score="torch_keeps"), "keeps an array .* after its call")
        kept.clear()
        gc.collect()

    def test_writing_into_the_cache(self):
        self.assertRegex(self.why(score="torch_writes"),
                         "score.torch_writes writes into an array of a view")

    def test_a_tensor_with_gradients(self):
        self.assertRegex(self.why(score="torch_gradients"), "score.torch_gradients: .*grad")


if __name__ == "__main__":
    unittest.main()
