"""Instructions per pair and coordinate in the compiled loops of the distance programs, for an H200.

python benchmarks/count_instructions.py --out FILE.json          needs Triton, but no GPU

The loop of each program of bench_half_distances.py is compiled for compute capability 9.0 and
disassembled. A multiprocessor starts 128 of these instructions per clock, counted per thread, and
16 of the special-function unit's (`roots`).
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bench_half_distances as bench
import half_distances
import triton
from bench_half_distances import LANES, NAMES, WARPS, Packed
from measure import write_rows
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from allneg.kernels.distances import programs_gpu
from allneg.kernels.distances.gpu import Shape

_BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)(.*?);")
_LABEL = re.compile(r"\s*(\.L_x_\d+):")


def compiled(program: Any, types: dict[str, str], constants: dict[str, Any], **options: Any) -> Any:
    names = program.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if signature[name].startswith("*")
    }
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=program, signature=signature, constexprs=values, attrs=aligned)
    given = {name: value for name, value in options.items() if value is not None}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=given)


def loop(kernel: Any) -> tuple[list[str], int, int]:
    """The instructions of the loop with most loads, registers, and bytes spilled."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        text = _output("nvdisasm", "-c", file.name)
        usage = _output("cuobjdump", "-res-usage", file.name)
    names: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in text.splitlines():
        if found := _LABEL.match(line):
            labels[found[1]] = len(names)
        elif found := _INSTRUCTION.match(line):
            names.append(found[1])
            jump = re.search(r"`\((\.L_x_\d+)\)", found[2])
            if found[1] == "BRA" and jump and jump[1] in labels:
                loops.append(names[labels[jump[1]] :])
    most = max(body.count("LDG") for body in loops)
    body = min((body for body in loops if body.count("LDG") == most), key=len)
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())  # type: ignore[union-attr]
    return body, registers, stack


def _output(name: str, *options: str) -> str:
    done = subprocess.run([_BINARIES / name, *options], capture_output=True, text=True, check=True)
    return done.stdout


def float32(direction: str, parts: int, shape: Shape) -> tuple[Any, int]:
    """The program of the library, and the elements of a thread in one iteration."""
    integers = ("n_queries", "n_rows", "query_stride", "table_stride", "dim", "out_stride")
    integers += ("grad_stride", "part")
    program = programs_gpu.scores if direction == "forward" else programs_gpu.both_gradients
    types = {name: "i32" for name in program.arg_names if name in integers}
    pointers = ("query", "table", "out", "grad", "d_query", "d_table")
    types |= {name: "*fp32" for name in program.arg_names if name in pointers}
    lanes = LANES if direction == "forward" else shape.lanes
    axes = ("N1", "N2") if direction == "forward" else ("D1", "D2")
    constants = {
        "PARTS": parts, "M1": shape.rows, "M2": shape.warps * (LANES // lanes), "STEP": shape.step,
        axes[0]: shape.others, axes[1]: lanes, "ASM": True,
    }  # fmt: skip
    kernel = compiled(
        program, types, constants, num_warps=shape.warps, num_stages=1, maxnreg=shape.registers
    )
    return kernel, shape.rows * shape.others * shape.step


def packed(direction: str, parts: int, way: Packed) -> tuple[Any, int]:
    integers = ("n_queries", "n_rows", "query_stride", "table_stride", "words", "out_stride")
    integers += ("grad_stride", "part")
    program = half_distances.scores
    constants = {
        "PARTS": parts, "KIND": way.kind, "ROOT": way.root, "SPAN": way.span, "M1": way.rows,
        "M2": WARPS,
    }  # fmt: skip
    if direction == "forward":
        constants |= {"N1": way.others, "N2": LANES}
    else:
        program = half_distances.both_gradients
        constants |= {"SIGN": way.sign, "D2": LANES}
    types = {name: "i32" for name in program.arg_names if name in integers}
    types |= {name: "*i32" for name in program.arg_names if name in ("query", "table", "grad")}
    types |= {n: "*fp32" for n in program.arg_names if n in ("out", "d_query", "d_table")}
    types |= {"scale": "fp32"} if direction == "forward" else {}
    kernel = compiled(
        program, types, constants, num_warps=WARPS, num_stages=1, maxnreg=way.registers
    )
    per_word = 4 if way.kind == "u8" else 2
    return kernel, way.rows * (way.others if direction == "forward" else 1) * way.span * per_word


def counted() -> Iterator[dict[str, Any]]:
    for parts, name in NAMES.items():
        for direction, shapes, packs in (
            ("forward", bench.FORWARD, bench.PACKED_FORWARD),
            ("backward", bench.BACKWARD, bench.PACKED_BACKWARD),
        ):
            ways: list[tuple[str, Shape | Packed]] = [("float32", shape) for shape in shapes[parts]]
            ways += [(way.kind, way) for way in packs[parts]]
            for way, tile in ways:
                build = float32 if isinstance(tile, Shape) else packed
                kernel, elements = build(direction, parts, tile)  # type: ignore[arg-type]
                body, registers, stack = loop(kernel)
                yield {
                    "kernel": name, "direction": direction, "way": way,
                    "tile": asdict(tile),
                    "instructions": len(body) / elements, "roots": body.count("MUFU") / elements,
                    "loads": body.count("LDG") / elements, "registers": registers, "stack": stack,
                }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--most", type=int, help="count the first programs only")
    args = parser.parse_args()
    about = {"instructions": "compute capability 9.0", "triton": triton.__version__}
    write_rows(about, itertools.islice(counted(), args.most), args.out)


if __name__ == "__main__":
    main()
