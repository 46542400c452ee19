#!/bin/bash
# What cargo calls in place of the compiler for the workspace's own crates
# (RUSTC_WORKSPACE_WRAPPER): compiles without warnings, and records how, for
# xtask/src/lints.rs. Only cargo's questions about the compiler have no source and leave no
# record. In bash, since other shells drop variables such as CARGO_BIN_EXE_giveway-bench,
# whose names they could not write.
"$@" -D warnings || exit

test=
out=
source=
before=
for word; do
	case $word in
	--test) test=.test ;;
	*.rs) source=${source:-$word} ;;
	esac
	[ "$before" != --out-dir ] || out=$word
	before=$word
done
[ -n "$source" ] && [ -n "$out" ] || exit 0

# Beside what is compiled: one set for each profile, as for each target directory. Build
# scripts lie a directory deeper than the rest.
profile=${out%/build/*}
[ "$profile" != "$out" ] || profile=${out%/*}
records=$profile/records
mkdir -p "$records"
record=$records/$(printf %s "$source" | tr / ,)$test
{
	printf '%s\0' "$PWD" "$@" ''
	env -0
} >"$record.new"
mv "$record.new" "$record"
