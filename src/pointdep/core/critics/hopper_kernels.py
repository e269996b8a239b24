"""Kernels of the pass over cells for NVIDIA's Hopper: no layer of it goes through device memory.

Notation as in `pair_layers`. A cell's first layer is made in registers, where it is the left
operand of the matrix product, from a row of hx and a tile of hy. Of the second layer only its sign
is kept, one bit a unit: `gate`, (R, n, m, k/128, 4) words. A thread of the tensor core holds, of a
row, units 8 t + 2 q + e of each 128, t < 16, e < 2, with q its place in a quad: word q holds them,
unit (t, e) as bit t + 16 e, so that it is packed and unpacked without talking to another thread,
and ((word >> t) & 0x00010001) times the 16 bits of a bfloat16 is a pair of operands.

The rows of x that a program walks over are in pairs, one for each of its two groups of four warps.
Gluon is Triton with the layouts said aloud.
"""

from triton import jit
from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

# Triton 3.9 has other names for them than 3.6.
load_async = getattr(async_copy, "async_load", async_copy.async_copy_global_to_shared)
barrier = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier

# Accumulators of 64 x 256, 64 x 128 and 64 x 64 a group of four warps.
WIDEST = gl.constexpr(
    gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, 256, 16])
)
WIDE = gl.constexpr(
    gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, 128, 16])
)
NARROW = gl.constexpr(
    gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[8, 1], instr_shape=[16, 64, 16])
)
TILE = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2))
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
COPY = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0]))
COPY_ROWS = gl.constexpr(gl.BlockedLayout([1, 4], [1, 32], [2, 4], [1, 0]))
# (128, 64) as a left operand in registers; the same seen as (2 rows of x, 64 of y, 64 units), and
# as (128 rows, 8 groups of units t, 4 of a quad q, 2 units e).
LEFT = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [8, 0], [0, 8], [0, 16], [0, 32]],
        lane_bases=[[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0], [64, 0]],
        block_bases=[],
        shape=[128, 64],
    )
)
LEFT_PAIRS = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 1], [0, 8, 0], [0, 0, 8], [0, 0, 16], [0, 0, 32]],
        lane_bases=[[0, 0, 2], [0, 0, 4], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        warp_bases=[[0, 16, 0], [0, 32, 0], [1, 0, 0]],
        block_bases=[],
        shape=[2, 64, 64],
    )
)
LEFT_BITS = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [8, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0], [0, 4, 0, 0]],
        lane_bases=[[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0], [64, 0, 0, 0]],
        block_bases=[],
        shape=[128, 8, 4, 2],
    )
)
# (64 rows, 2 blocks of 128 units, t, q, e) with 16 bytes of a row at a time in a thread, on its way
# to shared memory.
RIGHT_BITS = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[
            [0, 0, 0, 0, 1],
            [0, 0, 0, 1, 0],
            [0, 0, 0, 2, 0],
            [0, 0, 1, 0, 0],
            [0, 0, 2, 0, 0],
            [0, 0, 4, 0, 0],
        ],
        lane_bases=[
            [1, 0, 0, 0, 0],
            [2, 0, 0, 0, 0],
            [4, 0, 0, 0, 0],
            [8, 0, 0, 0, 0],
            [16, 0, 0, 0, 0],
        ],
        warp_bases=[[32, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 8, 0, 0]],
        block_bases=[],
        shape=[64, 2, 16, 4, 2],
    )
)
# relu(x + y) of two bfloat16 pairs; two bits of a word as a pair of 0 or the bfloat16 in $5; and a
# pause of the second group of warps, so that one multiplies while the other finishes its tile.
RELU_SUM = gl.constexpr(
    "{ .reg .b32 one; mov.b32 one, 0x3F803F80; fma.rn.relu.bf16x2 $0, $1, one, $2; }"
)
UNPACK = gl.constexpr(
    "{ .reg .b32 t; shr.u32 t, $1, $3; and.b32 t, t, 0x00010001; mul.lo.u32 $0, t, $5; }"
)
PAUSE = gl.constexpr(
    "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.ge.u32 p, t, 128; "
    "@p nanosleep.u32 1000; mov.b32 $0, $1; }"
)
ONE = gl.constexpr(0x3F80)  # the bits of 1 as bfloat16


@gluon.jit
def _copy(shared, pointer, stride, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, COPY))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, COPY))
    load_async(shared, pointer + rows[:, None] * stride + columns[None, :])


@gluon.jit
def _copy_pairs(shared, pointer, stride, PAIRS: gl.constexpr, COLUMNS: gl.constexpr):
    """shared: (PAIRS, 2, COLUMNS), from 2 PAIRS rows."""
    rows = gl.arange(0, 2, layout=gl.SliceLayout(1, COPY_ROWS))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, COPY_ROWS))
    for pair in gl.static_range(PAIRS):
        at = pointer + (2 * pair + rows[:, None]) * stride + columns[None, :]
        load_async(shared.index(pair), at)


@gluon.jit
def _copied():
    async_copy.commit_group()
    async_copy.wait_group(0)
    fence_async_shared()
    barrier()


@gluon.jit
def _relu_sum(x, y):
    x, y = gl.broadcast(x, y)
    return gl.inline_asm_elementwise(
        RELU_SUM, "=r,r,r", [x, y], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def _unpack(word, shift, value):
    """Bits `shift` of the words as 0 or the bfloat16 whose bits `value` holds."""
    return gl.inline_asm_elementwise(
        UNPACK, "=r,r,r,r,r,r,r", [word, shift, value], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def _multiply(left, right, total, before, FIRST: gl.constexpr):
    """total += left right, while the product before it may still run; its operand is kept alive."""
    total = warpgroup_mma(left, right, total, is_async=True)
    if not FIRST:
        done = warpgroup_mma_wait(1, deps=[total, before])
        total = warpgroup_mma_init(done[0])
    return total


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
        _copy(weights.index(c), weight + (cell * H + c * 64) * K + block * 128, K, 64, 128)
        _copy(ys.index(c), hy + (cell * N + j) * H + c * 64, H, 64, 64)
    _copy_pairs(xs, hx + (cell * N + i) * H, H, PAIRS, H)
    _copied()
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
            first = gl.reshape(_relu_sum(x[:, None, :], y[None, :, :]), [128, 64])
            left = gl.convert_layout(first, before.type.layout, assert_trivial=True)
            total = _multiply(left, weights.index(c), total, before, c == 0)
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


@gluon.jit
def sides_kernel(
    gate,
    back,
    hx,
    hy,
    grad,
    part_x,
    part_y,
    N,
    SPLIT,
    H: gl.constexpr,
    K: gl.constexpr,
    PAIRS: gl.constexpr,
):
    """gate as above; back: (R, H, K) bf16, the weights times w; hx, hy: (R, N, H) bf16.

    grad: (R, N, N) f32, of the scores. To part_x: (R, N/16, N, H) and part_y: (R, 2 SPLIT, N, H)
    f32, whose sums over the second dimension are the gradients of hx and hy. A program keeps a
    tile of `back` and walks over 2 PAIRS rows of x; two programs share a multiprocessor.
    """
    BLOCKS: gl.constexpr = K // 128
    STEPS: gl.constexpr = K // 64
    program = gl.program_id(0)
    split = program % SPLIT
    i = split * (2 * PAIRS)
    j = program // SPLIT % (N // 64) * 64
    h = program // SPLIT // (N // 64) % (H // 64) * 64
    cell = program // SPLIT // (N // 64) // (H // 64)
    backs = gl.allocate_shared_memory(gl.bfloat16, [STEPS, 64, 64], TILE)
    ys = gl.allocate_shared_memory(gl.bfloat16, [64, 64], TILE)
    xs = gl.allocate_shared_memory(gl.bfloat16, [PAIRS, 2, 64], PLAIN)
    for c in gl.static_range(STEPS):
        _copy(backs.index(c), back + (cell * H + h) * K + c * 64, K, 64, 64)
    _copy(ys, hy + (cell * N + j) * H + h, H, 64, 64)
    _copy_pairs(xs, hx + (cell * N + i) * H + h, H, PAIRS, 64)
    _copied()
    WORDS: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(3, LEFT_BITS))
    row = gl.arange(0, 128, layout=gl.SliceLayout(1, WORDS))
    q = gl.arange(0, 4, layout=gl.SliceLayout(0, WORDS))
    at = ((cell * N + i + row // 64) * N + j + row % 64)[:, None] * (BLOCKS * 4) + q[None, :]
    row = gl.arange(0, 128, layout=gl.SliceLayout(1, NARROW))
    grad += (cell * N + i + row // 64) * N + j + row % 64
    part_x += ((cell * (N // 16) + j // 16) * N + i) * H + h
    t = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, LEFT_BITS))))
    one = gl.full([128, 8, 4, 2], ONE, gl.int32, LEFT_BITS)
    over_x = gl.reshape(gl.zeros([128, 64], gl.float32, NARROW), [2, 64, 64])
    words = _load_words(gate + at, BLOCKS)
    scale = gl.load(grad)
    for pair in range(PAIRS):
        total = warpgroup_mma_init(gl.zeros([128, 64], gl.float32, NARROW))
        before = gl.zeros([128, 64], gl.bfloat16, gl.DotOperandLayout(0, NARROW, 2))
        for c in gl.static_range(STEPS):
            word, _ = gl.broadcast(words[c // 2][:, None, :, None], one)
            shift, _ = gl.broadcast((t + c % 2 * 8)[None, :, None, None], one)
            gated = gl.reshape(_unpack(word, shift, one), [128, 64])
            left = gl.convert_layout(gated, before.type.layout, assert_trivial=True)
            total = _multiply(left, backs.index(c).permute([1, 0]), total, before, c == 0)
            before = left
        ahead = min(pair + 1, PAIRS - 1) * 2 * N
        words = _load_words(gate + at + ahead * BLOCKS * 4, BLOCKS)
        next_scale = gl.load(grad + ahead)
        cells = warpgroup_mma_wait(0, deps=[total, before])[0] * scale[:, None]
        cells = gl.reshape(cells, [2, 64, 64])
        x = xs.index(pair).load(gl.SliceLayout(1, cells.type.layout))
        y = ys.load(gl.SliceLayout(0, cells.type.layout))
        cells = gl.where(_relu_sum(x[:, None, :], y[None, :, :]) > 0, cells, 0.0)
        _store_over_y(part_x + pair * 2 * H, cells, N, H)
        over_x += cells
        scale = next_scale
    CELLS: gl.constexpr = over_x.type.layout
    group = gl.arange(0, 2, layout=gl.SliceLayout(1, gl.SliceLayout(2, CELLS)))
    row = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(2, CELLS)))
    unit = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, CELLS)))
    at = (((cell * SPLIT + split) * 2 + group[:, None]) * N + j + row[None, :]) * H + h
    gl.store(part_y + at[:, :, None] + unit[None, None, :], over_x)


@gluon.jit
def _load_words(pointer, BLOCKS: gl.constexpr):
    """A tuple with the words of each 128 units."""
    if BLOCKS == 1:
        words = (gl.load(pointer),)
    elif BLOCKS == 2:
        words = gl.load(pointer), gl.load(pointer + 4)
    else:
        gl.static_assert(BLOCKS == 4)
        words = gl.load(pointer), gl.load(pointer + 4), gl.load(pointer + 8), gl.load(pointer + 12)
    return words


@gluon.jit
def _store_over_y(part_x, cells, N, H: gl.constexpr):
    """cells: (2 rows of x, 64 of y, 64 units), summed over the 16 rows of y that a warp holds."""
    sums = gl.sum(gl.reshape(cells, [2, 4, 16, 64]), 2)
    ROWS: gl.constexpr = gl.SliceLayout(2, sums.type.layout)
    x = gl.arange(0, 2, layout=gl.SliceLayout(1, ROWS))
    warp = gl.arange(0, 4, layout=gl.SliceLayout(0, ROWS))
    unit = gl.arange(0, 64, layout=gl.SliceLayout(0, gl.SliceLayout(1, sums.type.layout)))
    at = (warp[None, :] * N + x[:, None]) * H
    gl.store(part_x + at[:, :, None] + unit[None, None, :], sums)


@gluon.jit
def weight_kernel(
    hx,
    hy,
    gate,
    grad,
    part,
    N,
    SPLIT,
    H: gl.constexpr,
    K: gl.constexpr,
    TILES: gl.constexpr,
):
    """hx, hy: (R, N, H) bf16; grad: (R, N, N), the bits of bf16.

    To part: (R, SPLIT, H, K) f32, whose sum over SPLIT is h1' (d g). N = 64 TILES, TILES even: two
    products in a row must not have their left operands in the same registers. A program keeps
    hy' in registers, as far as it fits, and unpacks the right operand into shared memory, three
    tiles deep: one that is multiplied, one that may still be, and one that is filled.
    """
    BLOCKS: gl.constexpr = K // 128
    program = gl.program_id(0)
    rows = N // SPLIT
    i = program % SPLIT * rows
    block = program // SPLIT % (BLOCKS // 2) * 2
    h = program // SPLIT // (BLOCKS // 2) % (H // 128) * 128
    cell = program // SPLIT // (BLOCKS // 2) // (H // 128)
    ys = gl.allocate_shared_memory(gl.bfloat16, [TILES, 64, 128], TILE)
    rights = gl.allocate_shared_memory(gl.bfloat16, [3, 64, 256], TILE)
    for c in gl.static_range(TILES):
        _copy(ys.index(c), hy + (cell * N + c * 64) * H + h, H, 64, 128)
    WORDS: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(4, RIGHT_BITS))
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, gl.SliceLayout(2, WORDS)))
    half = gl.arange(0, 2, layout=gl.SliceLayout(0, gl.SliceLayout(2, WORDS)))
    q = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(1, WORDS)))
    at = row[:, None] * BLOCKS + block + half[None, :]
    gate += (cell * N + i) * N * BLOCKS * 4 + at[:, :, None] * 4 + q[None, None, :]
    ROWS: gl.constexpr = gl.SliceLayout(
        1, gl.SliceLayout(2, gl.SliceLayout(3, gl.SliceLayout(4, RIGHT_BITS)))
    )
    grad += (cell * N + i) * N + gl.arange(0, 64, layout=ROWS)
    hx += (cell * N + i) * H + h + gl.arange(0, 128, layout=gl.SliceLayout(1, LEFT))
    words, value, next_x = gl.load(gate), gl.load(grad), gl.load(hx)
    total = warpgroup_mma_init(gl.zeros([128, 256], gl.float32, WIDEST))
    before = gl.zeros([128, 64], gl.bfloat16, gl.DotOperandLayout(0, WIDEST, 2))
    _copied()
    y0 = ys.index(0).permute([1, 0]).load(LEFT)
    y1 = ys.index(1).permute([1, 0]).load(LEFT)
    slot = 0
    tile = 0
    for number in range(rows):
        x = next_x
        next_x = gl.load(hx + min(number + 1, rows - 1) * H)
        for c in gl.static_range(TILES):
            _unpack_tile(rights.index(slot), words, value)
            if c == 0:
                y = y0
            elif c == 1:
                y = y1
            else:
                y = ys.index(c).permute([1, 0]).load(LEFT)
            left = _relu_sum(x[:, None], y)
            left = gl.convert_layout(left, before.type.layout, assert_trivial=True)
            fence_async_shared()
            barrier()
            total = warpgroup_mma(left, rights.index(slot), total, is_async=True)
            tile = min(tile + 1, rows * TILES - 1)
            words = gl.load(gate + tile * 64 * BLOCKS * 4)
            value = gl.load(grad + tile * 64)
            total = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[total, before])[0])
            before = left
            slot = gl.where(slot == 2, 0, slot + 1)
    product = warpgroup_mma_wait(0, deps=[total, before])[0]
    row = gl.arange(0, 128, layout=gl.SliceLayout(1, WIDEST))
    column = gl.arange(0, 256, layout=gl.SliceLayout(0, WIDEST))
    part += ((cell * SPLIT + program % SPLIT) * H + h) * K + block * 128
    gl.store(part + row[:, None] * K + column[None, :], product)


@gluon.jit
def _unpack_tile(shared, words, value):
    """words: (64, 2, 4), value: (64,), the bits of a bfloat16 -> shared: (64, 256), value or 0."""
    like = gl.full([64, 2, 16, 4, 2], 0, gl.int32, RIGHT_BITS)
    T: gl.constexpr = gl.SliceLayout(
        0, gl.SliceLayout(1, gl.SliceLayout(3, gl.SliceLayout(4, RIGHT_BITS)))
    )
    t = gl.arange(0, 16, layout=T)
    word, _ = gl.broadcast(words[:, :, None, :, None], like)
    shift, _ = gl.broadcast(t[None, None, :, None, None], like)
    bits, _ = gl.broadcast((value.to(gl.int32) & 0xFFFF)[:, None, None, None, None], like)
    shared.store(gl.reshape(_unpack(word, shift, bits), [64, 256]))


@jit
def gated_sum_kernel(gate, grad, total, N, K: tl.constexpr, ROWS: tl.constexpr):
    """To total: (R, N, K) f32, d g summed over y."""
    WORDS: tl.constexpr = K // 32
    first = tl.program_id(0).to(tl.int64) * N
    word = tl.arange(0, WORDS)
    bit = tl.arange(0, 32)
    summed = tl.zeros([WORDS, 32], tl.float32)
    for j in range(0, N, ROWS):
        row = first + j + tl.arange(0, ROWS)
        words = tl.load(gate + row[:, None] * WORDS + word[None, :])
        on = ((words[:, :, None] >> bit[None, None, :]) & 1) > 0
        summed += tl.sum(tl.where(on, tl.load(grad + row)[:, None, None], 0.0), 0)
    unit = (word // 4 * 128 + word % 4 * 2)[:, None] + bit[None, :] % 16 * 8 + bit[None, :] // 16
    tl.store(total + tl.program_id(0).to(tl.int64) * K + unit, summed)
