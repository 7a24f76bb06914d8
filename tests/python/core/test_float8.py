import numpy as np

from glm_engine.core import float8
from tests import groups

ALL_CODES = np.arange(256, dtype=np.uint8)
NOT_NAN = ALL_CODES[(ALL_CODES & 0x7F) != 0x7F]


def spread_values(count: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    scales = np.exp(generator.uniform(-9, 6, count))
    normals = generator.standard_normal(count) * scales
    midpoints = float8.E4M3_MIDPOINTS
    corners = [0.0, -0.0, 448.0, -448.0, 2.0**-10, 3 * 2.0**-10, 2.0**-11]
    return np.concatenate([normals, midpoints, -midpoints, corners]).astype(np.float32)


def test_every_code_survives_the_round_trip():
    assert np.array_equal(float8.encode_e4m3(float8.decode_e4m3(NOT_NAN)), NOT_NAN)


def test_values_above_the_largest_saturate():
    values = np.array([449, 465, 1e30, np.inf, -449, -np.inf], dtype=np.float32)
    assert float8.encode_e4m3(values).tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0xFE]


def test_nan_becomes_nan():
    codes = float8.encode_e4m3(np.array([np.nan], dtype=np.float32))
    assert codes[0] & 0x7F == 0x7F
    assert np.isnan(float8.decode_e4m3(ALL_CODES[[0x7F, 0xFF]])).all()


def test_both_zeros_keep_their_sign():
    assert float8.encode_e4m3(np.array([0.0, -0.0])).tolist() == [0x00, 0x80]


def test_ties_go_to_the_even_code():
    codes = float8.encode_e4m3(float8.E4M3_MIDPOINTS)
    assert not (codes & 1).any()


def test_codes_equal_those_of_torch():
    torch = groups.imported("torch")
    values = np.clip(spread_values(100_000), -448, 448)
    theirs = torch.from_numpy(values).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    assert np.array_equal(float8.encode_e4m3(values), theirs)


def test_values_equal_those_of_torch():
    torch = groups.imported("torch")
    theirs = torch.from_numpy(ALL_CODES).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(float8.decode_e4m3(ALL_CODES), theirs, equal_nan=True)


def test_bf16_codes_equal_those_of_torch():
    torch = groups.imported("torch")
    values = spread_values(100_000)
    theirs = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(float8.encode_bf16(values), theirs)


def test_bf16_round_trip_keeps_all_codes():
    codes = np.arange(1 << 16, dtype=np.uint16)
    numbers = codes[~np.isnan(float8.decode_bf16(codes))]
    assert np.array_equal(float8.encode_bf16(float8.decode_bf16(numbers)), numbers)


def test_bf16_nan_stays_nan():
    values = np.array([0x7F800001, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)
    assert np.isnan(float8.decode_bf16(float8.encode_bf16(values))).all()
