"""Random numbers as pure functions of (seed, purpose, step or epoch, sample).

Nothing here keeps state. So a run that is killed and resumed, or spread over other ranks and workers, draws the same
masks, crops and noise as one that is not. The generator is SplitMix64 in counter mode: the i-th number of a stream is
`mix(key + i * GAMMA)`, computed for a whole batch at once on any device.
"""

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15
_MULTIPLIER_1 = 0xBF58476D1CE4E5B9
_MULTIPLIER_2 = 0x94D049BB133111EB
_WORD = 1 << 64
_FEISTEL_TURNS = 8
_DRAWN_WHOLE = 4096


def stream_key(seed: int, what: str, *counters: int) -> int:
    """The key of one stream, for example `stream_key(seed, "masks", step)`."""
    key = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=8).digest(), "little")
    for number in (seed, *counters):
        key = _mix_int((key ^ _mix_int((number + _GAMMA) % _WORD)) + _GAMMA)
    return _signed(key)


def sample_keys(key: int, samples: Tensor) -> Tensor:
    """One key per sample: independent streams derived from `key`. samples: int64, any shape."""
    return _mix(_mix(samples * _signed(_GAMMA) + key))


def random_words(keys: Tensor, count: int) -> Tensor:
    """`count` random 64-bit words for each key, as int64: keys B... -> B... count."""
    draw = _compiled_around if torch.compiler.is_compiling() else _random_words
    words: Tensor = draw(keys, count)
    return words


def _random_words(keys: Tensor, count: int) -> Tensor:
    steps = torch.arange(1, count + 1, device=keys.device) * _signed(_GAMMA)
    return _mix(keys.unsqueeze(-1) + steps)


# Code that torch.compile generates assumes that integers never overflow, but here they must: it would draw other
# numbers and write out of bounds. So it gets one opaque operation.
_compiled_around = torch.library.custom_op("flexpredict::random_words", _random_words, mutates_args=())


@_compiled_around.register_fake
def _(keys: Tensor, count: int) -> Tensor:
    return keys.new_empty((*keys.shape, count))


def words_at(key: int, places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The random words of one stream at these positions (from 0), in numpy: any shape -> the same shape."""
    return _mix_words(places.view(np.uint64) * np.uint64(_GAMMA) + np.uint64((key + _GAMMA) % _WORD))


def uniform(keys: Tensor, count: int) -> Tensor:
    """`count` float32 numbers in [0, 1) for each key: keys B... -> B... count."""
    high, low = _halves(keys, count)
    return torch.cat((high, low), dim=-1)[..., :count].float() * 2.0**-24


def normal(keys: Tensor, count: int) -> Tensor:
    """`count` standard normal float32 numbers for each key (Box-Muller): keys B... -> B... count."""
    high, low = _halves(keys, count)
    radius = torch.sqrt(-2.0 * torch.log((high + 1).float() * 2.0**-24))
    angle = low.float() * (2.0 * math.pi * 2.0**-24)
    return torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)[..., :count]


def permutation(key: int, count: int) -> Tensor:
    """A random order of range(count)."""
    return torch.argsort(random_words(torch.tensor([key]), count)[0], stable=True)


def shuffled(key: int, count: int, positions: Tensor) -> Tensor:
    """The numbers at these positions of a random order of range(count), without drawing all of it: B -> B.

    Memory does not grow with `count`. The numbers are cells of a rectangle just large enough; a Feistel network
    permutes its cells, in turn shifting the row by a hash of the column and the column by a hash of the row. A cell
    beyond `count` is permuted again until it lands within. A short order is drawn whole: a small rectangle has too
    few shifts for all orders to be equally likely.
    """
    if count <= _DRAWN_WHOLE:
        return permutation(key, count)[positions]
    columns = math.isqrt(count - 1) + 1
    rows = -(-count // columns)
    keys = [_signed(_mix_int(key + turn * _GAMMA)) for turn in range(_FEISTEL_TURNS)]
    cells = positions.clone()
    outside = torch.ones_like(cells, dtype=torch.bool)
    while outside.any():
        row, column = cells[outside] // columns, cells[outside] % columns
        for turn, turn_key in enumerate(keys):
            if turn % 2:
                column = (column + _shift(_mix(row + turn_key), 1) % columns) % columns
            else:
                row = (row + _shift(_mix(column + turn_key), 1) % rows) % rows
        cells[outside] = row * columns + column
        outside = cells >= count
    return cells


def _halves(keys: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Two independent 24-bit integers from each of ceil(count / 2) words."""
    bits = random_words(keys, (count + 1) // 2)
    return _shift(bits, 40), _shift(bits, 16) & 0xFFFFFF


def _mix(z: Tensor) -> Tensor:
    if z.device.type == "cpu":
        return torch.from_numpy(_mix_words(z.numpy().view(np.uint64).ravel()).view(np.int64)).view(z.shape)
    z = (z ^ _shift(z, 30)) * _signed(_MULTIPLIER_1)
    z = (z ^ _shift(z, 27)) * _signed(_MULTIPLIER_2)
    return z ^ _shift(z, 31)


def _mix_words(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`_mix` in numpy, whose unsigned integers need half the operations, each of them faster."""
    for shift, multiplier in ((30, _MULTIPLIER_1), (27, _MULTIPLIER_2)):
        shifted = z >> np.uint64(shift)
        shifted ^= z
        shifted *= np.uint64(multiplier)
        z = shifted
    return z ^ (z >> np.uint64(31))


def _shift(z: Tensor, by: int) -> Tensor:
    """Logical right shift: torch's own shift of int64 copies the sign bit."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix_int(z: int) -> int:
    z %= _WORD
    z = (z ^ (z >> 30)) * _MULTIPLIER_1 % _WORD
    z = (z ^ (z >> 27)) * _MULTIPLIER_2 % _WORD
    return z ^ (z >> 31)


def _signed(word: int) -> int:
    """The two's-complement reading of a 64-bit word, which is what torch's int64 holds."""
    return word - _WORD if word >= _WORD // 2 else word
