"""The choice of build flags: laws over any processor, tables for the boards we name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_specquant.bootstrap.engine.amx import AmxProbe, probe_amx
from edge_specquant.bootstrap.engine.facts import Cuda, Facts, gather, parse_capabilities, parse_cpuinfo
from edge_specquant.bootstrap.engine.flags import choose, jetson_architecture

AVX512 = frozenset(["avx512f", "avx512cd", "avx512vl", "avx512dq", "avx512bw"])
BASE = frozenset(["sse4_2", "avx", "avx2", "bmi2", "fma", "f16c"])
AMX = frozenset(["amx_tile", "amx_int8", "amx_bf16"])
FEATURES = sorted(BASE | AVX512 | AMX | {"avx_vnni", "avx512vbmi", "avx512_vnni", "avx512_bf16", "sse2"})
PC = Facts("Linux", "x86_64", "Some CPU", BASE)
CARD = Cuda("/usr/bin/nvcc", True, (12, 4), ("75", "80", "86", "87", "89", "90"), True, "nvidia-smi answers", ("86",))

features = st.frozensets(st.sampled_from(FEATURES), min_size=1)
probes = st.sampled_from(["absent", "works", "faults", "unknown"]).map(lambda state: AmxProbe(state, "a reason"))


@given(flags=features, amx=probes)
def test_only_features_the_processor_has_are_turned_on(flags: frozenset[str], amx: AmxProbe) -> None:
    chosen = choose(Facts("Linux", "x86_64", "CPU", flags, amx))
    assert "-DGGML_NATIVE=OFF" in chosen.cmake_args and not chosen.depends_on_cpu
    states = dict(argument.removeprefix("-D").split("=") for argument in chosen.cmake_args)
    assert len(states) == len(chosen.cmake_args), "an option given twice"
    for option, feature in (("SSE42", "sse4_2"), ("AVX", "avx"), ("AVX2", "avx2"), ("BMI2", "bmi2"), ("FMA", "fma")):
        # ggml turns these on by itself, so that absence must be said
        assert states[f"GGML_{option}"] == ("ON" if feature in flags else "OFF")
    assert (states.get("GGML_AVX512") == "ON") == (flags >= AVX512)
    if amx.state != "works":
        assert not any("AMX" in option for option in states)


@given(flags=features, amx=probes, rpc=st.booleans())
def test_every_decision_has_its_reason(flags: frozenset[str], amx: AmxProbe, rpc: bool) -> None:
    chosen = choose(Facts("Linux", "x86_64", "CPU", flags, amx, CARD), rpc=rpc)
    assert ("-DGGML_RPC=ON" in chosen.cmake_args) == rpc == any("RPC" in reason for reason in chosen.reasons)
    assert sum("AMX o" in reason for reason in chosen.reasons) == 1
    assert sum("CUDA o" in reason for reason in chosen.reasons) == 1
    assert "-DLLAVA_BUILD=OFF" in chosen.cmake_args


def test_amx_that_works_is_used() -> None:
    chosen = choose(replace(PC, cpu_flags=BASE | AVX512 | AMX, amx=AmxProbe("works", "tried")))
    assert {"-DGGML_AMX_TILE=ON", "-DGGML_AMX_INT8=ON", "-DGGML_AMX_BF16=ON"} <= set(chosen.cmake_args)


@pytest.mark.parametrize(
    ("statuses", "state"),
    [((0, 0), "works"), ((0, 3), "faults"), ((0, -11), "faults"), ((0, -4), "faults"), ((1,), "unknown")],
)
def test_amx_probe_outcomes(statuses: tuple[int, ...], state: str) -> None:
    left = list(statuses)

    def run(command: Sequence[str]) -> int:
        del command
        return left.pop(0)

    assert probe_amx(AMX, run).state == state and not left
    assert probe_amx(BASE, run).state == "absent"


@pytest.mark.skipif(sys.platform != "linux", reason="the probe's system call is Linux's")
def test_the_real_amx_probe_survives_whatever_this_processor_does() -> None:
    assert probe_amx(AMX).state in ("works", "faults", "unknown")


def test_a_compiler_without_a_driver_gives_a_processor_build() -> None:
    chosen = choose(replace(PC, cuda=replace(CARD, driver=False, driver_note="no NVIDIA driver", architectures=())))
    assert not any("CUDA" in argument for argument in chosen.cmake_args)
    assert any("nvcc is there but no NVIDIA driver" in reason for reason in chosen.reasons)


@pytest.mark.parametrize(
    ("cuda", "expected"),
    [
        (CARD, "86"),
        (replace(CARD, architectures=("75", "86")), "75;86"),
        (replace(CARD, architectures=("120",)), "90-virtual"),
        (replace(CARD, compilable=()), "86"),
    ],
)
def test_cuda_architectures(cuda: Cuda, expected: str) -> None:
    assert f"-DCMAKE_CUDA_ARCHITECTURES={expected}" in choose(replace(PC, cuda=cuda)).cmake_args


@pytest.mark.parametrize(
    "cuda",
    [
        replace(CARD, nvcc_version=(10, 2)),
        replace(CARD, nvcc_version=None),
        replace(CARD, architectures=("53",)),
        Cuda(),
    ],
)
def test_cuda_that_cannot_be_built_is_off(cuda: Cuda) -> None:
    assert not any("CUDA" in argument for argument in choose(replace(PC, cuda=cuda)).cmake_args)


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("NVIDIA Jetson Orin Nano Developer Kit", ("87",)),
        ("NVIDIA Jetson AGX Orin", ("87",)),
        ("NVIDIA Jetson Xavier NX Developer Kit", ("72",)),
        ("NVIDIA Jetson Nano Developer Kit", ("53",)),
        ("quill TX2", ("62",)),
        ("NVIDIA Jetson TX1", ("53",)),
        ("unknown model", ()),
        (None, ()),
    ],
)
def test_jetson_boards(model: str | None, architecture: tuple[str, ...]) -> None:
    assert jetson_architecture(model) == architecture


def test_a_jetson_builds_for_its_own_architecture_with_nvcc_off_the_path() -> None:
    nvcc = "/usr/local/cuda/bin/nvcc"
    cuda = Cuda(nvcc, False, (12, 6), ("53", "72", "87"), True, "Jetson", ())
    chosen = choose(Facts("Linux", "aarch64", cuda=cuda, jetson_model="NVIDIA Jetson Orin NX"))
    expected = {"-DGGML_NATIVE=ON", "-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=87", f"-DCMAKE_CUDA_COMPILER={nvcc}"}
    assert expected <= set(chosen.cmake_args) and chosen.depends_on_cpu


def test_own_cmake_args_come_last() -> None:
    assert choose(PC, extra=" -DGGML_AVX2=OFF  -DX=1").cmake_args[-2:] == ("-DGGML_AVX2=OFF", "-DX=1")


def test_cpuinfo_of_both_families() -> None:
    x86 = "processor\t: 0\nmodel name\t: Xeon (R) @ 2GHz: x\nflags\t\t: fpu avx2 amx_tile\nbugs\t\t: a\n\n"
    assert parse_cpuinfo(x86 + "processor\t: 1\nflags\t\t: no\n") == (
        "Xeon (R) @ 2GHz: x",
        frozenset({"fpu", "avx2", "amx_tile"}),
    )
    arm = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n"
    assert parse_cpuinfo(arm) == ("0x41 0xd0b", frozenset({"fp", "asimd"}))
    assert parse_cpuinfo("") == ("", frozenset())


def test_capabilities_of_nvidia_smi() -> None:
    assert parse_capabilities("8.6\n7.5\n8.6\n12.0\n[N/A]\nFailed to initialize NVML\n") == ("75", "86", "120")


def test_the_facts_of_this_machine_give_a_build() -> None:
    assert choose(gather()).text.startswith("-DLLAVA_BUILD=OFF")
