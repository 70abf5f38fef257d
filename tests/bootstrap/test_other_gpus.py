"""Which GPU backend set-up builds: what is really there, in order, and what is missing in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edge_specquant.bootstrap.engine.facts import Cuda, Facts
from edge_specquant.bootstrap.engine.flags import choose
from edge_specquant.bootstrap.engine.other_gpus import Rocm, Vulkan, find_rocm, find_vulkan
from edge_specquant.bootstrap.setup import Stamp, _read_stamp, _write_stamp, wished_cmake_args

LAPTOP = Facts("Linux", "x86_64", vulkan=Vulkan("Intel"))
AMD = replace(LAPTOP, rocm=Rocm("/opt/rocm/bin/hipcc", device=True))
NVIDIA = replace(AMD, cuda=Cuda("/usr/bin/nvcc", True, (12, 4), ("89",), True, "nvidia-smi answers", ("89",)))


def gpu_options(facts: Facts, extra: str = "") -> list[str]:
    names = ("CUDA", "HIP", "VULKAN", "SYCL")
    return [name for name in names if f"-DGGML_{name}=ON" in choose(facts, extra=extra).cmake_args]


def test_the_first_that_is_there_is_built():
    assert gpu_options(NVIDIA) == ["CUDA"]
    assert gpu_options(AMD) == ["HIP"]
    assert gpu_options(LAPTOP) == ["VULKAN"]
    assert gpu_options(Facts("Linux", "x86_64")) == []
    assert gpu_options(replace(AMD, rocm=Rocm("/opt/rocm/bin/hipcc", device=False))) == ["VULKAN"]


def test_what_the_user_asks_for_is_not_joined_by_another():
    assert gpu_options(LAPTOP, "-DGGML_SYCL=ON") == ["SYCL"]
    assert gpu_options(LAPTOP, "-DGGML_VULKAN=ON") == ["VULKAN"]


def test_what_is_missing_is_one_line_with_the_command():
    flags = choose(replace(LAPTOP, vulkan=Vulkan("AMD", ("libvulkan-dev", "glslc"))))
    said = [reason for reason in flags.reasons if "Vulkan" in reason]
    assert len(said) == 1 and "libvulkan-dev glslc" in said[0] and "scripts/quickstart --rebuild" in said[0]
    assert "-DGGML_VULKAN=ON" not in flags.cmake_args


def made(root: Path, *files: str) -> None:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0x8086\n", encoding="ascii")


def test_a_device_is_what_the_kernel_drives(tmp_path):
    icd = "usr/share/vulkan/icd.d/lvp.json"
    made(tmp_path, icd)
    assert find_vulkan(tmp_path, lambda _: None) == Vulkan()  # a renderer made of software alone
    made(tmp_path, "sys/class/drm/renderD128/device/vendor")
    assert find_vulkan(tmp_path, lambda _: None) == Vulkan("Intel", ("libvulkan-dev", "glslc", "spirv-headers"))
    made(tmp_path, "usr/include/vulkan/vulkan.h", "usr/lib/x86_64-linux-gnu/libvulkan.so")
    made(tmp_path, "usr/include/spirv/unified1/spirv.hpp")
    assert find_vulkan(tmp_path, lambda name: f"/usr/bin/{name}") == Vulkan("Intel")
    assert find_rocm(tmp_path, lambda _: None) == Rocm()
    made(tmp_path, "opt/rocm/bin/hipcc", "dev/kfd")
    assert find_rocm(tmp_path, lambda _: None).device


def test_the_users_cmake_args_outlive_the_variable(tmp_path, monkeypatch):
    _write_stamp(tmp_path, Stamp("digest", "project", ("demo",), False, "-DGGML_VULKAN=ON"))
    kept = _read_stamp(tmp_path)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    assert kept is not None and wished_cmake_args(kept.cmake_args) == "-DGGML_VULKAN=ON"
    monkeypatch.setenv("CMAKE_ARGS", "")
    assert wished_cmake_args(kept.cmake_args) == ""
