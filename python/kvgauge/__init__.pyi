# SPDX-License-Identifier: Apache-2.0
# The types of the package. Tables are pandas data frames if pandas is installed, else lists of
# dicts.
import os
import pathlib
from types import ModuleType
from typing import Any, Callable, Generic, Iterable, Mapping, Optional, Sequence, TypeVar, Union

import numpy as np

from ._kvgauge import View as View

__version__: str
__all__: list[str]

_Path = Union[str, "os.PathLike[str]"]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)
_Number = TypeVar("_Number", bound=np.generic)
_Stage = Union[str, Mapping[str, Any]]  # an id, or an id and parameters
_Methods = Union["Method", str, Mapping[str, Any], Sequence[Union["Method", str, Mapping[str, Any]]]]
_Names = Union[_Path, Sequence[_Path]]
_Config = Union[None, _Path, Mapping[str, Any]]
_Needs = Union[None, Mapping[str, Any], Callable[..., Mapping[str, Any]]]
_Depends = Iterable[Union[ModuleType, Callable[..., Any], _Path]]
_Table = Any

class Array(np.ndarray[Any, np.dtype[_Number]]):
    def host(self) -> Array[_Number]: ...
    def __dlpack__(self, *, stream: None = None, max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class DeviceArray(Generic[_Number]):
    shape: tuple[int, ...]
    dtype: np.dtype[_Number]
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def host(self) -> Array[_Number]: ...
    def __len__(self) -> int: ...
    def __dlpack__(self, *, stream: Optional[int] = None,
                   max_version: Optional[tuple[int, int]] = None,
                   dl_device: Optional[tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class BadInput(ValueError): ...
class Failed(Exception): ...
class StageTimeout(Exception): ...

class Range:
    least: Optional[float]
    most: Optional[float]
    help: str
    def __init__(self, least: Optional[float] = None, most: Optional[float] = None,
                 help: str = "") -> None: ...

class AllocationRequest:
    layers: int
    kv_heads: int
    length: int
    per_head: int
    protected: int
    window: int
    views: list[View]
    scores: list[Union[Array[np.float32], DeviceArray[np.float32]]]

class Method:
    id: str
    content: dict[str, Any]
    def write(self, directory: _Path) -> str: ...

class Store:
    paths: list[pathlib.Path]
    def __init__(self, *paths: _Path) -> None: ...
    def leaderboard(self, columns: Union[str, Sequence[str]] = "main",
                    **options: Any) -> _Table: ...
    def query(self, sql: str, parameters: Sequence[Any] = ()) -> _Table: ...
    def cells(self) -> _Table: ...
    def samples(self) -> _Table: ...
    def answers(self) -> _Table: ...
    def pairs(self, path: _Path, method: str, budget: Optional[str] = None,
              task: Optional[str] = None, against: Optional[str] = None) -> int: ...
    def speculations(self) -> _Table: ...
    def report(self, path: _Path = "report.html") -> Any: ...

def command(arguments: Iterable[_Path]) -> int: ...
def method(id: str, *, title: Optional[str] = None, family: str = "composition",
           paper: Optional[str] = None, protect: Optional[Mapping[str, Any]] = None,
           place: Optional[Mapping[str, Any]] = None,
           **stages: _Stage) -> Method: ...
def run(config: _Config = None, *, model: Optional[_Names] = None, task: Optional[_Names] = None,
        method: Optional[_Methods] = None, budget: Union[None, str, Sequence[str]] = None,
        db: Optional[_Path] = None, progress: bool = True, **flags: Any) -> Store: ...
def check(config: _Config = None, *, model: Optional[_Names] = None,
          task: Optional[_Names] = None, method: Optional[_Methods] = None,
          budget: Union[None, str, Sequence[str]] = None, **flags: Any) -> dict[str, Any]: ...
def stages() -> dict[str, str]: ...
def score(function: Optional[_Function] = None, *, id: Optional[str] = None, needs: _Needs = None,
          any_time: bool = False, age: Optional[Callable[..., Any]] = None, protects: int = 0,
          version: int = 1, paper: str = "", departures: Sequence[str] = (),
          depends: _Depends = (), time_limit: float = 300.0) -> Any: ...
def allocate(function: Optional[_Function] = None, *, id: Optional[str] = None,
             needs: _Needs = None, scores: bool = False, version: int = 1, paper: str = "",
             departures: Sequence[str] = (), depends: _Depends = (),
             time_limit: float = 300.0) -> Any: ...
def reduce(function: Optional[_Function] = None, *, id: Optional[str] = None,
           needs: _Needs = None, merges_keys: bool = False, version: int = 1, paper: str = "",
           departures: Sequence[str] = (), bytes: str = "", depends: _Depends = (),
           time_limit: float = 300.0) -> Any: ...
def read(stage: Optional[_Class] = None, *, id: Optional[str] = None, needs: _Needs = None,
         version: int = 1, paper: str = "", departures: Sequence[str] = (), bytes: str = "",
         depends: _Depends = (), time_limit: float = 60.0) -> Any: ...
