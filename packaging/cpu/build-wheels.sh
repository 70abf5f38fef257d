#!/usr/bin/env bash
# Builds the engine once for each x86 level, for machines that must not compile: one wheel in one folder a level.
#
#   packaging/cpu/build-wheels.sh [--dry-run] [--into FOLDER] [LEVEL ...]
#
# LEVEL is sse42, avx2 or avx512 (default: all three; five minutes each on two cores). A level that is there is
# skipped. Install the highest one that a machine has: pip install FOLDER/avx2/*.whl

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

into=$ROOT/dist/engine levels=()
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=yes ;;
        --into) into=${2:?--into needs a folder}; shift ;;
        sse42 | avx2 | avx512) levels+=("$1") ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no level or option '$1'; see --help" ;;
    esac
    shift
done
[ ${#levels[@]} -gt 0 ] || levels=(sse42 avx2 avx512)
[ "$(uname -m)" = x86_64 ] || unmet "these levels are those of x86; this machine is $(uname -m)"

# AMX stays out of every level: it faults on virtual machines that only advertise it.
flags_of() {
    local on=(SSE42) off=(AVX AVX2 BMI2 FMA F16C) set
    case $1 in
        avx2) on=(SSE42 AVX AVX2 BMI2 FMA F16C) off=() ;;
        avx512) on=(SSE42 AVX AVX2 BMI2 FMA F16C AVX512) off=() ;;
    esac
    printf '%s' '-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF'
    for set in "${on[@]}"; do printf ' -DGGML_%s=ON' "$set"; done
    for set in ${off[@]+"${off[@]}"}; do printf ' -DGGML_%s=OFF' "$set"; done
}

version=$(sed -n 's/^ *"llama-cpp-python==\([^"]*\)".*/\1/p' "$ROOT/pyproject.toml")
for level in "${levels[@]}"; do
    if compgen -G "$into/$level/*.whl" >/dev/null; then
        say "$into/$level: built before"
        continue
    fi
    say "$level: CMAKE_ARGS=$(flags_of "$level")"
    # Into a folder of its own first, so that a build that is broken off never looks done.
    run env CMAKE_ARGS="$(flags_of "$level")" python3 -m pip wheel --no-cache-dir --no-deps \
        --no-binary llama-cpp-python -w "$into/$level.part" "llama-cpp-python==$version"
    run mv "$into/$level.part" "$into/$level"
done
