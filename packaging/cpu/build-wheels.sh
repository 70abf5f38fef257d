#!/usr/bin/env bash
# Fills one folder with wheels for x86 machines that have neither compiler nor network: the program, what it needs, and
# an engine that holds a variant for every level from SSE4.2 to AVX-512 and takes the best one when it starts.
#
#   packaging/cpu/build-wheels.sh [--dry-run] [--into FOLDER] [--extras NAME,...]
#
#   --dry-run        say every step and do none
#   --into FOLDER    where the wheels go (default: dist/wheelhouse)
#   --extras NAMES   extras to have there, with commas between (default: demo,server)
#
# The engine takes about 15 minutes on two cores, once a folder. There, with the same version of Python:
#   pip install --no-index --find-links FOLDER 'edge-specquant[demo,server]'

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

into=$ROOT/dist/wheelhouse extras=demo,server
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=yes ;;
        --into) into=${2:?--into needs a folder}; shift ;;
        --extras) extras=${2?--extras needs names}; shift ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$1'; see --help" ;;
    esac
    shift
done
case $extras in *[!a-z,]*) fail "'$extras' are no names of extras" ;; esac
[ "$(uname -sm)" = "Linux x86_64" ] || unmet "the variants are those of x86 and Linux; this machine is $(uname -sm)"

scratch=$into.part
python=$scratch/venv/bin/python
version=$(sed -n 's/^ *"llama-cpp-python==\([^"]*\)".*/\1/p' "$ROOT/pyproject.toml")

# The variants are modules that cmake would put into bin/; the binding's folder is where the program looks for them.
flags="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_BACKEND_DL=ON -DGGML_CPU_ALL_VARIANTS=ON"
flags="$flags -DCMAKE_INSTALL_BINDIR=llama_cpp/lib"
# The variant with AMX stays out: it is taken wherever a processor advertises AMX, which faults on some virtual machines.
# So do the second and third copies of each variant (wheels hold no links), and what only a compiler reads.
left_out="/llama_cpp/lib/libggml-cpu-sapphirerapids.so*;/llama_cpp/lib/libggml-cpu-*.so.*;/include/;/lib/"

build_engine() {
    if compgen -G "$into/llama_cpp_python-$version-*.whl" >/dev/null; then
        say "the engine: built before"
        return
    fi
    say "the engine: CMAKE_ARGS=$flags"
    # Into a folder of its own first, so that a build that is broken off never looks done.
    run env CMAKE_ARGS="$flags" SKBUILD_WHEEL_EXCLUDE="$left_out" "$python" -m pip wheel --no-cache-dir --no-deps \
        --no-binary llama-cpp-python -w "$scratch/engine" "llama-cpp-python==$version"
    has_variants "$scratch/engine"/*.whl || fail "the built engine has no variant for AVX2; was the version's build changed?"
    run mv "$scratch/engine"/*.whl "$into/"
}

has_variants() {
    [ "$DRY_RUN" = yes ] || "$python" -m zipfile --list "$1" | grep llama_cpp/lib/libggml-cpu-haswell.so >/dev/null
}

# From a copy: setuptools leaves a build folder beside what it builds, and takes old files from one that is there.
collect_the_rest() {
    local part
    run mkdir "$scratch/source"
    for part in edge_specquant models pyproject.toml README.md LICENSE MANIFEST.in; do
        run cp -R "$ROOT/$part" "$scratch/source/"
    done
    run python3 "$scratch/source/edge_specquant/native/kernel/compile.py" # most machines there have no compiler
    run rm -f "$into"/edge_specquant-*.whl
    run "$python" -m pip wheel --prefer-binary --find-links "$into" --only-binary llama-cpp-python -w "$into" \
        "$scratch/source${extras:+[$extras]}"
}

run rm -rf "$scratch"
run mkdir -p "$into" "$scratch"
run python3 -m venv "$scratch/venv"
build_engine
collect_the_rest
run rm -rf "$scratch"
say "there: pip install --no-index --find-links $(basename "$into") 'edge-specquant${extras:+[$extras]}'"
