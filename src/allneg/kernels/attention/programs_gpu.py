"""The Triton programs of attention to a table; see `gpu`.

A row of W numbers is loaded as up to three chunks, of W0, W1 and W2 numbers. With TMA, c0, c1 and
c2 describe these chunks of the operand in the loop to the bulk copy engine.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
import triton
import triton.language as tl

_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)
# Sums of exponentials in this range lose nothing to the ends of the range of float32.
_LEAST, _MOST = tl.constexpr(2.0**-60), tl.constexpr(2.0**60)


@triton.jit
def _load(pointer, lane, left, W: tl.constexpr, FIRST: tl.constexpr, CHUNK: tl.constexpr):
    """Columns from FIRST on of the rows at `pointer`, of which `left` exist: (lanes, CHUNK)."""
    column = FIRST + tl.arange(0, CHUNK)
    inside = (lane < left)[:, None]
    if FIRST + CHUNK > W:
        inside = inside & (column < W)[None, :]
    return tl.load(pointer + (lane[:, None] * W + column[None, :]), mask=inside, other=0.0)


@triton.jit
def _store(pointer, values, lane, left, W: tl.constexpr, FIRST: tl.constexpr, CHUNK: tl.constexpr):
    column = FIRST + tl.arange(0, CHUNK)
    inside = (lane < left)[:, None] & (column < W)[None, :]
    tl.store(pointer + (lane[:, None] * W + column[None, :]), values, mask=inside)


@triton.jit
def _dot(a, b, plus, PRECISION: tl.constexpr):
    if PRECISION == "interpreted":  # Triton's interpreter multiplies the bits of bfloat16
        a, b = a.to(tl.float32), b.to(tl.float32)
        return tl.dot(a, b, plus, input_precision="ieee")
    else:  # noqa: RET505
        return tl.dot(a, b, plus, input_precision=PRECISION)


@triton.jit
def _held(x, HELD: tl.constexpr):
    """The same numbers; the products then read them from registers, not from shared memory."""
    if HELD:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], x.dtype, True, 2)
    return x


@triton.jit
def _masked(bits, query, inside, first, lane, b, R: tl.constexpr):
    """Bits of a tile of rows from `first` on; `query` and `lane` are along different axes."""
    word = bits + tl.cast(first // 64, tl.int64) * b + query
    words = tl.load(word, mask=inside, other=0)
    if R > 64:  # a tile of 128 rows has two words
        words = tl.where(lane < 64, words, tl.load(word + b, mask=inside, other=0))
    return ((words >> ((first + lane) % 64).to(tl.int64)) & 1) != 0


@triton.jit(do_not_specialize=["b", "count", "part"])
def attend(
    query, rows, target, offset, bits, hits, log_sums, means, repairs, c0, c1, c2, b, count, part,
    W: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, OFFSET: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr, HELD: tl.constexpr, TMA: tl.constexpr, FIXED: tl.constexpr,
    REPAIR: tl.constexpr,
):  # fmt: skip
    """Without BITS, `hits` tells which tiles of rows have answers of these queries.

    With FIXED, the anchor stays the largest score of the first tile. Where the sums then leave the
    range of exact ones, `repairs` is 1, and the same program with REPAIR replaces the results.
    """
    repairs += tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    if REPAIR:  # noqa: SIM102
        if tl.load(repairs) == 0:
            return
    q0, lane, row_lane = tl.program_id(0) * Q, tl.arange(0, Q), tl.arange(0, R)
    left = b - q0
    own = tl.load(target + q0 + lane, mask=lane < left, other=-1).to(tl.int32)
    base = query + q0.to(tl.int64) * W
    a0 = _held(_load(base, lane, left, W, 0, W0), HELD)
    sum0 = tl.zeros([Q, W0], tl.float32)
    if W1:
        a1 = _held(_load(base, lane, left, W, W0, W1), HELD)
        sum1 = tl.zeros([Q, W1], tl.float32)
    if W2:
        a2 = _held(_load(base, lane, left, W, W0 + W1, W2), HELD)
        sum2 = tl.zeros([Q, W2], tl.float32)
    # Sums are multiples of 2 ** anchor: the largest score so far, or in the first tile, times
    # log2 e.
    anchor = tl.full([Q], float("-inf"), tl.float32)
    total = tl.zeros([Q], tl.float32)
    start = tl.program_id(1) * part
    stop = tl.minimum(start + part, count)
    if FIXED:
        base = rows + tl.cast(start, tl.int64) * W
        scores = _dot(a0, tl.trans(_load(base, row_lane, stop - start, W, 0, W0)), None, PRECISION)
        if W1:
            more = _load(base, row_lane, stop - start, W, W0, W1)
            scores = _dot(a1, tl.trans(more), scores, PRECISION)
        if W2:
            more = _load(base, row_lane, stop - start, W, W0 + W1, W2)
            scores = _dot(a2, tl.trans(more), scores, PRECISION)
        anchor = tl.max(scores, 1) * _LOG2E
    if not BITS:
        hits += tl.program_id(0).to(tl.int64) * (tl.cdiv(count, R) + 1) + start // R
        hit = tl.load(hits)  # one tile ahead
    for first in tl.range(start, stop, R):
        row = first + row_lane
        base = rows + tl.cast(first, tl.int64) * W
        e0 = c0.load([first, 0]) if TMA else _load(base, row_lane, stop - first, W, 0, W0)
        scores = _dot(a0, tl.trans(e0), None, PRECISION)
        if W1:
            e1 = c1.load([first, W0]) if TMA else _load(base, row_lane, stop - first, W, W0, W1)
            scores = _dot(a1, tl.trans(e1), scores, PRECISION)
        if W2:
            if TMA:
                e2 = c2.load([first, W0 + W1])
            else:
                e2 = _load(base, row_lane, stop - first, W, W0 + W1, W2)
            scores = _dot(a2, tl.trans(e2), scores, PRECISION)
        if OFFSET:
            scores += tl.load(offset + row, mask=row < stop, other=0.0)[None, :]
        if BITS:
            inside = (lane < left)[:, None]
            hidden = _masked(bits, (q0 + lane)[:, None], inside, first, row_lane[None, :], b, R)
            counts = (row[None, :] != own[:, None]) & (row < stop)[None, :] & (hidden == 0)
            scores = tl.where(counts, scores, float("-inf"))
        else:
            masked = (hit != 0) | (first + R > stop)
            hits += 1
            hit = tl.load(hits)
            if masked:
                counts = (row[None, :] != own[:, None]) & (row < stop)[None, :]
                scores = tl.where(counts, scores, float("-inf"))
        if FIXED:
            shares = tl.exp2(scores * _LOG2E - anchor[:, None])
            total += tl.sum(shares, 1)
        else:
            # `tl.maximum` keeps the multiplication away from the difference of two anchors: fused
            # into it, the difference of equal ones would not be 0.
            largest = tl.maximum(anchor, tl.max(scores, 1) * _LOG2E)
            finite = tl.where(largest == float("-inf"), 0.0, largest)
            shares = tl.exp2(scores * _LOG2E - finite[:, None])
            fade = tl.exp2(anchor - finite)
            anchor = largest
            total = total * fade + tl.sum(shares, 1)
            sum0 *= fade[:, None]
            if W1:
                sum1 *= fade[:, None]
            if W2:
                sum2 *= fade[:, None]
        shares = shares.to(e0.dtype)
        sum0 = _dot(shares, e0, sum0, PRECISION)
        if W1:
            sum1 = _dot(shares, e1, sum1, PRECISION)
        if W2:
            sum2 = _dot(shares, e2, sum2, PRECISION)
    if FIXED:
        exact = (total > _LEAST) & (total < _MOST)
        tl.store(repairs, tl.max(((lane < left) & (exact == 0)).to(tl.int32), 0).to(tl.int8))
    place = tl.program_id(1).to(tl.int64) * b + q0
    tl.store(log_sums + place + lane, anchor + tl.log2(total), mask=lane < left)
    share = 1.0 / tl.where(total > 0, total, 1.0)[:, None]
    base = means + place * W
    _store(base, sum0 * share, lane, left, W, 0, W0)
    if W1:
        _store(base, sum1 * share, lane, left, W, W0, W1)
    if W2:
        _store(base, sum2 * share, lane, left, W, W0 + W1, W2)


@triton.jit(do_not_specialize=["b", "parts", "count"])
def merge(
    query, rows, target, log_sums, means, state, mean, b, parts, count,
    W: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A query's answer score, its log Σ exp, and the mean of its ranges, weighted by their sums.

    log_sums are to the base 2.
    """
    q = tl.program_id(0).to(tl.int64)
    column, lane = tl.arange(0, BLOCK), tl.arange(0, PARTS)
    inside = column < W
    anchor, total = float("-inf"), 0.0
    result = tl.zeros([BLOCK], tl.float32)
    for first in range(0, parts, PARTS):
        exists, place = first + lane < parts, (first + lane) * b.to(tl.int64) + q
        of_parts = tl.load(log_sums + place, mask=exists, other=float("-inf"))
        largest = tl.maximum(anchor, tl.max(of_parts, 0))
        finite = tl.where(largest == float("-inf"), 0.0, largest)
        fade, shares = tl.exp2(anchor - finite), tl.exp2(of_parts - finite)
        both = exists[:, None] & inside[None, :]
        values = tl.load(means + place[:, None] * W + column[None, :], mask=both, other=0.0)
        result = result * fade + tl.sum(values * shares[:, None], 0)
        total = total * fade + tl.sum(shares, 0)
        anchor = largest
    own = tl.load(target + q)
    held = (own >= 0) & (own < count)
    a = tl.load(query + q * W + column, mask=inside, other=0.0).to(tl.float32)
    known = column < tl.where(held, W, 0)
    e = tl.load(rows + own * W + column, mask=known, other=0.0).to(tl.float32)
    tl.store(state + q, tl.where(held, tl.sum(a * e, 0), float("-inf")))
    tl.store(state + b + q, (anchor + tl.log2(total)) * _LN2)
    tl.store(mean + q * W + column, result / tl.where(total > 0, total, 1.0), mask=inside)


@triton.jit(do_not_specialize=["b", "count"])
def query_gradients(
    query, rows, target, state, log_sum, mean, weight, d_query, d_answers, packed, b, count,
    W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of a query and of its answer's row, and what `row_gradients` needs of both."""
    q = tl.program_id(0).to(tl.int64)
    exists, column = q < b, tl.arange(0, BLOCK)
    inside = column < tl.where(exists, W, 0)
    own = tl.load(target + q, mask=exists, other=-1)
    held = (own >= 0) & (own < count)
    answer = tl.load(state + q, mask=exists, other=float("-inf"))
    others = tl.load(state + b + q, mask=exists, other=float("-inf"))
    here = tl.load(log_sum + q, mask=exists, other=float("-inf"))
    its_weight = tl.load(weight + q, mask=exists, other=0.0)
    apart = tl.where(answer == others, 0.0, tl.abs(answer - others))
    log_total = tl.maximum(answer, others) + tl.log(1.0 + tl.exp(-apart))
    # weight · exp(score - log_total) = 2 ** (score · log2 e - shift).
    shift = log_total * _LOG2E - tl.log2(its_weight)
    shift = tl.where((its_weight > 0) & (log_total > float("-inf")), shift, float("inf"))
    bits = shift.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    tl.store(packed + q, (own << 32) | bits)
    share = its_weight * tl.where(here == float("-inf"), 0.0, tl.exp(here - log_total))
    slope = tl.where(held, -its_weight / (1.0 + tl.exp(answer - others)), 0.0)
    a = tl.load(query + q * W + column, mask=inside, other=0.0).to(tl.float32)
    known = column < tl.where(held, W, 0)
    e = tl.load(rows + own * W + column, mask=known, other=0.0).to(tl.float32)
    means = tl.load(mean + q * W + column, mask=inside, other=0.0)
    tl.store(d_query + q * W + column, share * means + slope * e, mask=inside)
    tl.store(d_answers + q * W + column, slope * a, mask=inside)


@triton.jit(do_not_specialize=["b", "n", "count"])
def row_gradients(
    query, rows, offset, bits, hits, packed, out, c0, c1, c2, b, n, count,
    W: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, OFFSET: tl.constexpr, BITS: tl.constexpr,
    PRECISION: tl.constexpr, HELD: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Without BITS, `hits` tells which tiles of rows have answers."""
    r0, lane, query_lane = tl.program_id(0) * R, tl.arange(0, R), tl.arange(0, Q)
    row, left = r0 + lane, count - r0
    base = rows + r0.to(tl.int64) * W
    e0 = _held(_load(base, lane, left, W, 0, W0), HELD)
    sum0 = tl.zeros([R, W0], tl.float32)
    if W1:
        e1 = _held(_load(base, lane, left, W, W0, W1), HELD)
        sum1 = tl.zeros([R, W1], tl.float32)
    if W2:
        e2 = _held(_load(base, lane, left, W, W0 + W1, W2), HELD)
        sum2 = tl.zeros([R, W2], tl.float32)
    if HELD:
        # Products with 0: used ahead of the loop, the operand stays in registers, while Triton
        # would else load it from shared memory in each iteration.
        probe = _dot(e0, tl.zeros([W0, 16], e0.dtype), None, PRECISION)
        if W1:
            probe = _dot(e1, tl.zeros([W1, 16], e0.dtype), probe, PRECISION)
        if W2:
            probe = _dot(e2, tl.zeros([W2, 16], e0.dtype), probe, PRECISION)
        sum0 += tl.sum(probe, 1)[:, None]
    if OFFSET:
        offsets = tl.load(offset + row, mask=lane < left, other=0.0)
    masked = True
    if not BITS:
        masked = tl.load(hits + tl.program_id(0)) != 0
    for first in tl.range(0, b, Q):
        q = first + query_lane
        base = query + tl.cast(first, tl.int64) * W
        a0 = c0.load([first, 0]) if TMA else _load(base, query_lane, b - first, W, 0, W0)
        scores = _dot(e0, tl.trans(a0), None, PRECISION)
        if W1:
            a1 = c1.load([first, W0]) if TMA else _load(base, query_lane, b - first, W, W0, W1)
            scores = _dot(e1, tl.trans(a1), scores, PRECISION)
        if W2:
            if TMA:
                a2 = c2.load([first, W0 + W1])
            else:
                a2 = _load(base, query_lane, b - first, W, W0 + W1, W2)
            scores = _dot(e2, tl.trans(a2), scores, PRECISION)
        if OFFSET:
            scores += offsets[:, None]
        both = tl.load(packed + q)
        own, less = (both >> 32).to(tl.int32), both.to(tl.int32).to(tl.float32, bitcast=True)
        shares = tl.exp2(scores * _LOG2E - less[None, :])
        if masked:
            counts = row[:, None] != own[None, :]
            if BITS:
                hidden = _masked(bits, q[None, :], (q < b)[None, :], r0, lane[:, None], b, R)
                counts = counts & (hidden == 0)
            shares = tl.where(counts, shares, 0.0)
        shares = shares.to(e0.dtype)
        sum0 = _dot(shares, a0, sum0, PRECISION)
        if W1:
            sum1 = _dot(shares, a1, sum1, PRECISION)
        if W2:
            sum2 = _dot(shares, a2, sum2, PRECISION)
    counts = (lane < left)[:, None]
    base = out + r0.to(tl.int64) * W
    _store(base, tl.where(counts, sum0, 0.0), lane, n - r0, W, 0, W0)
    if W1:
        _store(base, tl.where(counts, sum1, 0.0), lane, n - r0, W, W0, W1)
    if W2:
        _store(base, tl.where(counts, sum2, 0.0), lane, n - r0, W, W0 + W1, W2)


@triton.jit
def _negatives(x):
    """How many numbers of each row are negative, from their signs: fewer instructions than `<`."""
    return -tl.sum(x.to(tl.int32, bitcast=True) >> 31, 1)


@triton.jit(do_not_specialize=["b", "count", "part"])
def count_better(
    query, answers, out, c0, c1, c2, b, count, part,
    W: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, C: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Scores above each of the two answers of a query, and scores below: out (parts, 2, 2, b).

    Rows beyond `count` are loaded as zeros and are counted, too. With C, operands are loaded in
    chunks of C columns, which `query` and c0 describe. Else the queries stay.
    """
    q0, lane = tl.program_id(0) * Q, tl.arange(0, Q)
    inside = q0 + lane < b
    answer0 = tl.load(answers + q0 + lane, mask=inside, other=0.0)[:, None]
    answer1 = tl.load(answers + b + q0 + lane, mask=inside, other=0.0)[:, None]
    above0, above1 = tl.zeros([Q], tl.int32), tl.zeros([Q], tl.int32)
    below0, below1 = tl.zeros([Q], tl.int32), tl.zeros([Q], tl.int32)
    if not C:
        base = query + q0.to(tl.int64) * W
        a0 = _load(base, lane, b - q0, W, 0, W0)
        if W1:
            a1 = _load(base, lane, b - q0, W, W0, W1)
        if W2:
            a2 = _load(base, lane, b - q0, W, W0 + W1, W2)
    start = tl.program_id(1) * part
    for first in tl.range(start, tl.minimum(start + part, count), R, flatten=C > 0):
        if C:
            scores = tl.zeros([Q, R], tl.float32)
            for k in tl.range(0, W, C):
                scores = _dot(query.load([q0, k]), tl.trans(c0.load([first, k])), scores, PRECISION)
        else:
            scores = _dot(a0, tl.trans(c0.load([first, 0])), None, PRECISION)
            if W1:
                scores = _dot(a1, tl.trans(c1.load([first, W0])), scores, PRECISION)
            if W2:
                scores = _dot(a2, tl.trans(c2.load([first, W0 + W1])), scores, PRECISION)
        above0 += _negatives(answer0 - scores)
        below0 += _negatives(scores - answer0)
        above1 += _negatives(answer1 - scores)
        below1 += _negatives(scores - answer1)
    out += tl.program_id(1).to(tl.int64) * (4 * b) + q0 + lane
    tl.store(out, above0, mask=inside)
    tl.store(out + b, below0, mask=inside)
    tl.store(out + 2 * b, above1, mask=inside)
    tl.store(out + 3 * b, below1, mask=inside)


@triton.jit
def _gather(pointer, index, first, W: tl.constexpr, CHUNK: tl.constexpr):
    """Columns from `first` on of some rows, 0 where the index is -1: (lanes, CHUNK)."""
    column = first + tl.arange(0, CHUNK)
    inside = (index >= 0)[:, None] & (column < W)[None, :]
    return tl.load(pointer + (index[:, None] * W + column[None, :]), mask=inside, other=0.0)


@triton.jit(do_not_specialize=["count"])
def pair_scores(
    query, rows, of_query, of_row, out, count,
    W: tl.constexpr, W0: tl.constexpr, W1: tl.constexpr, W2: tl.constexpr, C: tl.constexpr,
    Q: tl.constexpr, R: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The diagonal of a tile of `count_better` whose queries and rows are those of P pairs."""
    p0, lane, slot = tl.program_id(0).to(tl.int64) * P, tl.arange(0, Q), tl.arange(0, R)
    left = tl.minimum(count - p0, P)
    q = tl.load(of_query + p0 + lane, mask=lane < left, other=-1)
    row = tl.load(of_row + p0 + slot, mask=slot < left, other=-1)
    scores = tl.zeros([Q, R], tl.float32)
    if C:
        for k in tl.range(0, W, C):
            e = tl.trans(_gather(rows, row, k, W, C))
            scores = _dot(_gather(query, q, k, W, C), e, scores, PRECISION)
    else:
        e = tl.trans(_gather(rows, row, 0, W, W0))
        scores = _dot(_gather(query, q, 0, W, W0), e, scores, PRECISION)
        if W1:
            e = tl.trans(_gather(rows, row, W0, W, W1))
            scores = _dot(_gather(query, q, W0, W, W1), e, scores, PRECISION)
        if W2:
            e = tl.trans(_gather(rows, row, W0 + W1, W, W2))
            scores = _dot(_gather(query, q, W0 + W1, W, W2), e, scores, PRECISION)
    scores = tl.where((row >= 0)[None, :], scores, float("-inf"))
    found = tl.sum(tl.where(lane[:, None] == slot[None, :], scores, 0.0), 1)
    tl.store(out + p0 + lane, found, mask=lane < left)
