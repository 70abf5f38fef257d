"""Pure: `Facts` of a machine -> the engine's CMAKE_ARGS and the reasons. Touches nothing.

On x86 every instruction set is named instead of GGML_NATIVE=ON: the result is the same on every build of this
machine, and AMX gets in only when it was tried and works. Option names: llama.cpp, ggml/CMakeLists.txt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .facts import Facts

# (option, cpuinfo flags it needs, whether ggml turns it on by itself once GGML_NATIVE is off), in dependency order.
_X86_OPTIONS = (
    ("GGML_SSE42", "sse4_2", True),
    ("GGML_AVX", "avx", True),
    ("GGML_AVX2", "avx2", True),
    ("GGML_BMI2", "bmi2", True),
    ("GGML_FMA", "fma", True),
    ("GGML_F16C", "f16c", True),
    ("GGML_AVX_VNNI", "avx_vnni", False),
    ("GGML_AVX512", "avx512f avx512cd avx512vl avx512dq avx512bw", False),
    ("GGML_AVX512_VBMI", "avx512f avx512vbmi", False),
    ("GGML_AVX512_VNNI", "avx512f avx512_vnni", False),
    ("GGML_AVX512_BF16", "avx512f avx512_bf16", False),
)
_AMX_OPTIONS = (("GGML_AMX_TILE", "amx_tile"), ("GGML_AMX_INT8", "amx_int8"), ("GGML_AMX_BF16", "amx_bf16"))
# Checked in this order: "Orin" and "Xavier" boards may also carry "Nano" or "NX" in their names.
_JETSON_ARCHITECTURES = {"thor": "110", "orin": "87", "xavier": "72", "tx2": "62", "nano": "53", "tx1": "53"}
_GPU_OPTIONS = ("GGML_CUDA", "GGML_HIP", "GGML_VULKAN", "GGML_SYCL", "GGML_METAL")
_OLDEST_CUDA = (11, 0)  # ggml's CUDA code is C++17


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """CMAKE_ARGS, and one sentence a decision. depends_on_cpu: the build is only good for this processor model."""

    cmake_args: tuple[str, ...]
    reasons: tuple[str, ...]
    depends_on_cpu: bool = False

    @property
    def text(self) -> str:
        """The value of the CMAKE_ARGS variable."""
        return " ".join(self.cmake_args)


def choose(facts: Facts, *, rpc: bool = False, extra: str = "") -> EngineFlags:
    """Flags that cannot crash on this machine. `extra`, the caller's own CMAKE_ARGS, comes last and so wins."""
    args, reasons = ["-DLLAVA_BUILD=OFF"], ["multimodal library left out: nothing here uses it"]
    cpu_args, cpu_reasons, depends_on_cpu = _cpu(facts)
    gpu_args, gpu_reasons = _gpu(facts, extra)
    args += cpu_args + gpu_args
    reasons += cpu_reasons + gpu_reasons
    if rpc:
        args.append("-DGGML_RPC=ON")
        reasons.append("RPC: asked for")
    if extra.strip():
        args += extra.split()
        reasons.append("CMAKE_ARGS of the environment: added at the end")
    return EngineFlags(tuple(args), tuple(reasons), depends_on_cpu)


def needed_cpu_flags(flags: EngineFlags) -> frozenset[str]:
    """The x86 features, in cpuinfo's words, without which an engine built with these flags would die."""
    options = (*((option, needs) for option, needs, _ in _X86_OPTIONS), *_AMX_OPTIONS)
    # The last word on an option counts, as it does for cmake: the caller's own come last.
    last = dict(argument.removeprefix("-D").split("=", 1) for argument in flags.cmake_args if "=" in argument)
    chosen = {option for option, _ in options if last.get(option) == "ON"}
    return frozenset(word for option, needs in options if option in chosen for word in needs.split())


def _cpu(facts: Facts) -> tuple[list[str], list[str], bool]:
    if facts.machine not in ("x86_64", "amd64", "i686", "i386"):
        return ["-DGGML_NATIVE=ON"], [f"processor: {facts.machine}, the compiler picks its instruction sets"], True
    if not facts.cpu_flags:
        return [], [f"processor: {facts.system} does not list its features; the build finds them"], True
    have = [option for option, needs, _ in _X86_OPTIONS if set(needs.split()) <= facts.cpu_flags]
    args = ["-DGGML_NATIVE=OFF", *(f"-D{option}=ON" for option in have)]
    args += [f"-D{option}=OFF" for option, _, default_on in _X86_OPTIONS if default_on and option not in have]
    if facts.amx.state == "works" and "GGML_AVX512" in have:
        args += [f"-D{option}=ON" for option, needs in _AMX_OPTIONS if needs in facts.cpu_flags]
        amx = f"AMX on: {facts.amx.reason}"
    else:
        amx = f"AMX off: {facts.amx.reason}"
    named = ", ".join(option.removeprefix("GGML_") for option in have) or "the baseline only"
    return args, [f"processor: {facts.cpu_model or facts.machine}, {named}", amx], False


def _gpu(facts: Facts, extra: str) -> tuple[list[str], list[str]]:
    """One backend, the first of CUDA, ROCm and Vulkan that can be built and has a device; the caller's own stands."""
    own = next((name for name in _GPU_OPTIONS if f"-D{name}=ON" in extra.split()), None)
    if own:
        return [], [f"GPU: {own.removeprefix('GGML_')}, as CMAKE_ARGS asks"]
    args, reasons = _cuda(facts)
    if args or facts.system == "Darwin":
        return args, reasons
    if facts.rocm.hipcc and facts.rocm.device:
        return ["-DGGML_HIP=ON"], [*reasons, f"ROCm on: {facts.rocm.hipcc} and an AMD device"]
    if facts.vulkan.device is None:
        return [], reasons
    if facts.vulkan.missing:
        needed = " ".join(facts.vulkan.missing)
        reasons.append(
            f"Vulkan off: for the {facts.vulkan.device} GPU install {needed}, then scripts/quickstart --rebuild"
        )
        return [], reasons
    return ["-DGGML_VULKAN=ON"], [*reasons, f"Vulkan on: an {facts.vulkan.device} GPU, loader, headers and glslc"]


def _cuda(facts: Facts) -> tuple[list[str], list[str]]:
    cuda = facts.cuda
    if facts.system == "Darwin":
        return [], ["GPU: Metal, on by default"]
    if cuda.nvcc is None:
        return [], ["CUDA off: no nvcc"]
    if not cuda.driver:
        return [], [f"CUDA off: nvcc is there but {cuda.driver_note}"]
    if cuda.nvcc_version is None or cuda.nvcc_version < _OLDEST_CUDA:
        seen = "of unknown version" if cuda.nvcc_version is None else "{}.{}".format(*cuda.nvcc_version)
        return [], [f"CUDA off: nvcc {seen} is too old; it must be {_OLDEST_CUDA[0]} or newer"]
    args = ["-DGGML_CUDA=ON"] + ([] if cuda.nvcc_on_path else [f"-DCMAKE_CUDA_COMPILER={cuda.nvcc}"])
    wanted = cuda.architectures or jetson_architecture(facts.jetson_model)
    if not wanted:
        return args, [f"CUDA on: {cuda.driver_note}; architecture unknown, so the engine's usual list is built"]
    targets = [target for architecture in wanted if (target := _target(architecture, cuda.compilable))]
    if not targets:
        return [], [f"CUDA off: this nvcc no longer builds for architecture {', '.join(wanted)}"]
    args.append(f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(dict.fromkeys(targets))}")
    return args, [f"CUDA on: {cuda.driver_note}, architecture {', '.join(targets)}"]


def _target(architecture: str, compilable: tuple[str, ...]) -> str | None:
    """What nvcc is told: the architecture itself, portable code of the newest older one it knows, or nothing."""
    if not compilable or architecture in compilable:
        return architecture
    older = [known for known in compilable if int(known) < int(architecture)]
    return f"{max(older, key=int)}-virtual" if older else None


def jetson_architecture(model: str | None) -> tuple[str, ...]:
    """Compute capability of a Jetson board from its device-tree model name; empty when unknown."""
    words = set(re.findall(r"[a-z0-9]+", (model or "").lower()))
    return next(((architecture,) for name, architecture in _JETSON_ARCHITECTURES.items() if name in words), ())
