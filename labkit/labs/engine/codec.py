"""The one way from an answer to its judge: plain data, as bytes.

A value crosses by its exact type or not at all. `type(x) is float` decides, never `isinstance` and
never what the value says of itself, because an answer may bring a float that equals everything.
Each value has one encoding and each encoding one value: equal bytes mean the same types, shapes
and bits, NaN payloads and -0.0 included. What a judge need not see stays behind: a tensor's graph,
device and strides, that it was a Parameter, an array's byte order, that two lists were one.

The judge reads bytes that the answer's process wrote, so `decode_value` believes nothing: no
pickle, no import by a name in the data, nothing allocated for a size that the bytes do not hold.

An encoding is a tag and its content; numbers are little-endian, a size or a count takes 8 bytes:

    N T F   None, True, False           l t   count, items
    i       size, two's complement      d     count, then key and value by turns
    f       the 8 bytes of a double     R     place in RECORDS, then the fields
    s b     size, UTF-8 or bytes        D     place in DTYPES (a torch.dtype)
    X A     place in DTYPES, number of dimensions, dimensions, elements (torch tensor, numpy array)
    S       place in DTYPES, element (a numpy scalar)
"""

import json
import math
import struct
import sys
import types
from collections.abc import Collection
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, NoReturn, TypeVar, get_args, get_type_hints

from labkit.formats.float_formats import FloatFormat

_T = TypeVar("_T")

# Bytes an element. longdouble is missing: its padding would make equal values differ.
DTYPES = {"bool": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "int8": 1, "int16": 2}
DTYPES |= {"int32": 4, "int64": 8, "float16": 2, "float32": 4, "float64": 8}
DTYPES |= {"complex64": 8, "complex128": 16}
NUMPY_DTYPES = tuple(DTYPES)
DTYPES |= {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1}
DTYPES |= {"float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1}
DIMENSIONS = 64  # numpy allows no more

# Keys of one dict that may share a hash. The powers of two among the doubles need 35; with no
# bound, chosen keys (multiples of 2**61 - 1) make a dict quadratic.
SAME_HASH = 64


class CodecError(ValueError):
    """A value that cannot cross, or bytes that are no value."""


@dataclass(frozen=True, kw_only=True)
class CodecLimits:
    """What one value may cost: `bytes`, `depth` of containers, `elements` (values in all).

    An int has at most `int_bits`. Python refuses to write one of more than 4,300 digits as text, so
    a judge could not quote it. 2**12 bits are 1,233 digits: its square and its cube can be quoted
    too, and an exact sum of doubles, in units of 2**-1074, takes some 2,100 bits.
    """

    bytes: int = 2**26
    depth: int = 64
    elements: int = 2**17
    int_bits: int = 2**12

    def __post_init__(self) -> None:
        # A level takes 3 Python frames: 150 levels fit into the interpreter's 1000.
        if not 0 <= self.depth <= 150:
            raise ValueError(f"depth is {self.depth}; the codec nests 0 to 150 containers")


LIMITS = CodecLimits()


@dataclass(frozen=True)
class Raised:
    """An exception as data: the name of its type, its message, the learner's own line or ""."""

    type_name: str
    message: str
    line: str


@dataclass(frozen=True)
class Foreign:
    """What an answer handed over and no judge can be shown, in words: "a set", "the type float"."""

    what: str

    def __repr__(self) -> str:
        return self.what


def _fields(record: type) -> dict[str, type]:
    """A record's fields with their exact types; ``int | None`` is an int once it is made."""
    hints = get_type_hints(record)
    return {
        one.name: (get_args(hints[one.name]) or (hints[one.name],))[0] for one in fields(record)
    }


RECORDS: dict[type, dict[str, type]] = {
    record: _fields(record) for record in (Raised, FloatFormat, Foreign)
}
"""The classes that cross, in the order of their places in an encoding."""


def encode_value(value: Any, *, limits: CodecLimits = LIMITS) -> bytes:
    """Return the one encoding of `value`; CodecError names what cannot cross, and where it stands.

    >>> encode_value([1.5, {"w": len}])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    CodecError: result[1]["w"]: a function cannot be handed over; return numbers, tensors or lists
    """
    writer = _Writer(limits)
    writer.value(value)
    return bytes(writer.out)


def decode_value(data: bytes, *, limits: CodecLimits = LIMITS) -> Any:
    """The value that `encode_value` wrote; CodecError if `data` is not exactly its output."""
    if type(data) is not bytes or len(data) > limits.bytes:
        raise CodecError(f"an encoding is at most {limits.bytes:,} bytes; this is another thing")
    value = _Reader(data, limits).value()
    # Settles the rest: bytes to spare, padded ints, keys that come twice, bools that are neither,
    # records that tidy up what they were given.
    writer = _Writer(limits)
    writer.value(value)
    if writer.out != data:
        raise CodecError("these bytes can be read, yet no value is written like that")
    return value


class _Writer:
    def __init__(self, limits: CodecLimits):
        self.limits, self.left = limits, limits.elements
        self.out = bytearray()
        self.path = ["result"]
        self.open: list[int] = []  # ids of the containers around the value

    def refuse(self, why: str) -> NoReturn:
        raise CodecError(f"{''.join(self.path)}: {why}") from None

    def need(self, size: int) -> None:
        if size > self.limits.bytes - len(self.out):
            self.refuse(f"more than {self.limits.bytes:,} bytes in all; return less")

    def put(self, tag: bytes, content: Any = b"", *, size: int | None = None) -> None:
        head = tag if size is None else tag + struct.pack("<Q", size)
        self.need(len(head) + len(content))
        self.out += head
        self.out += content

    def value(self, x: Any, key: bool = False) -> None:
        if self.left <= 0:
            self.refuse(f"more than {self.limits.elements:,} values in all; return tensors")
        self.left -= 1
        kind = type(x)
        # `is`, and no table of types: a metaclass decides how its classes hash and compare.
        if x is None:
            self.put(b"N")
        elif kind is bool:
            self.put(b"T" if x else b"F")
        elif kind is int:
            bits, most = x.bit_length(), self.limits.int_bits
            if bits > most:
                self.refuse(f"an int of {bits:,} bits; return one of at most {most:,} bits")
            size = bits // 8 + 1
            self.put(b"i", x.to_bytes(size, "little", signed=True), size=size)
        elif kind is float:
            self.put(b"f", struct.pack("<d", x))
        elif kind is str:
            self.need(len(x))
            try:
                text = x.encode()
            except UnicodeEncodeError:
                self.refuse("a str with half a surrogate pair; return text that UTF-8 can hold")
            self.put(b"s", text, size=len(text))
        elif kind is bytes:
            self.put(b"b", x, size=len(x))
        elif kind is tuple or (kind is list and not key):
            self.enter(x, b"t" if kind is tuple else b"l")
            for i, item in enumerate(tuple(x)):
                self.child(f"[{i}]", item, key)
            self.open.pop()
        elif kind is dict and not key:
            self.enter(x, b"d")
            hashes: dict[int, int] = {}
            for i, (name, item) in enumerate(tuple(x.items())):
                self.child(f", key {i}", name, True)
                if _crowded(hashes, name):
                    self.refuse(f"more than {SAME_HASH} keys with one hash; return a list of pairs")
                self.child(_step(name, i), item)
            self.open.pop()
        elif not any(write(x, kind, key) for write in (self.record, self.torch, self.numpy)):
            self.refuse(_advice(kind, key))

    def enter(self, x: list | tuple | dict, tag: bytes) -> None:
        if id(x) in self.open:
            self.refuse(f"this {type(x).__name__} holds itself; return it without the loop")
        if len(self.open) >= self.limits.depth:
            self.refuse(f"more than {self.limits.depth} containers deep; return something flatter")
        self.open.append(id(x))
        self.put(tag, size=len(x))

    def child(self, step: str, x: Any, key: bool = False) -> None:
        self.path.append(step)
        self.value(x, key)
        self.path.pop()

    def record(self, x: Any, kind: type, key: bool) -> bool:
        for place, (record, types_of) in enumerate(RECORDS.items()):
            if kind is record:
                self.put(b"R" + bytes([place]))
                for field, allowed in types_of.items():
                    item = getattr(x, field, None)
                    if type(item) is not allowed:
                        where = f"{record.__name__}.{field}"
                        self.refuse(f"{where} is not exactly of type {allowed.__name__}")
                    self.child(f".{field}", item, key)
                return True
        return False

    def torch(self, x: Any, kind: type, key: bool) -> bool:
        torch = sys.modules.get("torch")
        if torch is None:  # never imported: x is nothing of torch's
            return False
        if kind is torch.dtype:
            self.dtype(b"D", str(x)[len("torch.") :], DTYPES)
        elif not key and (kind is torch.Tensor or kind is torch.nn.Parameter):
            try:
                # Through the class: an instance may carry a detach of its own, its result does not.
                self.tensor(torch, torch.Tensor.detach(x))
            except CodecError:
                raise
            except Exception as error:  # torch raises whatever the kind of tensor suggests
                self.refuse(f"torch cannot copy this tensor: {str(error)[:200]}")
        else:
            return False
        return True

    def tensor(self, torch: types.ModuleType, x: Any) -> None:
        self.dtype(b"X", str(x.dtype)[len("torch.") :], DTYPES)
        if x.layout is not torch.strided or x.device.type == "meta":
            self.refuse(f"a tensor with layout {x.layout} on {x.device}; return a dense one")
        self.shape(tuple(x.shape), x.element_size())
        if x.numel() and not x.untyped_storage().nbytes():
            self.refuse("the storage of this tensor was freed; return one that holds its numbers")
        x = x.cpu().resolve_conj().resolve_neg().contiguous()
        # Not reshape, which leaves a single element its odd stride; not clone, which mends bools.
        raw = x.as_strided((x.numel(),), (1,)).view(torch.uint8).numpy()
        self.elements(memoryview(raw), x.dtype is torch.bool)

    def numpy(self, x: Any, kind: type, key: bool) -> bool:
        np = sys.modules.get("numpy")
        if np is None:
            return False
        if issubclass(kind, np.generic) and kind is np.generic.dtype.__get__(x).type:
            name, raw = np.dtype(kind).name, np.generic.tobytes(x)
            self.dtype(b"S", name, NUMPY_DTYPES)
        elif kind is np.ndarray and not key:
            name = x.dtype.name
            self.dtype(b"A", name, NUMPY_DTYPES)
            self.shape(x.shape, x.itemsize)
            raw = x.astype(np.dtype(name).newbyteorder("<"), copy=False).tobytes()
        else:
            return False
        self.elements(raw, name == "bool")
        return True

    def dtype(self, tag: bytes, name: str, known: Any) -> None:
        if name not in known:
            self.refuse(f"elements of type {name[:60]}; return one of {', '.join(known)}")
        self.put(tag, bytes([list(known).index(name)]))

    def shape(self, shape: tuple, size: int) -> None:
        if len(shape) > DIMENSIONS:
            self.refuse(f"{len(shape)} dimensions; return at most {DIMENSIONS}")
        self.need(_room(shape, size))
        self.put(struct.pack(f"<B{len(shape)}Q", len(shape), *shape))

    def elements(self, raw: Any, is_bool: bool) -> None:
        if is_bool and bytes(raw).strip(b"\x00\x01"):
            self.refuse("a bool that is neither 0 nor 1 in memory; return x != 0")
        self.put(b"", raw)


class _Reader:
    def __init__(self, data: bytes, limits: CodecLimits):
        self.data, self.at = memoryview(data), 0
        self.limits, self.left, self.depth = limits, limits.elements, limits.depth

    def fail(self, why: str) -> NoReturn:
        raise CodecError(f"byte {self.at}: {why}") from None

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            self.fail(f"{size:,} bytes announced, {len(self.data) - self.at:,} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def pick(self, table: Collection[_T]) -> _T:
        place = self.take(1)[0]
        if place >= len(table):
            self.fail(f"place {place} of {len(table)}")
        return tuple(table)[place]

    def value(self) -> Any:
        if self.left <= 0:
            self.fail(f"more than {self.limits.elements:,} values")
        self.left -= 1
        tag = chr(self.take(1)[0])
        match tag:
            case "N" | "T" | "F":
                return {"N": None, "T": True, "F": False}[tag]
            case "i":
                size = self.number()
                if size > self.limits.int_bits // 8 + 1:
                    self.fail(f"an int of {size:,} bytes")
                return int.from_bytes(self.take(size), "little", signed=True)
            case "f":
                return struct.unpack("<d", self.take(8))[0]
            case "s":
                # What is not UTF-8 is replaced, and so written otherwise than it was read.
                return str(self.take(self.number()), "utf-8", "replace")
            case "b":
                return bytes(self.take(self.number()))
            case "l" | "t":
                items = [self.value() for _ in range(self.enter(1))]
                self.depth += 1
                return items if tag == "l" else tuple(items)
            case "d":
                return self.entries()
            case "R":
                return self.record(self.pick(RECORDS))
            case "D":
                return getattr(import_module("torch"), self.pick(DTYPES))
            case "X":
                return self.tensor(self.pick(DTYPES))
            case "A":
                return self.array(self.pick(NUMPY_DTYPES), self.shape())
            case "S":
                return self.array(self.pick(NUMPY_DTYPES), ())[()]
        self.fail(f"no value starts with {tag!r}")

    def enter(self, each: int) -> int:
        count = self.number()
        if count * each > min(self.left, len(self.data) - self.at) or self.depth <= 0:
            self.fail(f"{count:,} items are more than the limits or the bytes allow")
        self.depth -= 1
        return count

    def entries(self) -> dict:
        made: dict = {}
        hashes: dict[int, int] = {}
        for _ in range(self.enter(2)):
            key, item = self.value(), self.value()
            try:
                if not _crowded(hashes, key):
                    made[key] = item
            except Exception:
                # A list has no hash. Where hashes agree, keys are compared: numpy's scalars raise
                # ValueError beside a tuple and OverflowError beside an int too long for them.
                self.fail("no key for this dict")
        self.depth += 1
        return made

    def record(self, record: type) -> Any:
        types_of = RECORDS[record]
        values = {field: self.value() for field in types_of}
        if any(type(values[field]) is not allowed for field, allowed in types_of.items()):
            self.fail(f"no {record.__name__}: a field of another type")
        try:
            return record(**values)
        except (TypeError, ValueError, ArithmeticError) as error:
            self.fail(f"no {record.__name__}: {str(error)[:200]}")

    def shape(self) -> tuple:
        return tuple(self.number() for _ in range(self.take(1)[0]))

    def elements(self, dtype: str, shape: tuple) -> bytearray:
        if len(shape) > DIMENSIONS or _room(shape, DTYPES[dtype]) > self.limits.bytes:
            self.fail("a shape beyond the limits")
        return bytearray(self.take(math.prod(shape) * DTYPES[dtype]))

    def tensor(self, dtype: str) -> Any:
        torch, shape = import_module("torch"), self.shape()
        raw = import_module("numpy").frombuffer(self.elements(dtype, shape), "uint8")
        return torch.from_numpy(raw).view(getattr(torch, dtype)).reshape(shape)

    def array(self, dtype: str, shape: tuple) -> Any:
        np = import_module("numpy")
        raw = self.elements(dtype, shape)
        return np.ndarray(shape, np.dtype(dtype).newbyteorder("<"), buffer=raw)


def _room(shape: tuple, size: int) -> int:
    """Bytes, a dimension of 0 counted as 1: strides are computed even where there is no element."""
    return math.prod(max(d, 1) for d in shape) * size


def _crowded(hashes: dict[int, int], key: Any) -> bool:
    hashes[hash(key)] = hashes.get(hash(key), 0) + 1
    return hashes[hash(key)] > SAME_HASH


def _step(key: Any, place: int) -> str:
    """The key as it stands between brackets, if it is short enough to show."""
    shown = (type(key) is str and len(key) <= 40) or (type(key) is int and abs(key) < 2**64)
    return f"[{json.dumps(key, ensure_ascii=False)}]" if shown else f"[key {place}]"


def _advice(kind: type, key: bool) -> str:
    # Past a metaclass that lies, and past a name that is more than a str.
    name = str.__getitem__(type.__dict__["__name__"].__get__(kind), slice(60))
    if key:
        return f"a {name} in a dict's key; use numbers, str, bytes or tuples of them"
    for plain in (int, float, str, bytes, list, tuple, dict):
        if issubclass(kind, plain):
            return f"{name} is a kind of {plain.__name__}; return {plain.__name__}(...) of it"
    if issubclass(kind, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return "a function cannot be handed over; return numbers, tensors or lists"
    if issubclass(kind, types.GeneratorType | set | frozenset | range | map | zip | filter):
        return f"a {name} cannot be handed over; return list(...) of it"
    if kind is complex:
        return "a complex number cannot be handed over; return its real and imaginary parts"
    return f"a value of type {name} cannot be handed over; return numbers, tensors or lists"
