#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# cp.sh <command...>: the example copies files of sizes around its buffers byte for byte, and fails on what is not there.
set -euo pipefail
cp=("$@")

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

for bytes in 0 1 4095 65536 3000001; do
	head -c "$bytes" /dev/urandom >"$temp/from"
	"${cp[@]}" "$temp/from" "$temp/to"
	cmp "$temp/from" "$temp/to"
	rm "$temp/to"
done
if "${cp[@]}" "$temp/missing" "$temp/to" 2>"$temp/err"; then
	echo "copying a missing file succeeded" >&2
	exit 1
fi
if [ ! -s "$temp/err" ]; then
	echo "copying a missing file failed without a word" >&2
	exit 1
fi
