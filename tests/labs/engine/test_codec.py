"""What goes in comes out bit for bit; what is not an encoding never gets in."""

import math
import struct
import subprocess
import sys
import tracemalloc
from collections import OrderedDict, namedtuple
from enum import IntEnum

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.formats import FORMATS, FloatFormat
from labkit.labs.engine.codec import (
    DTYPES,
    LIMITS,
    NUMPY_DTYPES,
    SAME_HASH,
    CodecError,
    CodecLimits,
    Foreign,
    Raised,
    decode_value,
    encode_value,
)

# On two shared cores a slow example says nothing about the codec.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bits(x):
    """A value as types and bytes, so that == compares what nothing can lie about."""
    if type(x) is float:
        return "float", struct.pack("<d", x)
    if type(x) in (list, tuple):
        return type(x), [bits(item) for item in x]
    if type(x) is dict:
        return dict, [(bits(key), bits(item)) for key, item in x.items()]
    if type(x) is torch.Tensor:
        x = x.clone(memory_format=torch.contiguous_format)
        raw = bytes(x.reshape(-1).view(torch.uint8).tolist())
        return torch.Tensor, x.dtype, tuple(x.shape), raw
    if type(x) is np.ndarray or isinstance(x, np.generic):
        return type(x), x.dtype.name, x.dtype.isnative, x.shape, x.tobytes()
    return type(x), x


def back(value, **limits):
    data = encode_value(value, limits=CodecLimits(**limits))
    assert type(data) is bytes
    return decode_value(data, limits=CodecLimits(**limits))


def assert_crosses(value):
    assert bits(back(value)) == bits(value)


def refused(value, **limits):
    with pytest.raises(CodecError) as caught:
        encode_value(value, limits=CodecLimits(**limits))
    return str(caught.value)


# --- strategies -------------------------------------------------------------------------------

DOUBLES = st.floats() | st.integers(0, 2**64 - 1).map(
    lambda code: struct.unpack("<d", struct.pack("<Q", code))[0]
)
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@st.composite
def elements(draw, dtype, shape):
    size = math.prod(shape) * DTYPES[dtype]
    raw = draw(st.binary(min_size=size, max_size=size))
    return bytes(b & 1 for b in raw) if dtype == "bool" else raw


@st.composite
def tensors(draw, dtypes=tuple(DTYPES)):
    name, shape = draw(st.sampled_from(dtypes)), (*draw(SHAPES), draw(st.integers(1, 2)))
    flat = torch.tensor(list(draw(elements(name, shape))), dtype=torch.uint8)
    return flat.view(getattr(torch, name)).reshape(shape)[..., 0]  # every other element, or all


@st.composite
def arrays(draw):
    name, shape = draw(st.sampled_from(NUMPY_DTYPES)), draw(SHAPES)
    return np.frombuffer(draw(elements(name, shape)), name).reshape(shape)


@st.composite
def numpy_scalars(draw):
    name = draw(st.sampled_from(NUMPY_DTYPES))
    return np.frombuffer(draw(elements(name, ())), name)[0]


WORDS = st.text(max_size=20)
RECORDS = st.sampled_from(list(FORMATS.values())) | st.builds(Raised, WORDS, WORDS, WORDS)
RECORDS |= st.builds(Foreign, WORDS)
TORCH_DTYPES = st.sampled_from([getattr(torch, name) for name in DTYPES])
PLAIN = st.none() | st.booleans() | st.integers() | DOUBLES | WORDS | st.binary(max_size=20)
ATOMS = PLAIN | TORCH_DTYPES | RECORDS | numpy_scalars()
# numpy compares a scalar with a tuple element by element: hypothesis would trip before the codec.
KEYS = st.recursive(
    PLAIN | TORCH_DTYPES | RECORDS, lambda inner: st.lists(inner, max_size=3).map(tuple)
)
VALUES = st.recursive(
    ATOMS | tensors() | arrays(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=20,
)

# --- what crosses -----------------------------------------------------------------------------


@unhurried
@given(VALUES)
def test_comes_out_bit_for_bit(value):
    assert_crosses(value)


@settings(unhurried, max_examples=50)
@given(VALUES, VALUES)
def test_bytes_are_equal_exactly_when_values_are(one, other):
    assert (encode_value(one) == encode_value(other)) == (bits(one) == bits(other))


@unhurried
@given(st.integers() | st.integers(-(2**2000), 2**2000))
def test_ints_of_any_size(x):
    assert back(x) == x and type(back(x)) is int


@pytest.mark.parametrize("power", [0, 7, 8, 15, 16, 63, 64, 1023])
def test_ints_around_a_byte(power):
    for x in (2**power - 1, 2**power, 2**power + 1):
        assert back([x, -x]) == [x, -x]


def test_equal_values_of_different_types_stay_apart():
    ones = [1, True, 1.0, "1", b"1", [1], (1,), np.float64(1), np.int64(1), np.array(1.0)]
    ones += [
        torch.tensor(1.0),
        torch.tensor(1.0, dtype=torch.float64),
        torch.ones(1),
        [1.0],
        0,
        -0.0,
    ]
    assert len({encode_value(x) for x in [*ones, 0.0]}) == len(ones) + 1


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_keep_every_bit_pattern_of_a_byte(name):
    codes = bytes([0, 1]) * 8 if name == "bool" else bytes(range(256))
    x = torch.tensor(list(codes), dtype=torch.uint8).view(getattr(torch, name))
    assert_crosses(x)
    assert back(x.dtype) is x.dtype


def test_every_other_dtype_of_torch_is_refused_by_name():
    others = {x for x in vars(torch).values() if type(x) is torch.dtype}
    others -= {getattr(torch, name) for name in DTYPES}
    assert torch.quint8 in others
    for dtype in others:
        assert str(dtype).removeprefix("torch.") in refused(dtype)


@pytest.mark.parametrize("size, codes", [("2", [0x7C01, 0xFE23, 0x8000]), ("4", [0x7F800001])])
def test_numpy_normalises_byte_order_and_keeps_nan_payloads(size, codes):
    little, big = (np.array(codes, f"{order}u{size}").view(f"{order}f{size}") for order in "<>")
    assert encode_value(big) == encode_value(little)
    assert back(big).view(f"u{size}").tolist() == codes


def test_strides_graph_device_and_parameter_stay_behind():
    x = torch.arange(24.0).reshape(2, 3, 4)
    grown = (x.clone().requires_grad_() * 1).requires_grad_()
    for other in (x.clone(memory_format=torch.contiguous_format), grown, torch.nn.Parameter(x)):
        assert encode_value(other) == encode_value(x)
    single = x[:1, 0, 0], x[1:, 1:2, ::4], x[0, 0].expand(1, 4)[:, 3]  # one element, any stride
    for view in (x.mT, x[:, ::2], x[1, 1, 2], x[:0], x[:, :1].expand(2, 5, 4), *single):
        assert encode_value(view) == encode_value(view.clone(memory_format=torch.contiguous_format))
    got = back(torch.nn.Parameter(x))
    assert type(got) is torch.Tensor and not got.requires_grad
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert encode_value(z.conj()) == encode_value(z.conj().resolve_conj())
    assert encode_value(z.conj().imag) == encode_value(torch.tensor([-2.0, 4.0]))
    assert encode_value(np.arange(6).reshape(2, 3).T) == encode_value(
        np.array([[0, 3], [1, 4], [2, 5]])
    )
    assert encode_value(np.longlong(3)) == encode_value(np.int64(3))


def test_what_comes_out_is_its_own_memory():
    x, a = back([torch.zeros(2), np.zeros(2)])
    x[0], a[0] = 1, 1
    assert decode_value(encode_value([x, a]))[0][0] == 1


def test_default_device_does_not_move_what_comes_out():
    data = encode_value([torch.ones(2), torch.empty(0)])
    with torch.device("meta"):
        assert [x.device.type for x in decode_value(data)] == ["cpu", "cpu"]


def test_dicts_keep_their_order_and_keys_that_are_powers_of_two():
    assert list(back({"b": 1, "a": 2})) == ["b", "a"]
    powers = {2.0**e: e for e in range(-1074, 1024)}
    assert back(powers) == powers


def test_a_user_made_format_crosses_and_works():
    mine = FloatFormat("mine", exponent_bits=3, mantissa_bits=2, bias=1, specials="fn")
    assert back({mine: mine}) == {mine: mine} and back(mine).max == mine.max


def test_numpy_scalars_may_be_keys():
    assert bits(back({np.int64(3): 1})) == bits({np.int64(3): 1})


def test_no_torch_where_there_is_no_tensor():
    # By path, since importing labkit.labs.engine brings torch for the checks themselves.
    path = sys.modules[encode_value.__module__].__file__
    code = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('codec', {path!r})\n"
        "codec = importlib.util.module_from_spec(spec); sys.modules['codec'] = codec\n"
        "spec.loader.exec_module(codec)\n"
        "assert codec.decode_value(codec.encode_value([1, {'a': codec.Raised('E', 'm', '')}]))\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- what is refused --------------------------------------------------------------------------


def everything(*_):
    return True


class Liar(float):
    __eq__ = __lt__ = __gt__ = everything
    __hash__ = float.__hash__


class Meta(type):
    """Its classes claim to be float wherever classes are hashed, compared or asked."""

    __eq__ = __instancecheck__ = __subclasscheck__ = everything
    __name__ = "float"

    def __hash__(cls):
        return hash(float)


class Impostor(metaclass=Meta):
    __class__ = float
    dtype, shape, __len__ = torch.float32, (), lambda self: 2**60


class Short(list):
    def __len__(self):
        return 0

    def __iter__(self):
        raise AssertionError("asked")


class Tame(torch.Tensor):
    pass


Pair = namedtuple("Pair", "a b")
Level = IntEnum("Level", "LOW")
SUBCLASSES = {
    "Liar is a kind of float": Liar(1),
    "Level is a kind of int": Level.LOW,
    "Pair is a kind of tuple": Pair(1, 2),
    "Size is a kind of tuple": torch.ones(2).shape,
    "Short is a kind of list": Short([1]),
    "OrderedDict is a kind of dict": OrderedDict(a=1),
    "elements of type str": np.str_("a"),
    "Single is a kind of float": type("Single", (np.float64,), {"dtype": np.dtype("f8")})(1),
    "Impostor cannot": Impostor(),
    "Tame cannot": torch.ones(2).as_subclass(Tame),
    "recarray cannot": np.rec.array([1.0]),
}


@pytest.mark.parametrize("sentence", SUBCLASSES)
def test_subclasses_are_refused_by_name(sentence):
    assert sentence in refused([SUBCLASSES[sentence]])


def test_keys_are_refused_by_name():
    for key in (Liar(1), Impostor(), Pair(1, 2), torch.ones(1), len):
        assert refused({key: 1}).startswith("result, key 0: a ")
        assert refused({"a": {(1, key): 1}}).startswith('result["a"], key 0[1]: a ')


def test_the_sentence_says_where_and_what_instead():
    assert refused([0, 1, 2, {"w": lambda: 0}]) == (
        'result[3]["w"]: a function cannot be handed over; return numbers, tensors or lists'
    )
    assert refused(x for x in "ab").endswith(
        "a generator cannot be handed over; return list(...) of it"
    )
    assert refused((1j,)).startswith("result[0]: a complex number cannot")
    assert refused({"é": {10**30: [{1}]}}).startswith('result["é"][key 0][0]: a set cannot')
    assert refused({(1, "x" * 99): len}).startswith("result[key 0]: ")
    assert refused({(1, ()): 0, (1, (torch.ones(1),)): 1}).startswith(
        "result, key 1[1][0]: a Tensor in"
    )
    assert "surrogate" in refused(["\ud800"])
    assert "type object" in refused(np.array([None]))
    assert "float128" in refused(np.zeros(2, np.longdouble))
    assert "sparse" in refused(torch.ones(2).to_sparse())
    assert "meta" in refused(torch.ones(2, device="meta"))
    assert "Raised.line" in refused(Raised("E", "m", 3))


def test_values_that_change_how_they_look_are_read_through_the_class():
    x = torch.zeros(2)
    x.detach = x.cpu = lambda: torch.ones(2)
    x.numel = lambda: 0
    assert bits(decode_value(encode_value(x))) == bits(torch.zeros(2))


def test_tensors_without_their_memory_are_refused():
    freed = torch.ones(1000)
    freed.untyped_storage().resize_(0)
    assert "freed" in refused(freed)
    odd = torch.tensor([2], dtype=torch.uint8)
    assert "neither 0 nor 1" in refused(odd.view(torch.bool))
    assert "neither 0 nor 1" in refused(odd.numpy().view(bool))
    hidden = []
    torch.vmap(lambda x: hidden.append(x) or x)(torch.ones(3))
    assert "torch cannot copy" in refused(hidden)


def test_containers_that_hold_themselves():
    loop = [1]
    loop.append({"again": loop})
    assert refused(loop) == 'result[1]["again"]: this list holds itself; return it without the loop'
    shared = [1]
    assert back([shared, shared]) == [[1], [1]]


def nested(depth, wrap=lambda x: [x]):
    value = 0
    for _ in range(depth):
        value = wrap(value)
    return value


def test_depth_is_bounded():
    assert back(nested(LIMITS.depth)) == nested(LIMITS.depth)
    for wrap in (lambda x: [x], lambda x: (x,), lambda x: {0: x}, lambda x: {"x": x}):
        assert "containers deep" in refused(nested(LIMITS.depth + 1, wrap))
    assert "containers deep" in refused(nested(10**5))
    assert "containers deep" in refused({nested(100, lambda x: (x,)): 0})
    assert back(nested(150), depth=150) == nested(150)
    for head in (b"l", b"t", b"d"):
        with pytest.raises(CodecError):
            decode_value((head + struct.pack("<Q", 1)) * 10**5 + b"N")
    with pytest.raises(ValueError, match="depth is 151"):
        CodecLimits(depth=151)


def test_laughs_and_giants_are_refused_before_they_are_built():
    laughs = ["ha"]
    for _ in range(40):
        laughs = [laughs] * 10
    giants = [10 ** (10**6), "x" * 10**6, b"x" * 10**6, torch.zeros(1).expand(2**50)]
    giants += [[torch.zeros(10**5)] * 10**5, np.broadcast_to(np.float64(0), (2**40,))]
    giants += [torch.empty(2**40, 0), list(range(10**5)), laughs, [()] * 10**5]
    tracemalloc.start()
    for giant in giants:
        refused(giant, bytes=2**17, elements=2**12)
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_an_int_that_python_cannot_write_as_text_is_refused():
    most = LIMITS.int_bits
    for x in (2**most - 1, 1 - 2**most):
        assert_crosses(x)
        assert str(x**3), "a judge can quote it, and what it computes of it"
    for x in (2**most, -(2**most), 10**5000):
        assert refused([{"bias": x}]).startswith('result[0]["bias"]: an int of ')
        assert "key 0" in refused({x: 1})
        with pytest.raises(CodecError):
            decode_value(encode_value(x, limits=CodecLimits(int_bits=2**20)))


def test_keys_chosen_to_collide():
    crowd = {k * (2**61 - 1): 0 for k in range(SAME_HASH + 1)}
    assert "one hash" in refused(crowd)
    pairs = b"".join(encode_value(k * (2**61 - 1)) + b"N" for k in range(10**5))
    with pytest.raises(CodecError):
        decode_value(b"d" + struct.pack("<Q", 10**5) + pairs)


# --- hostile bytes ----------------------------------------------------------------------------


def assert_harmless(data):
    """CodecError, or a value that is written exactly like that; memory in proportion."""
    tracemalloc.start()
    try:
        assert encode_value(decode_value(data)) == data
    except CodecError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # An empty dict takes 9 bytes here and 64 there, twice with the list around it and its growth.
    assert peak < 40 * len(data) + 2**18


SAMPLE = encode_value(
    [
        *[None, True, -129, 0.5, "né", b"b", (1, [2.0]), {"a": {2: torch.float16}, (3, "x"): ()}],
        *[torch.arange(3, dtype=torch.bfloat16), np.ones((2, 1), "f2"), np.int8(3)],
        *[torch.empty(0, 2), torch.tensor([True]), FORMATS["e4m3"], Raised("E", "m", "l")],
        np.bool(False),
    ]
)


@unhurried
@given(st.binary(max_size=200))
def test_random_bytes(data):
    assert_harmless(data)


# Random bytes rarely pass the first tag, so these are drawn from the grammar's own pieces.
PIECES = st.sampled_from([*"NTFifsbltdRDXAS"]).map(str.encode) | st.binary(max_size=9)
PIECES |= st.sampled_from([0, 1, 2, 3, 2**31, 2**60, 2**64 - 1]).map(lambda n: struct.pack("<Q", n))
PIECES |= PLAIN.map(encode_value)


@unhurried
@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_bytes_that_look_like_an_encoding(data):
    assert_harmless(data)


def test_truncated_at_each_byte():
    for end in range(len(SAMPLE)):
        with pytest.raises(CodecError):
            decode_value(SAMPLE[:end])


def test_each_byte_changed_to_any_other():
    survivors = 0
    for at in range(len(SAMPLE)):
        for byte in {0, 2, 255, SAMPLE[at] ^ 1, *b"ldXS"} - {SAMPLE[at]}:
            changed = SAMPLE[:at] + bytes([byte]) + SAMPLE[at + 1 :]
            try:
                value = decode_value(changed)
            except CodecError:
                continue
            assert encode_value(value) == changed != SAMPLE
            survivors += 1
    assert survivors > 100  # a payload byte makes another value, and not an error


@unhurried
@given(VALUES, st.data())
def test_mutated_encodings(value, data):
    raw = bytearray(encode_value(value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    assert_harmless(bytes(raw))


def u64(*numbers):
    return struct.pack(f"<{len(numbers)}Q", *numbers)


PLACE = {name: bytes([place]) for place, name in enumerate(DTYPES)}
NOT_CANONICAL = {
    "nothing": b"",
    "a byte to spare": encode_value(1) + b"N",
    "an int with a spare byte": b"i" + u64(2) + b"\1\0",
    "an int without bytes": b"i" + u64(0),
    "overlong UTF-8": b"s" + u64(2) + b"\xc0\x80",
    "a surrogate": b"s" + u64(3) + b"\xed\xa0\x80",
    "a key twice": b"d" + u64(2) + encode_value(1) + b"N" + encode_value(1) + b"T",
    "keys that Python finds equal": b"d"
    + u64(2)
    + encode_value(1)
    + b"N"
    + encode_value(True)
    + b"T",
    "a list as key": b"d" + u64(1) + encode_value([]) + b"N",
    "a tuple with a list as key": b"d" + u64(1) + encode_value(([],)) + b"N",
    "a tensor as key": b"d" + u64(1) + encode_value(torch.ones(1)) + b"N",
    "a bool of 2": b"X" + PLACE["bool"] + b"\0\2",
    "a numpy bool of 2": b"S" + PLACE["bool"] + b"\2",
    "bfloat16 in numpy": b"A" + PLACE["bfloat16"] + b"\0" + b"\0\0",
    "no such dtype": b"D\xff",
    "no such record": b"R\xff",
    "2**60 items": b"l" + u64(2**60),
    "2**60 elements": b"X" + PLACE["float32"] + b"\1" + u64(2**60) + b"\0" * 64,
    "sizes whose product wraps": b"X" + PLACE["float32"] + b"\2" + u64(2**32, 2**32),
    "an empty shape that overflows": b"X" + PLACE["float32"] + b"\3" + u64(2**40, 2**40, 0),
    "the same in numpy": b"A" + PLACE["float32"] + b"\3" + u64(2**63, 2**63, 0),
    "65 dimensions": b"A" + PLACE["int8"] + b"\x41" + u64(*[1] * 65) + b"\0",
    "a record of other types": b"R\0" + encode_value(1) + encode_value("") + encode_value(""),
    "a format that cannot be": b"R\1"
    + b"".join(map(encode_value, ["x", 99, 3, 7, True, "ieee", 8])),
    "a format with a giant bias": b"R\1"
    + b"".join(map(encode_value, ["x", 4, 3, 10**999, True, "fn", 8])),
}


@pytest.mark.parametrize("why", NOT_CANONICAL)
def test_bytes_that_encode_never_writes(why):
    with pytest.raises(CodecError):
        decode_value(NOT_CANONICAL[why])


def test_numpy_and_a_tuple_with_one_hash_as_keys():
    # numpy answers np.int64 == (a, b) with an array, which has no truth value.
    pair = next((k, k) for k in range(10**4) if abs(hash((k, k))) < 2**61 - 1)
    keys = encode_value(pair) + b"N" + encode_value(np.int64(hash(pair))) + b"N"
    assert_harmless(b"d" + u64(2) + keys)


@pytest.mark.parametrize("scalar", [np.float16(5), np.float64(5), np.complex64(5), np.bool(1)])
def test_numpy_and_a_long_int_with_one_hash_as_keys(scalar):
    # numpy raises OverflowError when it compares these.
    keys = encode_value(scalar) + b"N" + encode_value(hash(scalar) + (2**61 - 1) * 2**2000) + b"N"
    with pytest.raises(CodecError):
        decode_value(b"d" + u64(2) + keys)


@pytest.mark.parametrize("data", [bytearray(b"N"), "N", None, type("B", (bytes,), {})(b"N")])
def test_only_bytes_are_read(data):
    with pytest.raises(CodecError):
        decode_value(data)


def test_limits_hold_for_reading_too():
    data = encode_value([1, 2, [3]])
    for limits in (CodecLimits(bytes=len(data) - 1), CodecLimits(elements=4), CodecLimits(depth=1)):
        with pytest.raises(CodecError):
            decode_value(data, limits=limits)
    exact = CodecLimits(bytes=len(data), elements=5, depth=2)
    assert decode_value(data, limits=exact) == [1, 2, [3]]
