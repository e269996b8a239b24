"""The forward pass over cells on Hopper: scores, and the signs of the second layer."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma_init, warpgroup_mma_wait

from pointdep.core.critics.hopper_parts import (
    LEFT_PAIRS,
    PLAIN,
    TILE,
    WIDE,
    copied,
    copy,
    copy_pairs,
    multiply,
    relu_sum,
)

# A pause of the second group of warps, so that one multiplies while the other finishes its tile.
PAUSE = gl.constexpr(
    "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.ge.u32 p, t, 128; "
    "@p nanosleep.u32 1000; mov.b32 $0, $1; }"
)


@gluon.jit
def forward_kernel(
    hx,
    hy,
    weight,
    bias,
    last,
    part,
    gate,
    N,
    SPLIT,
    H: gl.constexpr,
    K: gl.constexpr,
    PAIRS: gl.constexpr,
):
    """hx, hy: (R, N, H) bf16; weight: (R, H, K) bf16; bias, last: (R, K) f32.

    To part: (R, K/128, N, N) f32, the scores' share of each 128 units, and gate. A program keeps
    a tile of the weights and one of hy, and walks over 2 PAIRS rows of x, SPLIT times as many in
    all.
    """
    BLOCKS: gl.constexpr = K // 128
    STEPS: gl.constexpr = H // 64
    program = gl.program_id(0)
    i = program % SPLIT * (2 * PAIRS)
    j = program // SPLIT % (N // 64) * 64
    block = program // SPLIT // (N // 64) % BLOCKS
    cell = program // SPLIT // (N // 64) // BLOCKS
    weights = gl.allocate_shared_memory(gl.bfloat16, [STEPS, 64, 128], TILE)
    ys = gl.allocate_shared_memory(gl.bfloat16, [STEPS, 64, 64], TILE)
    xs = gl.allocate_shared_memory(gl.bfloat16, [PAIRS, 2, H], PLAIN)
    for c in gl.static_range(STEPS):
        copy(weights.index(c), weight + (cell * H + c * 64) * K + block * 128, K, 64, 128)
        copy(ys.index(c), hy + (cell * N + j) * H + c * 64, H, 64, 64)
    copy_pairs(xs, hx + (cell * N + i) * H, H, PAIRS, H)
    copied()
    rows = gl.arange(0, 128, layout=gl.SliceLayout(1, WIDE))
    columns = cell * K + block * 128 + gl.arange(0, 128, layout=gl.SliceLayout(0, WIDE))
    part += ((cell * BLOCKS + block) * N + i + rows // 64) * N + j + rows % 64
    gate += (((cell * N + i) * N + j) * BLOCKS + block) * 4
    gl.inline_asm_elementwise(PAUSE, "=r,r", [rows], dtype=gl.int32, is_pure=False, pack=1)
    for pair in range(PAIRS):
        total = warpgroup_mma_init(gl.zeros([128, 128], gl.float32, WIDE))
        before = gl.zeros([128, 64], gl.bfloat16, gl.DotOperandLayout(0, WIDE, 2))
        for c in gl.static_range(STEPS):
            x = xs.index(pair).slice(c * 64, 64, 1).load(gl.SliceLayout(1, LEFT_PAIRS))
            y = ys.index(c).load(gl.SliceLayout(0, LEFT_PAIRS))
            first = gl.reshape(relu_sum(x[:, None, :], y[None, :, :]), [128, 64])
            left = gl.convert_layout(first, before.type.layout, assert_trivial=True)
            total = multiply(left, weights.index(c), total, before, c == 0)
            before = left
        z = warpgroup_mma_wait(0, deps=[total, before])[0] + gl.load(bias + columns)[None, :]
        share = gl.maximum(z, 0.0) * gl.load(last + columns)[None, :]
        gl.store(part + pair * 2 * N, gl.sum(share, 1))
        _store_signs(gate + pair * 2 * N * BLOCKS * 4, z, N, BLOCKS)


@gluon.jit
def _store_signs(gate, z, N, BLOCKS: gl.constexpr):
    """One bit for each unit of z: (128, 128) above zero, as words (128 rows, 4)."""
    bits = gl.reshape(z > 0, [128, 16, 4, 2])
    UNITS: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, bits.type.layout))
    t = gl.arange(0, 16, layout=gl.SliceLayout(1, UNITS))
    e = gl.arange(0, 2, layout=gl.SliceLayout(0, UNITS))
    one = gl.full([16, 2], 1, gl.int32, UNITS) << (t[:, None] + 16 * e[None, :])
    words = gl.sum(gl.sum(gl.where(bits, one[None, :, None, :], 0), 3), 1)
    row = gl.arange(0, 128, layout=gl.SliceLayout(1, words.type.layout))
    q = gl.arange(0, 4, layout=gl.SliceLayout(0, words.type.layout))
    at = (row // 64 * N + row % 64)[:, None] * (BLOCKS * 4) + q[None, :]
    gl.store(gate + at, words)
