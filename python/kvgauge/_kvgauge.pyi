# SPDX-License-Identifier: Apache-2.0
# The extension module. Arrays are read-only views of the program's own memory: they end with the
# call that they were given to, so keep copies. Each is a kvgauge.Array, or a kvgauge.DeviceArray on
# a device; both export DLPack and have host().
from typing import Any, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import Array, DeviceArray

_Floats = Union[Array[np.float32], DeviceArray[np.float32]]
_Integers = Union[Array[np.int32], DeviceArray[np.int32]]

version: str

def run_command(arguments: Sequence[str]) -> int:
    """Runs one command line without the program's name; returns its exit code."""

def check_store(path: str) -> None:
    """Raises a ValueError unless the file is a result store that this version reads."""

def export_array(array: NDArray[Any], versioned: bool, copy: bool) -> Any:
    """The array's memory as a DLPack capsule."""

def export_device_array(owner: Any, versioned: bool) -> Any:
    """The memory of a lent array on a device as a DLPack capsule."""

def copy_device_array(owner: Any) -> NDArray[Any]:
    """A copy of a lent array on a device in the host's memory."""

def register_stage(kind: str, id: str, description: dict[str, Any]) -> None: ...

class View:
    """One layer of one sequence as a stage sees it; it lives as long as the call.

    Entries are in cache order, which is ascending position; heads may hold different numbers.
    """

    layer: int
    layers: int
    kv_heads: int
    query_heads: int
    key_dim: int
    value_dim: int
    hidden_size: int
    tokens: int  # that the sequence has seen, evicted ones included
    lengths: list[int]  # entries that each KV head holds
    width: int  # the largest of them
    decoding: bool  # the signals are those of a decoded row, not of the prompt
    seed: int  # for random choices: equal for equal run seed and sample

    # Entries of one KV head from `first` on.
    def keys(self, head: int, first: int = 0) -> _Floats:
        """[entries, key_dim], rotated as attention sees them."""
    def raw_keys(self, head: int, first: int = 0) -> _Floats:
        """[entries, key_dim], before rotation. Needs raw_keys."""
    def values(self, head: int, first: int = 0) -> _Floats:
        """[entries, value_dim]"""
    def positions(self, head: int, first: int = 0) -> _Integers:
        """[entries], in the prompt and the answer."""
    def of_class(self, name: str, head: int, first: int = 0) -> _Floats:
        """[entries], 1 for special, punctuation or separator tokens. Needs token_classes."""
    def of_modality(self, name: str, head: int, first: int = 0) -> _Floats:
        """[entries], 1 for text, image or video. Needs modality."""
    def visual_places(self, axis: str, head: int, first: int = 0) -> _Integers:
        """[entries], the item, frame, row or column that each shows; -1: none. Needs modality."""

    # After the prompt.
    def window_attention(self, rows: int) -> _Floats:
        """[query_heads, rows, width], of the last prompt rows. Needs window."""
    def window_queries(self, rows: int) -> _Floats:
        """[rows, query_heads, key_dim], rotated. Needs window."""
    def question_rows(self, most: int) -> int:
        """Prompt rows behind the last picture. Needs question_rows."""
    def last_row(self, of_layer: int) -> _Floats:
        """[query_heads, prompt], attention of the last row in that layer. Needs last_row_of."""
    def column_sums(self) -> _Floats:
        """[query_heads, width], attention summed over all prompt rows. Needs column_sums."""
    def column_squares(self) -> _Floats:
        """[query_heads, width], its squares. Needs column_squares."""
    def query_mean(self, from_token: int) -> _Floats:
        """[query_heads, key_dim], before rotation. Needs query_moments."""
    def query_covariance(self, from_token: int) -> _Floats:
        """[query_heads, key_dim, key_dim], before rotation. Needs query_moments."""

    # At any time.
    def rotations(self, first: int, count: int) -> _Floats:
        """[2, count, rotary_dim / 2]: cosines and sines of positions."""
    def output_weights(self, query_head: int) -> _Floats:
        """[value_dim, hidden_size], of the output projection. Needs output_weights."""

    # While decoding.
    def step_attention(self) -> _Floats:
        """[query_heads, width], of the newest token. Needs step_attention."""
    def step_queries(self) -> _Floats:
        """[query_heads, key_dim], rotated. Needs step_queries."""
