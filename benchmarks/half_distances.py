"""Distances in packed numbers of 16 or 8 bits, in Triton: what `bench_half_distances` measures.

A word of 32 bits holds two neighbouring coordinates, or four of 8 bits. Sums of SPAN words are kept
in 16 bits, then added in float32. KIND is f16, bf16 or u8; M1, M2, … are those of
allneg.kernels.distances.programs_gpu. ROOT tells how RotatE's roots are computed: by the
special-function unit (mufu), by one Newton step from a guess of the bits (newton), or by both in
turn (mixed).
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
import triton
import triton.language as tl

from allneg.kernels.distances.programs_gpu import _store

# Two float16 numbers 1/√h at once: a guess from the bits of h, then one Newton step. The guess and
# the step's constant make the largest errors of both signs equal.
_NEWTON = tl.constexpr(
    "shr.u32 r, h, 1; and.b32 r, r, 0x7FFF7FFF; sub.u32 r, 0x59BA59BA, r;"
    ".reg .b32 m, n; mov.b32 m, 0xB800B800; mov.b32 n, 0x3E013E01;"
    "mul.f16x2 w, h, r; mul.f16x2 v, w, r; fma.rn.f16x2 v, v, m, n;"
)


@triton.jit
def _words(pointer):
    """Four neighbouring words of a thread at once."""
    return tl.inline_asm_elementwise(
        "ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l,l,l,l", [pointer], tl.int32,
        is_pure=True, pack=4,
    )  # fmt: skip


@triton.jit
def _word(pointer):
    return tl.inline_asm_elementwise(
        "ld.global.nc.b32 $0, [$1];", "=r,l", [pointer], tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _add(a, b, KIND: tl.constexpr):
    return tl.inline_asm_elementwise(
        "add." + KIND + "x2 $0, $1, $2;", "=r,r,r", [a, b], tl.int32, True, 1
    )


@triton.jit
def _add_f16(a, b):
    return _add(a, b, "f16")


@triton.jit
def _add_bf16(a, b):
    return _add(a, b, "bf16")


@triton.jit
def _half(word, HIGH: tl.constexpr, KIND: tl.constexpr):
    """One of the two numbers, as float32."""
    if KIND == "bf16":
        if HIGH:
            how: tl.constexpr = "and.b32 $0, $1, 0xFFFF0000;"
        else:
            how: tl.constexpr = "shl.b32 $0, $1, 16;"
    elif HIGH:
        how: tl.constexpr = "{.reg .b16 l, u; mov.b32 {l, u}, $1; cvt.f32.f16 $0, u;}"
    else:
        how: tl.constexpr = "{.reg .b16 l, u; mov.b32 {l, u}, $1; cvt.f32.f16 $0, l;}"
    return tl.inline_asm_elementwise(how, "=f,r", [word], tl.float32, True, 1)


@triton.jit
def _l1_step(total, a, b, KIND: tl.constexpr):
    if KIND == "u8":
        how: tl.constexpr = "vabsdiff4.u32.u32.u32.add $0, $2, $3, $1;"
    else:
        how: tl.constexpr = (
            "{.reg .b32 x; sub." + KIND + "x2 x, $2, $3; abs." + KIND + "x2 x, x; add." + KIND
            + "x2 $0, $1, x;}"
        )  # fmt: skip
    return tl.inline_asm_elementwise(how, "=r,r,r,r", [total, a, b], tl.int32, True, 1)


@triton.jit
def _moduli(a, b, c, d):
    """|a - b + i(c - d)|, both moduli of a word added: float32, by the special-function unit."""
    how: tl.constexpr = (
        "{.reg .b32 x, y, h; .reg .b16 l, u; .reg .f32 f, g;"
        "sub.f16x2 x, $1, $2; sub.f16x2 y, $3, $4; mul.f16x2 h, x, x; fma.rn.f16x2 h, y, y, h;"
        "mov.b32 {l, u}, h; cvt.f32.f16 f, l; cvt.f32.f16 g, u;"
        "sqrt.approx.ftz.f32 f, f; sqrt.approx.ftz.f32 g, g; add.f32 $0, f, g;}"
    )
    return tl.inline_asm_elementwise(how, "=f,r,r,r,r", [a, b, c, d], tl.float32, True, 1)


@triton.jit
def _newton_moduli(total, a, b, c, d):
    """total + |a - b + i(c - d)| in float16, without the special-function unit."""
    how: tl.constexpr = (
        "{.reg .b32 x, y, h, r, w, v;"
        "sub.f16x2 x, $2, $3; sub.f16x2 y, $4, $5; mul.f16x2 h, x, x; fma.rn.f16x2 h, y, y, h;"
        + _NEWTON + "fma.rn.f16x2 $0, w, v, $1;}"
    )  # fmt: skip
    return tl.inline_asm_elementwise(how, "=r,r,r,r,r,r", [total, a, b, c, d], tl.int32, True, 1)


@triton.jit(
    do_not_specialize=["n_queries", "n_rows", "query_stride", "table_stride", "words", "out_stride"]
)
def scores(
    query, table, out, n_queries, n_rows, query_stride, table_stride, words, out_stride, scale,
    PARTS: tl.constexpr, KIND: tl.constexpr, ROOT: tl.constexpr, SPAN: tl.constexpr,
    M1: tl.constexpr, M2: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr,
):  # fmt: skip
    """A tile of queries x rows; both operands come as columns of words, padded to whole tiles."""
    m1, m2 = tl.arange(0, M1)[:, None, None, None], tl.arange(0, M2)[None, None, :, None]
    n1, n2 = tl.arange(0, N1)[None, :, None, None], tl.arange(0, N2)[None, None, None, :]
    m = tl.program_id(0) * (M1 * M2) + m2 * M1 + m1
    n = tl.program_id(1) * (N1 * N2) + n1 // 4 * (4 * N2) + n2 * 4 + n1 % 4
    a_im, b_im = words.to(tl.int64) * query_stride, words.to(tl.int64) * table_stride
    total = tl.zeros([M1, N1, M2, N2], tl.float32)
    part = tl.zeros([M1, N1, M2, N2], tl.int32)
    for _ in tl.range(0, words, SPAN):
        if KIND != "u8":
            part = tl.zeros([M1, N1, M2, N2], tl.int32)
        for k in tl.static_range(SPAN):
            a, b = _words(query + m), _words(table + n)
            if PARTS == 1:
                part = _l1_step(part, a, b, KIND)
            else:
                c, d = _words(query + a_im + m), _words(table + b_im + n)
                if ROOT == "newton" or (ROOT == "mixed" and k % 2 == 1):
                    part = _newton_moduli(part, a, b, c, d)
                else:
                    total += _moduli(a, b, c, d)
            query += query_stride
            table += table_stride
        if KIND != "u8" and not (PARTS == 2 and ROOT == "mufu"):
            total += _half(part, False, KIND) + _half(part, True, KIND)
    if KIND == "u8":
        total = part.to(tl.float32)
    address = out + m.to(tl.int64) * out_stride + n
    _store(address, -scale * total, (m < n_queries) & (n < n_rows), True)


@triton.jit
def _signed(slope, a, b, KIND: tl.constexpr, SIGN: tl.constexpr):
    """`slope` times the sign of a - b (xor: + for equal numbers), or times (sign + 1) / 2 (sat)."""
    if SIGN == "xor":
        how: tl.constexpr = (
            "{.reg .b32 x; sub." + KIND + "x2 x, $2, $3; lop3.b32 $0, x, 0x80008000, $1, 0x6A;}"
        )
    else:
        how: tl.constexpr = (
            "{.reg .b32 x, m, n; mov.b32 m, 0x78007800; mov.b32 n, 0x38003800;"
            "sub.f16x2 x, $2, $3; fma.rn.sat.f16x2 x, x, m, n; mul.f16x2 $0, x, $1;}"
        )
    return tl.inline_asm_elementwise(how, "=r,r,r,r", [slope, a, b], tl.int32, True, 1)


@triton.jit
def _pulls(slope, a, b, c, d, ROOT: tl.constexpr):
    """slope · (x, y) / |x + iy| of two coordinates: two words of float16 numbers."""
    start: tl.constexpr = (
        "{.reg .b32 x, y, h, r, w, v, t; .reg .b16 l, u; .reg .f32 f, g; mov.b32 t, 0x00100010;"
        "sub.f16x2 x, $3, $4; sub.f16x2 y, $5, $6;"
        "fma.rn.f16x2 h, x, x, t; fma.rn.f16x2 h, y, y, h;"
    )
    if ROOT == "newton":
        root: tl.constexpr = _NEWTON + "mul.f16x2 r, r, v;"
    else:
        root: tl.constexpr = (
            "mov.b32 {l, u}, h; cvt.f32.f16 f, l; cvt.f32.f16 g, u;"
            "rsqrt.approx.ftz.f32 f, f; rsqrt.approx.ftz.f32 g, g; cvt.rn.f16x2.f32 r, g, f;"
        )
    how: tl.constexpr = (
        start + root + "mul.f16x2 r, r, $2; mul.f16x2 $0, x, r; mul.f16x2 $1, y, r;}"
    )
    types: tl.constexpr = (tl.int32, tl.int32)
    return tl.inline_asm_elementwise(
        how, "=r,=r,r,r,r,r,r", [slope, a, b, c, d], types, is_pure=True, pack=1
    )


@triton.jit
def _add_two(pointer, word, KIND: tl.constexpr):
    """Add the two numbers of a word, as float32, to memory."""
    tl.inline_asm_elementwise(
        "red.global.add.v2.f32 [$1], {$2, $3}; mov.b32 $0, 0;", "=r,l,f,f",
        [pointer.to(tl.int64), _half(word, False, KIND), _half(word, True, KIND)], tl.int32,
        is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(do_not_specialize=["words", "grad_stride", "part"])
def both_gradients(
    grad, query, table, d_query, d_table, words, grad_stride, part,
    PARTS: tl.constexpr, KIND: tl.constexpr, SIGN: tl.constexpr, ROOT: tl.constexpr,
    SPAN: tl.constexpr, M1: tl.constexpr, M2: tl.constexpr, D2: tl.constexpr,
):  # fmt: skip
    """A tile of table rows x words, with a loop over the queries; `grad` has each number twice."""
    m1, m2 = tl.arange(0, M1)[:, None, None, None], tl.arange(0, M2)[None, None, :, None]
    m = tl.program_id(1) * (M1 * M2) + m2 * M1 + m1
    column = tl.program_id(0) * D2 + tl.arange(0, D2)[None, None, None, :]
    start = tl.program_id(2) * part
    width = PARTS * words
    ax = _word(table + m.to(tl.int64) * width + column)
    low, high = tl.zeros([M1, 1, M2, D2], tl.float32), tl.zeros([M1, 1, M2, D2], tl.float32)
    if PARTS == 2:
        ay = _word(table + m.to(tl.int64) * width + words + column)
        low_y, high_y = tl.zeros_like(low), tl.zeros_like(low)
    for first in tl.range(start, start + part, SPAN):
        some = tl.zeros([M1, 1, M2, D2], tl.int32)
        some_y = tl.zeros([M1, 1, M2, D2], tl.int32)
        for k in tl.static_range(SPAN):
            j = first + k
            slope = _words(grad + j.to(tl.int64) * grad_stride + m)
            b = query + j * width + column
            q = d_query + 2 * (j * width + column)
            if PARTS == 1:
                pull = _signed(slope, ax, _word(b), KIND, SIGN)
            elif ROOT == "newton" or (ROOT == "mixed" and k % 2 == 1):
                pull, pull_y = _pulls(slope, ax, _word(b), ay, _word(b + words), "newton")
            else:
                pull, pull_y = _pulls(slope, ax, _word(b), ay, _word(b + words), "mufu")
            some = _add(some, pull, KIND)
            if KIND == "f16":
                _add_two(q, tl.reduce(pull, 0, _add_f16, keep_dims=True), KIND)
            else:
                _add_two(q, tl.reduce(pull, 0, _add_bf16, keep_dims=True), KIND)
            if PARTS == 2:
                some_y = _add(some_y, pull_y, KIND)
                _add_two(q + 2 * words, tl.reduce(pull_y, 0, _add_f16, keep_dims=True), KIND)
        low += _half(some, False, KIND)
        high += _half(some, True, KIND)
        if PARTS == 2:
            low_y += _half(some_y, False, KIND)
            high_y += _half(some_y, True, KIND)
    address = d_table + (m.to(tl.int64) * width + column) * 2
    _add_floats(address, low, high)
    if PARTS == 2:
        _add_floats(address + 2 * words, low_y, high_y)


@triton.jit
def _add_floats(pointer, low, high):
    tl.inline_asm_elementwise(
        "red.global.add.v2.f32 [$1], {$2, $3}; mov.b32 $0, 0;", "=r,l,f,f",
        [pointer.to(tl.int64), low, high], tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
