#!/usr/bin/env bash
# Builds the engine's wheel for 64-bit Arm on another machine, where it takes minutes: copy it to the board afterwards.
#
#   packaging/arm/cross-wheel.sh [--dry-run] [--arch NAME] [--into FOLDER]
#
#   --dry-run      say every step and do none
#   --arch NAME    -march of the board (default: armv8.2-a+dotprod+fp16, as a Raspberry Pi 5 has; Pi 4: armv8-a)
#   --into FOLDER  where the wheel goes (default: dist/engine/NAME)

set -euo pipefail
# shellcheck source=packaging/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

arch=armv8.2-a+dotprod+fp16 into=''
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) DRY_RUN=yes ;;
        --arch) arch=${2:?--arch needs a name such as armv8-a}; shift ;;
        --into) into=${2:?--into needs a folder}; shift ;;
        -h | --help) usage "${BASH_SOURCE[0]}"; exit 0 ;;
        *) fail "there is no option '$1'; see --help" ;;
    esac
    shift
done
case $arch in *[!A-Za-z0-9.+_-]* | '') fail "'$arch' is no name of an architecture" ;; esac
into=${into:-$ROOT/dist/engine/$arch}
command -v aarch64-linux-gnu-g++ >/dev/null ||
    unmet "there is no cross compiler; on Debian and Ubuntu: sudo apt install g++-aarch64-linux-gnu"
if compgen -G "$into/*.whl" >/dev/null; then
    say "$into: built before"
    exit 0
fi

flags="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH=$arch -DCMAKE_SYSTEM_NAME=Linux"
flags="$flags -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc"
flags="$flags -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"
version=$(sed -n 's/^ *"llama-cpp-python==\([^"]*\)".*/\1/p' "$ROOT/pyproject.toml")
# Into a folder of its own first, so that a build that is broken off never looks done; with a pip of its own, which
# Debian's Python lacks. The variable names the platform in the wheel's tag.
run rm -rf "$into.part"
run mkdir -p "$into" "$into.part"
run python3 -m venv "$into.part/venv"
run env _PYTHON_HOST_PLATFORM=linux-aarch64 CMAKE_ARGS="$flags" "$into.part/venv/bin/python" -m pip wheel \
    --no-cache-dir --no-deps --no-binary llama-cpp-python -w "$into.part/out" "llama-cpp-python==$version"
run mv "$into.part/out"/*.whl "$into/"
run rm -rf "$into.part"
say "on the board: pip install $(basename "$into")/*.whl, then the package"
