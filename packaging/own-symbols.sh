#!/bin/sh
# own-symbols.sh SHARED STATIC INTO: makes of the static library another one whose only global symbols are those that the
# shared object exports. As cargo builds it, it exports every symbol of Rust's library and of all dependencies, which
# meet those of another library in Rust in the same program.
set -eu
shared=$1 static=$2 into=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$shared" | awk '{print $3}' >"$work/names"
[ -s "$work/names" ] || { echo "$shared exports nothing" >&2; exit 1; }
# What is needed becomes one object. Rust's own library comes with LLVM's bitcode, which no linker here needs and which
# tools with a plugin of another LLVM stumble over ("Invalid encoding").
ld -r $(sed 's/^/-u /' "$work/names") "$static" -o "$work/flashloom.o"
objcopy --keep-global-symbols="$work/names" --remove-section=.llvmbc --remove-section=.llvmcmd "$work/flashloom.o"
rm -f "$into"
ar rcs "$into" "$work/flashloom.o"
