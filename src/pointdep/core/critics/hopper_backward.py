"""The backward pass over cells on Hopper: the gradients of the rows, and of the weights."""

from triton import jit
from triton import language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from pointdep.core.critics.hopper_parts import (
    LEFT,
    LEFT_BITS,
    NARROW,
    ONE,
    PLAIN,
    RIGHT_BITS,
    TILE,
    WIDEST,
    barrier,
    copied,
    copy,
    copy_pairs,
    multiply,
    relu_sum,
    unpack,
)


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
        copy(backs.index(c), back + (cell * H + h) * K + c * 64, K, 64, 64)
    copy(ys, hy + (cell * N + j) * H + h, H, 64, 64)
    copy_pairs(xs, hx + (cell * N + i) * H + h, H, PAIRS, 64)
    copied()
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
            gated = gl.reshape(unpack(word, shift, one), [128, 64])
            left = gl.convert_layout(gated, before.type.layout, assert_trivial=True)
            total = multiply(left, backs.index(c).permute([1, 0]), total, before, c == 0)
            before = left
        ahead = min(pair + 1, PAIRS - 1) * 2 * N
        words = _load_words(gate + at + ahead * BLOCKS * 4, BLOCKS)
        next_scale = gl.load(grad + ahead)
        cells = warpgroup_mma_wait(0, deps=[total, before])[0] * scale[:, None]
        cells = gl.reshape(cells, [2, 64, 64])
        x = xs.index(pair).load(gl.SliceLayout(1, cells.type.layout))
        y = ys.load(gl.SliceLayout(0, cells.type.layout))
        cells = gl.where(relu_sum(x[:, None, :], y[None, :, :]) > 0, cells, 0.0)
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
        copy(ys.index(c), hy + (cell * N + c * 64) * H + h, H, 64, 128)
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
    copied()
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
            left = relu_sum(x[:, None], y)
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
    shared.store(gl.reshape(unpack(word, shift, bits), [64, 256]))


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
