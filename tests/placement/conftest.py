"""Fake machines (file trees, device lists, NVML stand-ins) and sparse models (headers of real sizes, no weights)."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from edge_specquant.gguf.format.header import ModelCard, read_card
from edge_specquant.native.library.devices import EngineDevice
from edge_specquant.placement.cost.sibling import Sibling
from edge_specquant.placement.machine.hardware import HardwareProfile, probe

GIB = 1024**3


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Writes each text under its name."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cpu_files(
    n_cores: int, *, smt: int = 1, model: str | None = "Test CPU", part: str | None = None, little: int = 0
) -> dict[str, str]:
    """cpuinfo, topology and affinity of n_cores cores (the last `little` of them slow) with smt threads each."""
    n = n_cores * smt
    lines = []
    files = {
        "sys/devices/system/cpu/online": f"0-{n - 1}\n" if n > 1 else "0\n",
        "proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t0-{n - 1}\n",
    }
    for cpu in range(n):
        core = cpu % n_cores
        lines += [f"processor\t: {cpu}", *([f"model name\t: {model}"] if model else [])]
        lines += [f"CPU part\t: {part}", "Features\t: fp asimd asimddp"] if part else ["flags\t\t: fpu avx2 fma f16c"]
        siblings = ",".join(str(core + i * n_cores) for i in range(smt))
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = siblings + "\n"
        if little:
            slow = core >= n_cores - little
            files[f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"] = "350\n" if slow else "1024\n"
    files["proc/cpuinfo"] = "\n".join(lines) + "\n"
    return files


def meminfo(total_gib: float, available_gib: float) -> dict[str, str]:
    """MemFree is kept tiny: a machine that has run for a while."""
    total, available = int(total_gib * 1024**2), int(available_gib * 1024**2)
    return {
        "proc/meminfo": f"MemTotal: {total} kB\nMemFree: 131072 kB\nMemAvailable: {available} kB\n"
        f"Buffers: 1024 kB\nCached: {available - 131072} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    }


def jetson_files(model: str, *, mode: str = "MAXN") -> dict[str, str]:
    return {
        "proc/device-tree/model": model + "\0",
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n",
        "etc/nvpmodel.conf": f"< POWER_MODEL ID=0 NAME={mode} >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=1 NAME=15W >\n",
        "var/lib/nvpmodel/status": "pmode:0000 fmode:quiet\n",
        "sys/class/hwmon/hwmon1/name": "ina3221\n",
        "sys/class/hwmon/hwmon1/in1_label": "VDD_IN\n",
        "sys/class/hwmon/hwmon1/in1_input": "5000\n",
        "sys/class/hwmon/hwmon1/curr1_input": "1200\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "48500\n",
        "sys/class/thermal/thermal_zone1/type": "cv0-thermal\n",
        "sys/class/thermal/thermal_zone1/temp": "-256000\n",
    }


@dataclass
class FakeGpu:
    """What a stand-in NVML says of one GPU; None raises Not Supported."""

    name: str = "NVIDIA GeForce RTX 4090"
    uuid: str | None = "GPU-aaaa1111"
    pci: str | None = "00000000:01:00.0"
    memory: tuple[int, int] | None = (24 * GIB, 23 * GIB)
    power_mw: int | None = 35_000
    mig: list[str] | None = None


def fake_nvml(*gpus: FakeGpu, driver: str = "550.54", broken: str | None = None) -> Any:
    """A module with pynvml's interface."""

    class NVMLError(Exception):
        pass

    def ask(value: Any) -> Any:
        if value is None:
            raise NVMLError("Not Supported")
        return value

    def init() -> None:
        if broken:
            raise NVMLError(broken)

    def memory(gpu: FakeGpu) -> Any:
        total, free = ask(gpu.memory)
        return types.SimpleNamespace(total=total, free=free)

    def mig_slice(gpu: FakeGpu, slot: int) -> str:
        slices = gpu.mig or []
        return ask(slices[slot] if slot < len(slices) else None)

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlSystemGetDriverVersion=lambda: driver,
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=lambda index: gpus[index],
        nvmlDeviceGetName=lambda gpu: gpu.name,
        nvmlDeviceGetUUID=lambda gpu: gpu if isinstance(gpu, str) else ask(gpu.uuid),
        nvmlDeviceGetPciInfo=lambda gpu: types.SimpleNamespace(busId=ask(gpu.pci)),
        nvmlDeviceGetMemoryInfo=memory,
        nvmlDeviceGetPowerUsage=lambda gpu: ask(gpu.power_mw),
        nvmlDeviceGetEnforcedPowerLimit=lambda gpu: ask(gpu.power_mw) * 10,
        nvmlDeviceGetMigMode=lambda gpu: ask([1, 1] if gpu.mig is not None else None),
        nvmlDeviceGetMaxMigDeviceCount=lambda _gpu: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=mig_slice,
    )


def no_nvml() -> Any:
    raise ModuleNotFoundError("No module named 'pynvml'")


def no_smi(command: list[str]) -> str:
    raise FileNotFoundError(command[0])


@dataclass
class Machine:
    """Everything `probe` is given."""

    files: dict[str, str]
    devices: list[EngineDevice] = field(default_factory=list)
    nvml: Any = None
    smi: Callable[[list[str]], str] = no_smi
    environment: dict[str, str] = field(default_factory=dict)
    system: str = "linux x86_64"

    def probe(self, root: Path) -> HardwareProfile:
        return probe(
            write_tree(root, self.files),
            devices=self.devices,
            engine_features="CPU : AVX2 = 1 | FMA = 1 | AVX512 = 0 | REPACK = 1",
            load_nvml=(lambda: self.nvml) if self.nvml is not None else no_nvml,
            run_smi=self.smi,
            environment=self.environment,
            page_size=4096,
            system=self.system,
        )


def cuda(index: int, description: str, total_gib: float, free_gib: float, *, kind: str = "gpu", pci: str | None = None):
    return EngineDevice(f"CUDA{index}", description, kind, int(free_gib * GIB), int(total_gib * GIB), pci)


def _jetson(model: str, total_gib: float, available_gib: float, n_cores: int, mode: str) -> Machine:
    return Machine(
        {
            **cpu_files(n_cores, model=None, part="0xd42"),
            **meminfo(total_gib, available_gib),
            **jetson_files(model, mode=mode),
        },
        # The engine's figure for an integrated GPU is the RAM once more; the driver's is Not Supported.
        [cuda(0, "Orin", total_gib, 0.2, kind="igpu")],
        fake_nvml(FakeGpu("Orin (nvgpu)", None, None, None, None)),
        system="linux aarch64",
    )


MACHINES: dict[str, Machine] = {
    "Jetson Orin Nano 8 GB": _jetson("NVIDIA Jetson Orin Nano Developer Kit Super", 7.4, 5.9, 6, "25W"),
    "Jetson Orin NX 16 GB": _jetson("NVIDIA Jetson Orin NX Engineering Reference", 15.3, 13.2, 8, "MAXN"),
    "Jetson AGX Orin 64 GB": _jetson("NVIDIA Jetson AGX Orin Developer Kit", 61.3, 57.0, 12, "MAXN"),
    "Raspberry Pi 5, 8 GB": Machine(
        {
            **cpu_files(4, model=None, part="0xd0b"),
            **meminfo(7.9, 6.8),
            "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0",
        },
        system="linux aarch64",
    ),
    "laptop, 8 GB, RTX 3050 4 GB": Machine(
        {
            **cpu_files(4, smt=2),
            **meminfo(7.6, 5.2),
            "sys/class/power_supply/BAT0/type": "Battery\n",
            "sys/class/power_supply/BAT0/capacity": "81\n",
            "sys/class/power_supply/BAT0/status": "Discharging\n",
            "sys/class/power_supply/AC/type": "Mains\n",
            "sys/class/power_supply/AC/online": "0\n",
        },
        [cuda(0, "NVIDIA GeForce RTX 3050 Laptop GPU", 4.0, 3.7, pci="0000:01:00.0")],
        fake_nvml(FakeGpu("NVIDIA GeForce RTX 3050 Laptop GPU", memory=(4 * GIB, int(3.7 * GIB)))),
    ),
    "desktop, 32 GB, RTX 4090": Machine(
        {**cpu_files(8, smt=2), **meminfo(31.2, 27.0)},
        [cuda(0, "NVIDIA GeForce RTX 4090", 23.6, 22.9, pci="0000:01:00.0")],
        fake_nvml(FakeGpu()),
    ),
    "two 8 GB cards, 32 GB": Machine(
        {**cpu_files(8, smt=2), **meminfo(31.2, 27.0)},
        [
            cuda(0, "NVIDIA GeForce RTX 3070", 7.8, 7.5, pci="0000:01:00.0"),
            cuda(1, "NVIDIA GeForce RTX 3070", 7.8, 7.5, pci="0000:02:00.0"),
        ],
        fake_nvml(FakeGpu("NVIDIA GeForce RTX 3070"), FakeGpu("NVIDIA GeForce RTX 3070", "GPU-b", "00000000:02:00.0")),
    ),
    "container, 2 CPUs, 4 GiB": Machine(
        {
            **cpu_files(16, smt=2),
            **meminfo(62.0, 55.0),
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
            "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/memory.current": f"{GIB // 4}\n",
            "sys/fs/cgroup/memory.stat": f"anon 1000\ninactive_file {GIB // 8}\n",
        },
    ),
}


@pytest.fixture(params=list(MACHINES), ids=lambda name: name.replace(" ", "-"))
def machine_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def profile_of(tmp_path: Path) -> Callable[[str], HardwareProfile]:
    """Name of a machine -> its profile."""
    return lambda name: MACHINES[name].probe(tmp_path / name.replace(" ", "_"))


@pytest.fixture
def kit() -> types.SimpleNamespace:
    """The builders of this file, for tests that make machines of their own (test modules cannot import conftest)."""
    return types.SimpleNamespace(
        Machine=Machine,
        FakeGpu=FakeGpu,
        fake_nvml=fake_nvml,
        cpu_files=cpu_files,
        meminfo=meminfo,
        jetson_files=jetson_files,
        cuda=cuda,
        write_tree=write_tree,
        machines=MACHINES,
        GIB=GIB,
    )


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, as its configuration gives them."""

    arch: str
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    n_vocab: int
    head_size: int | None = None
    tied: bool = False
    window: int | None = None
    bias: bool = False
    qk_norm: bool = False
    n_ctx_train: int = 32768

    @property
    def head(self) -> int:
        return self.head_size or self.n_embd // self.n_head


SHAPES: dict[str, Shape] = {
    "Qwen2.5-0.5B": Shape("qwen2", 24, 896, 4864, 14, 2, 151936, tied=True, bias=True),
    "Qwen2.5-3B": Shape("qwen2", 36, 2048, 11008, 16, 2, 151936, tied=True, bias=True),
    "Qwen2.5-7B": Shape("qwen2", 28, 3584, 18944, 28, 4, 152064, bias=True),
    "Qwen3-0.6B": Shape("qwen3", 28, 1024, 3072, 16, 8, 151936, head_size=128, tied=True, qk_norm=True),
    "Llama-3.2-1B": Shape("llama", 16, 2048, 8192, 32, 8, 128256, tied=True, n_ctx_train=131072),
    "Llama-2-7B": Shape("llama", 32, 4096, 11008, 32, 32, 32000, n_ctx_train=4096),
    "Gemma-2-2B": Shape("gemma2", 26, 2304, 9216, 8, 4, 256000, head_size=256, tied=True, window=4096),
    "Gemma-3-1B": Shape("gemma3", 26, 1152, 6912, 4, 1, 262144, head_size=256, tied=True, window=512, qk_norm=True),
}


def write_sparse_gguf(
    path: Path, shape: Shape, weight: str, head: str | None = None, *, is_residual: bool = False
) -> Path:
    """A GGUF with the header of a real model and holes for weights: takes no disk, good for `no_alloc` loads.

    is_residual: only the matrices, as bytes of two columns each: the second file of a nested pair.
    """
    writer = gguf.GGUFWriter(path, shape.arch)
    writer.add_block_count(shape.n_layer)
    writer.add_embedding_length(shape.n_embd)
    writer.add_feed_forward_length(shape.n_ff)
    writer.add_head_count(shape.n_head)
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_context_length(shape.n_ctx_train)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_tokenizer_model("none")
    writer.add_rope_dimension_count(shape.head)
    if shape.head_size:
        writer.add_key_length(shape.head_size)
        writer.add_value_length(shape.head_size)
    if shape.window:
        writer.add_sliding_window(shape.window)
    n_bytes = 0
    tensors = list(_tensors(shape, weight, head or weight))
    if is_residual:
        tensors = [(name, (size[0], size[1] // 2), "I8") for name, size, _ in tensors if len(size) > 1]
    for name, rows_first, type_name in tensors:
        kind = gguf.GGMLQuantizationType[type_name]
        n_per_block, n_block_bytes = gguf.GGML_QUANT_SIZES[kind]
        size = math.prod(rows_first) // n_per_block * n_block_bytes
        writer.add_tensor_info(name, rows_first, np.dtype(np.float32), size, raw_dtype=kind)
        n_bytes += -(-size // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    file = writer.fout[0]
    file.truncate(-(-file.tell() // 32) * 32 + n_bytes)
    writer.close()
    return path


def _tensors(shape: Shape, weight: str, head: str) -> Iterator[tuple[str, tuple[int, ...], str]]:
    q, kv, embd, ff = shape.n_head * shape.head, shape.n_head_kv * shape.head, shape.n_embd, shape.n_ff
    yield "token_embd.weight", (shape.n_vocab, embd), head
    for layer in range(shape.n_layer):
        norms = ["attn_norm", "ffn_norm"]
        norms += ["post_attention_norm", "post_ffw_norm"] if shape.arch.startswith("gemma") else []
        vectors = dict.fromkeys(norms, embd)
        vectors |= {"attn_q_norm": shape.head, "attn_k_norm": shape.head} if shape.qk_norm else {}
        for name, size in vectors.items():
            yield f"blk.{layer}.{name}.weight", (size,), "F32"
        for name, size in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)) if shape.bias else ():
            yield f"blk.{layer}.{name}.bias", (size,), "F32"
        matrices = {"attn_q": (q, embd), "attn_k": (kv, embd), "attn_v": (kv, embd), "attn_output": (embd, q)}
        matrices |= {"ffn_gate": (ff, embd), "ffn_up": (ff, embd), "ffn_down": (embd, ff)}
        for name, rows_first in matrices.items():
            yield f"blk.{layer}.{name}.weight", rows_first, weight
    yield "output_norm.weight", (embd,), "F32"
    if not shape.tied:
        yield "output.weight", (shape.n_vocab, embd), head


@pytest.fixture(scope="session")
def sparse_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """(name of SHAPES, weight type, head type) -> a sparse file, made once."""
    folder = tmp_path_factory.mktemp("sparse")

    @functools.cache
    def make(name: str, weight: str = "Q4_0", head: str | None = None) -> Path:
        return write_sparse_gguf(folder / f"{name}-{weight}-{head}.gguf", SHAPES[name], weight, head)

    return make


@pytest.fixture(scope="session")
def family_cards(sparse_model: Callable[..., Path]) -> Callable[[str], dict[str, ModelCard]]:
    """Name of SHAPES -> cards of its f16, q8 and q4 siblings."""

    @functools.cache
    def cards(name: str) -> dict[str, ModelCard]:
        types = {"f16": "F16", "q8": "Q8_0", "q4": "Q4_0"}
        return {variant: read_card(sparse_model(name, weight)) for variant, weight in types.items()}

    return cards


@pytest.fixture(scope="session")
def nested_siblings(
    family_cards: Callable[[str], dict[str, ModelCard]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[Sibling]]:
    """Name of SHAPES -> its f16, q8 and q4 siblings and a nested pair."""
    folder = tmp_path_factory.mktemp("nested")

    @functools.cache
    def siblings(name: str) -> list[Sibling]:
        base = read_card(write_sparse_gguf(folder / f"{name}-base.gguf", SHAPES[name], "Q4_0"))
        residual = read_card(write_sparse_gguf(folder / f"{name}.gguf", SHAPES[name], "Q4_0", is_residual=True))
        pair = [
            Sibling("base", base, is_cpu_only=True),
            Sibling("nested", base, residual=residual, is_cpu_only=True),
        ]
        return [*(Sibling(variant, card) for variant, card in family_cards(name).items()), *pair]

    return siblings
