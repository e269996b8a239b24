"""What the kernels for NVIDIA's Hopper share: no layer of a pass over cells goes through memory.

Notation as in `pair_layers`. A cell's first layer is made in registers, where it is the left
operand of the matrix product, from a row of hx and a tile of hy. Of the second layer only its sign
is kept, one bit a unit: `gate`, (R, n, m, k/128, 4) words. A thread of the tensor core holds, of a
row, units 8 t + 2 q + e of each 128, t < 16, e < 2, with q its place in a quad: word q holds them,
unit (t, e) as bit t + 16 e, so that it is packed and unpacked without talking to another thread,
and ((word >> t) & 0x00010001) times the 16 bits of a bfloat16 is a pair of operands.

The rows of x that a program walks over are in pairs, one for each of its two groups of four warps.
Gluon is Triton with the layouts said aloud.
"""

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
load_async = (
    async_copy.async_load
    if hasattr(async_copy, "async_load")
    else async_copy.async_copy_global_to_shared
)
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
# relu(x + y) of two bfloat16 pairs; two bits of a word as a pair of 0 or the bfloat16 in $5.
RELU_SUM = gl.constexpr(
    "{ .reg .b32 one; mov.b32 one, 0x3F803F80; fma.rn.relu.bf16x2 $0, $1, one, $2; }"
)
UNPACK = gl.constexpr(
    "{ .reg .b32 t; shr.u32 t, $1, $3; and.b32 t, t, 0x00010001; mul.lo.u32 $0, t, $5; }"
)
ONE = gl.constexpr(0x3F80)  # the bits of 1 as bfloat16


@gluon.jit
def copy(shared, pointer, stride, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, COPY))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, COPY))
    load_async(shared, pointer + rows[:, None] * stride + columns[None, :])


@gluon.jit
def copy_pairs(shared, pointer, stride, PAIRS: gl.constexpr, COLUMNS: gl.constexpr):
    """shared: (PAIRS, 2, COLUMNS), from 2 PAIRS rows."""
    rows = gl.arange(0, 2, layout=gl.SliceLayout(1, COPY_ROWS))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, COPY_ROWS))
    for pair in gl.static_range(PAIRS):
        at = pointer + (2 * pair + rows[:, None]) * stride + columns[None, :]
        load_async(shared.index(pair), at)


@gluon.jit
def copied():
    async_copy.commit_group()
    async_copy.wait_group(0)
    fence_async_shared()
    barrier()


@gluon.jit
def relu_sum(x, y):
    x, y = gl.broadcast(x, y)
    return gl.inline_asm_elementwise(
        RELU_SUM, "=r,r,r", [x, y], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def unpack(word, shift, value):
    """Bits `shift` of the words as 0 or the bfloat16 whose bits `value` holds."""
    return gl.inline_asm_elementwise(
        UNPACK, "=r,r,r,r,r,r,r", [word, shift, value], dtype=gl.bfloat16, is_pure=True, pack=2
    )


@gluon.jit
def multiply(left, right, total, before, FIRST: gl.constexpr):
    """total += left right, while the product before it may still run; its operand is kept alive."""
    total = warpgroup_mma(left, right, total, is_async=True)
    if not FIRST:
        done = warpgroup_mma_wait(1, deps=[total, before])
        total = warpgroup_mma_init(done[0])
    return total
