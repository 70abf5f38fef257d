"""The probe on fake machines: what is there is read, what is not is None with a reason, nothing raises or hangs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from edge_specquant.native.library.devices import EngineDevice
from edge_specquant.placement.machine.bandwidth import gpu_bandwidth, host_bandwidth
from edge_specquant.placement.machine.cgroup import read_cgroup
from edge_specquant.placement.machine.cpu import read_cpu
from edge_specquant.placement.machine.file_tree import Readings, parse_cpu_list, within
from edge_specquant.placement.machine.memory import read_memory
from edge_specquant.placement.machine.nvml import NvmlGpu, parse_smi, visible_uuids


def test_every_machine_is_read_without_an_exception_and_as_json(machine_name, profile_of):
    profile = profile_of(machine_name)
    assert profile.memory.n_free and profile.cpu.n_threads >= 1
    json.loads(json.dumps(profile.as_json()))


def test_an_empty_tree_gives_none_and_a_reason_each(kit, tmp_path):
    profile = kit.Machine({}).probe(tmp_path)
    reasons = {item.field: item.reason for item in profile.missing}
    assert (profile.cpu.model, profile.memory.n_total, profile.board, profile.gpus) == (None, None, None, ())
    assert {"cpu.model", "memory.n_total", "board", "power.on_mains", "gpu.nvml", "gpu.nvidia_smi"} <= set(reasons)
    assert all(reasons.values())
    assert profile.cpu.n_threads == 1


class Bare(Readings):
    """The real root, as it looks where neither /proc nor /sys is mounted."""

    def path(self, name):
        return Path("/nonexistent", name.lstrip("/"))


def test_a_linux_without_proc_gives_counts_and_reasons(monkeypatch):
    def no_file(**_kwargs):
        raise FileNotFoundError(2, "No such file or directory", "/proc/cpuinfo")

    monkeypatch.setattr(psutil, "PROCFS_PATH", "/nonexistent")
    monkeypatch.setattr(psutil, "cpu_count", no_file)
    readings = Bare()
    cpu = read_cpu(readings, 1.5, None)
    memory = read_memory(readings, read_cgroup(readings), os.sysconf("SC_PAGE_SIZE"))
    reasons = {item.field: item.reason for item in readings.missing}
    assert (cpu.model, cpu.n_logical, cpu.n_threads) == (None, os.cpu_count(), 1)
    assert "/proc/cpuinfo" in reasons["cpu.model"] and "/nonexistent/meminfo" in reasons["memory.n_available"]
    assert memory.n_total and memory.n_free and memory.n_free <= memory.n_total


WITHOUT_PROC = """
mount -t tmpfs none /proc && mount -t tmpfs none /sys && exec "$0" -c '
import json
from edge_specquant.placement.machine.hardware import probe
print(json.dumps(probe().as_json()))'
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="these mounts are Linux's")
def test_a_real_linux_without_proc_is_read_without_an_exception():
    own_root = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    tried = [*own_root, "mount -t tmpfs none /proc"]
    if shutil.which("unshare") is None or subprocess.run(tried, capture_output=True, check=False).returncode != 0:
        pytest.skip("no mounts of one's own are allowed here")
    done = subprocess.run([*own_root, WITHOUT_PROC, sys.executable], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    machine = json.loads(done.stdout)
    assert machine["cpu"]["n_threads"] >= 1 and machine["memory"]["n_total"] and "cpu.model" in machine["missing"]


@pytest.mark.parametrize(
    ("name", "n_threads", "reason"),
    [
        ("Jetson Orin Nano 8 GB", 6, "one per core"),
        ("Raspberry Pi 5, 8 GB", 4, "one per core"),
        ("laptop, 8 GB, RTX 3050 4 GB", 4, "4 physical cores of 8 logical"),
        ("container, 2 CPUs, 4 GiB", 2, "the control group pays for 2 CPUs"),
    ],
)
def test_threads_are_the_minimum_of_cores_affinity_and_quota(profile_of, name, n_threads, reason):
    cpu = profile_of(name).cpu
    assert (cpu.n_threads, cpu.threads_reason) == (n_threads, reason)


def test_affinity_and_little_cores_bound_the_threads(kit, tmp_path):
    files = {**kit.cpu_files(8, part="0xd0b", little=4), **kit.meminfo(8, 6)}
    assert kit.Machine(files).probe(tmp_path / "all").cpu.n_threads == 4
    files["proc/self/status"] = "Cpus_allowed_list:\t2\n"
    assert kit.Machine(files).probe(tmp_path / "one").cpu.n_threads == 1
    files["proc/self/status"] = "Cpus_allowed_list:\t5-6\n"  # only little cores are left: use those
    assert kit.Machine(files).probe(tmp_path / "little").cpu.n_threads == 2


def test_hyperthreads_of_one_core_count_once(kit, tmp_path):
    files = {**kit.cpu_files(2, smt=2), **kit.meminfo(8, 6), "proc/self/status": "Cpus_allowed_list:\t0,2\n"}
    assert kit.Machine(files).probe(tmp_path).cpu.n_threads == 1


def test_a_fraction_of_a_cpu_is_one_thread(kit, tmp_path):
    files = {**kit.cpu_files(4), "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000"}
    cpu = kit.Machine(files).probe(tmp_path).cpu
    assert (cpu.quota, cpu.n_threads) == (0.5, 1)


def test_engine_features_that_are_on_are_named(profile_of):
    assert profile_of("Raspberry Pi 5, 8 GB").cpu.isa == ("AVX2", "FMA", "REPACK")
    assert profile_of("Raspberry Pi 5, 8 GB").cpu.model == "Cortex-A76"


# E1: one pool of memory on a Jetson, counted once, and never as MemFree


def test_unified_memory_is_available_memory_once(profile_of, kit):
    profile = profile_of("Jetson Orin Nano 8 GB")
    assert profile.has_unified_memory and profile.gpus[0].memory == "host"
    assert profile.memory.n_free == pytest.approx(5.9 * kit.GIB, rel=1e-3)
    jetson = profile.jetson
    assert (jetson.l4t, jetson.jetpack, jetson.power_mode) == ("36.4.3", "6.2", "25W")
    assert [(rail.name, rail.power_w) for rail in jetson.rails] == [("VDD_IN", 6.0)]
    assert jetson.temperatures == (("cpu-thermal", 48.5),)


def test_a_card_in_a_machine_with_an_apu_keeps_its_own_memory(kit, tmp_path):
    devices = [
        EngineDevice("Vulkan0", "AMD Radeon 780M", "igpu", 12 * kit.GIB, 14 * kit.GIB),
        EngineDevice("Vulkan1", "NVIDIA GeForce RTX 4060", "gpu", 7 * kit.GIB, 8 * kit.GIB),
    ]
    both = kit.Machine({**kit.cpu_files(8), **kit.meminfo(28, 20)}, devices).probe(tmp_path / "both")
    assert [(gpu.name, gpu.memory) for gpu in both.gpus] == [("Vulkan1", "own")]
    assert not both.has_unified_memory
    apu = kit.Machine({**kit.cpu_files(8), **kit.meminfo(28, 20)}, devices[:1]).probe(tmp_path / "apu")
    assert apu.has_unified_memory


def test_apple_silicon_is_unified_although_its_gpu_says_gpu(kit, tmp_path):
    devices = [EngineDevice("MTL0", "Apple M3", "gpu", 10 * kit.GIB, 12 * kit.GIB)]
    assert kit.Machine(kit.meminfo(16, 10), devices, system="darwin arm64").probe(tmp_path).has_unified_memory


def test_one_card_listed_by_two_backends_counts_once_and_rpc_comes_first(kit, tmp_path):
    devices = [
        kit.cuda(0, "NVIDIA GeForce RTX 4090", 24, 23, pci="0000:01:00.0"),
        EngineDevice("Vulkan0", "NVIDIA GeForce RTX 4090", "gpu", 1, 2, "0000:01:00.0"),
        EngineDevice("RPC0", "10.0.0.2:50052", "rpc", 8 * kit.GIB, 8 * kit.GIB),
    ]
    gpus = kit.Machine(kit.meminfo(32, 20), devices).probe(tmp_path).gpus
    assert [(gpu.name, gpu.memory) for gpu in gpus] == [("RPC0", "remote"), ("CUDA0", "own")]


# E2: NVML and nvidia-smi in every state of disrepair


def test_nvml_facts_are_joined_by_pci_address(profile_of):
    gpus = profile_of("two 8 GB cards, 32 GB").gpus
    assert [(gpu.uuid, gpu.driver, gpu.power_w, gpu.power_limit_w) for gpu in gpus] == [
        ("GPU-aaaa1111", "550.54", 35.0, 350.0),
        ("GPU-b", "550.54", 35.0, 350.0),
    ]


def test_values_that_are_not_supported_are_none_with_a_reason(profile_of):
    profile = profile_of("Jetson Orin NX 16 GB")
    reasons = {item.field: item.reason for item in profile.missing}
    assert profile.gpus[0].power_w is None
    assert reasons["gpu.0.memory"] == reasons["gpu.0.power"] == "NVML: Not Supported"


def test_driver_mismatch_falls_back_to_nvidia_smi(kit, tmp_path):
    smi = (
        "index, name, uuid, pci.bus_id, driver_version, memory.total [MiB], memory.free [MiB], power.draw [W], "
        "power.limit [W], mig.mode.current\n"
        "0, NVIDIA A2, GPU-c, 00000000:03:00.0, 550.54, 15356 MiB, [N/A], [Not Supported], 60.00 W, [N/A]\n"
    )
    machine = kit.Machine(
        kit.meminfo(16, 10),
        [kit.cuda(0, "NVIDIA A2", 15, 14, pci="0000:03:00.0")],
        kit.fake_nvml(broken="Driver/library version mismatch"),
        lambda _command: smi,
    )
    profile = machine.probe(tmp_path)
    assert (profile.gpus[0].uuid, profile.gpus[0].power_w, profile.gpus[0].power_limit_w) == ("GPU-c", None, 60.0)
    assert "version mismatch" in {item.field: item.reason for item in profile.missing}["gpu.nvml"]


def test_nvidia_smi_that_hangs_or_prints_nonsense_is_a_reason(kit, tmp_path):
    def hang(command: list[str]) -> str:
        raise subprocess.TimeoutExpired(command, 4)

    for number, smi in enumerate([hang, lambda _command: "index\nrubbish, more"]):
        profile = kit.Machine(kit.meminfo(16, 10), smi=smi).probe(tmp_path / str(number))
        assert "gpu.nvidia_smi" in {item.field for item in profile.missing}


def test_a_call_that_never_returns_is_given_up():
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        within(0.05, lambda: time.sleep(0.5))


def test_an_engine_without_cuda_beside_a_card_says_so(kit, tmp_path):
    profile = kit.Machine(kit.meminfo(16, 10), [], kit.fake_nvml(kit.FakeGpu())).probe(tmp_path)
    assert "built without CUDA" in {item.field: item.reason for item in profile.missing}["gpu.engine"]


def test_a_card_that_the_engine_reaches_through_vulkan_is_no_complaint(kit, tmp_path):
    devices = [EngineDevice("Vulkan0", "NVIDIA GeForce RTX 4090", "gpu", 22 * kit.GIB, 24 * kit.GIB)]
    profile = kit.Machine(kit.meminfo(16, 10), devices, kit.fake_nvml(kit.FakeGpu())).probe(tmp_path)
    assert "gpu.engine" not in {item.field for item in profile.missing}


def test_mig_slices_and_visible_devices(kit, tmp_path):
    gpus = (
        NvmlGpu(0, "A100", "GPU-aa", mig_uuids=("MIG-1", "MIG-2")),
        NvmlGpu(1, "A100", "GPU-ab"),
    )
    assert visible_uuids(None, gpus) is None
    assert visible_uuids("1,0", gpus) == ("GPU-ab", "GPU-aa")
    assert visible_uuids("GPU-ab", gpus) == ("GPU-ab",)
    assert visible_uuids("GPU-a", gpus) == ()  # ambiguous
    assert visible_uuids("MIG-2", gpus) == ("MIG-2",)
    assert visible_uuids("1,9,0", gpus) == ("GPU-ab",)  # the list ends at the first wrong entry
    assert visible_uuids("", gpus) == visible_uuids("-1", gpus) == ()
    machine = kit.Machine(
        kit.meminfo(16, 10),
        [kit.cuda(0, "NVIDIA A100 MIG 1g.5gb", 5, 4)],
        kit.fake_nvml(kit.FakeGpu(uuid="GPU-aa", mig=["MIG-1", "MIG-2"]), kit.FakeGpu(uuid="GPU-ab")),
        environment={"CUDA_VISIBLE_DEVICES": "MIG-2"},
    )
    gpu = machine.probe(tmp_path).gpus[0]
    assert (gpu.uuid, gpu.mig_enabled) == ("GPU-aa", True)


def test_a_variable_hides_nothing_where_there_is_no_nvidia_card(kit, tmp_path):
    machine = kit.Machine(kit.meminfo(16, 10), environment={"CUDA_VISIBLE_DEVICES": "0"})
    assert "gpu.cuda_visible" not in {item.field for item in machine.probe(tmp_path / "none").missing}
    card = kit.fake_nvml(kit.FakeGpu(uuid="GPU-aa"))
    hidden = kit.Machine(kit.meminfo(16, 10), [], card, environment={"CUDA_VISIBLE_DEVICES": "-1"})
    assert "gpu.cuda_visible" in {item.field for item in hidden.probe(tmp_path / "one").missing}


def test_smi_rows_of_several_gpus():
    header = "a,b,c,d,e,f,g,h,i,j\n"
    rows = (
        "0, X, GPU-1, 00000000:01:00.0, 1, 10 MiB, 5 MiB, 1 W, 2 W, Enabled\n"
        "1, Y, GPU-2, 00000001:02:00.0, 1, 1 MiB, 1 MiB, 1 W, 2 W, Disabled\n"
    )
    first, second = parse_smi(header + rows)
    assert (first.n_total, first.pci, first.mig_enabled) == (10 * 1024**2, "0000:01:00.0", True)
    assert (second.pci, second.mig_enabled) == ("0001:02:00.0", False)


# E3: control groups, v1 and v2, minimum over ancestors


def test_v2_takes_the_lowest_limit_of_all_ancestors(kit, tmp_path):
    gib = kit.GIB
    files = {
        **kit.cpu_files(8),
        **kit.meminfo(32, 20),
        "proc/self/cgroup": "0::/a/b\n",
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
        "sys/fs/cgroup/a/memory.max": f"{2 * gib}\n",
        "sys/fs/cgroup/a/memory.current": f"{gib}\n",
        "sys/fs/cgroup/a/memory.stat": f"inactive_file {gib // 2}\n",
        "sys/fs/cgroup/a/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/b/memory.high": f"{3 * gib}\n",
        "sys/fs/cgroup/a/b/cpu.max": "300000 100000\n",
    }
    profile = kit.Machine(files).probe(tmp_path)
    assert profile.memory.n_limit == 2 * gib
    assert profile.memory.n_headroom == profile.memory.n_free == 3 * gib // 2
    assert (profile.cpu.quota, profile.cpu.n_threads) == (3.0, 3)


def test_v1_in_a_container_that_sees_the_host_path(kit, tmp_path):
    files = {
        **kit.cpu_files(8),
        **kit.meminfo(32, 20),
        "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n",
        "proc/self/mountinfo": "31 23 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 23 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{kit.GIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    profile = kit.Machine(files).probe(tmp_path)
    assert (profile.memory.n_limit, profile.cpu.quota, profile.cpu.n_threads) == (kit.GIB, 1.5, 1)


@pytest.mark.parametrize("value", ["max\n", "9223372036854771712\n", "-1\n", "rubbish\n"])
def test_no_limit_is_none(kit, tmp_path, value):
    files = {
        **kit.meminfo(8, 6),
        "proc/self/cgroup": "4:memory:/\n0::/\n",
        "sys/fs/cgroup/memory.max": value if value == "max\n" else "max\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": value.replace("-1", "9223372036854771712"),
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }
    profile = kit.Machine(files).probe(tmp_path)
    assert (profile.memory.n_limit, profile.cpu.quota) == (None, None)
    assert profile.memory.n_free == 6 * kit.GIB


def test_old_kernels_without_memavailable_get_an_estimate_and_a_reason(kit, tmp_path):
    files = {"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 50 kB\nCached: 200 kB\n"}
    profile = kit.Machine(files).probe(tmp_path)
    assert profile.memory.n_available == 350 * 1024
    assert "memory.n_available" in {item.field for item in profile.missing}


def test_battery_and_mains(profile_of):
    power = profile_of("laptop, 8 GB, RTX 3050 4 GB").power
    assert (power.on_mains, power.battery_percent) == (False, 81)


def test_memory_speed_is_looked_up_by_whole_names(profile_of):
    assert "H100" in gpu_bandwidth("NVIDIA H100 80GB HBM3", "own").source
    assert "assumed" in gpu_bandwidth("NVIDIA T400", "own").source  # not a T4
    assert "Max" not in host_bandwidth(None, "Intel(R) Xeon(R) CPU Max 9480", ()).source
    orin = profile_of("Jetson Orin NX 16 GB")
    assert orin.gpu_bandwidth(orin.gpus[0]) == orin.host_bandwidth  # the same chips


def test_cpu_lists():
    assert parse_cpu_list("0-3,8,10-11\n") == (0, 1, 2, 3, 8, 10, 11)
    assert parse_cpu_list("") == ()


def test_readings_of_broken_files(kit, tmp_path):
    readings = Readings(kit.write_tree(tmp_path, {"a": "not a number", "b": ""}))
    assert readings.number("a", "a") is None and readings.number("b", "b") is None and readings.text("c", "c") is None
    assert [item.field for item in readings.missing] == ["a", "b", "c"]
