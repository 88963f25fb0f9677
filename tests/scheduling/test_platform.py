from pathlib import Path

import pytest
from hypothesis import given

from tests.strategies import platforms
from tvm_xengine.errors import InvalidPlatformError
from tvm_xengine.scheduling.platform import MOST_DEVICES, Device, Link, Platform
from tvm_xengine.scheduling.platform_file import read_platform, write_platform
from tvm_xengine.scheduling.sizes import format_bytes, parse_bytes

TWO_DEVICES = """
home = "cpu"

[[device]]
name = "cpu"
target = "llvm -mcpu=native"
budget = "2MiB"

[[device]]
name = "flash"
budget = 4096

[[link]]
src = "cpu"
dst = "flash"
latency_us = 2.0
bandwidth_gb_s = 0.5
both_ways = true
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "platform.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_platform_file_says_devices_budgets_and_links(tmp_path: Path) -> None:
    platform = read_platform(write(tmp_path, TWO_DEVICES))
    assert [device.budget_bytes for device in platform.devices] == [2 * 2**20, 4096]
    assert [device.name for device in platform.computing] == ["cpu"]
    assert platform.link_between["flash", "cpu"].transfer_us(1000) == pytest.approx(4.0)


def test_the_engine_of_a_link_is_that_of_both_directions(tmp_path: Path) -> None:
    platform = read_platform(write(tmp_path, TWO_DEVICES + 'engine = "cpu"\n'))
    assert platform.copy_stream("cpu", "flash") == platform.copy_stream("flash", "cpu") == ("cpu",)
    plain = read_platform(write(tmp_path, TWO_DEVICES))
    assert plain.copy_stream("flash", "cpu") == ("flash", "cpu")


def test_kinds_of_storage_say_what_the_other_keys_say(tmp_path: Path) -> None:
    plain = read_platform(write(tmp_path, TWO_DEVICES))
    named = TWO_DEVICES.replace('name = "flash"', 'name = "flash"\nkind = "host"')
    assert read_platform(write(tmp_path, named)) == plain
    file = TWO_DEVICES.replace('name = "flash"', 'name = "flash"\nkind = "file"\nfolder = "here"')
    platform = read_platform(write(tmp_path, file))
    assert platform.device("flash").folder == "here"
    write_platform(platform, tmp_path / "p.toml")
    assert 'kind = "file"' in (tmp_path / "p.toml").read_text()


@given(platforms(max_devices=3))
def test_a_written_platform_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, platform: Platform
) -> None:
    path = tmp_path_factory.mktemp("platform") / "p.toml"
    write_platform(platform, path)
    assert read_platform(path) == platform


def test_an_unmeasured_link_stays_unmeasured_in_the_file(tmp_path: Path) -> None:
    platform = Platform((Device("a", "llvm"), Device("b", "llvm")), (Link("a", "b"),))
    write_platform(platform, tmp_path / "p.toml")
    assert read_platform(tmp_path / "p.toml") == platform


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "cpu"', "", "lacks the key 'name'"),
        ('budget = "2MiB"', "", "lacks the key 'budget'"),
        ('budget = "2MiB"', 'budget = "two"', "expected a size such as"),
        ('budget = "2MiB"', "budget = -5", "at least 0 bytes"),
        ('budget = "2MiB"', "budget = 0", "budget_bytes must be"),
        ('dst = "flash"', 'dst = "gpu"', "not one of"),
        ('dst = "flash"', 'dst = "cpu"', "joins two different devices"),
        ('dst = "flash"', "dst = 3", "dst must be text, got 3"),
        ('name = "cpu"', "name = 3", "name must be text, got 3"),
        ('name = "cpu"', 'name = "c=u"', "text without spaces, commas and '='"),
        ('name = "cpu"', 'name = "c\\nu"', "text without spaces, commas and '='"),
        ('target = "llvm -mcpu=native"', "target = 3", "target must be text, got 3"),
        ('budget = "2MiB"', "budget = 1.5", "expected a size such as"),
        ('budget = "2MiB"', "budget = true", "expected a size such as"),
        ("bandwidth_gb_s = 0.5", "bandwidth_gb_s = nan", "bandwidth_gb_s must be > 0"),
        ("latency_us = 2.0", "latency_us = inf", "latency_us must be >= 0"),
        ("both_ways = true", 'both_ways = "no"', "both_ways must be true or false"),
        ('home = "cpu"', 'home = "gpu"', "home must be one of"),
        ("latency_us = 2.0", "", "together"),
        ("bandwidth_gb_s = 0.5", "bandwidth_gb_s = 0", "bandwidth_gb_s must be > 0"),
        ("both_ways = true", 'engine = "gpu"', "engine must be one of its two devices, got 'gpu'"),
        ("both_ways = true", 'engine = "flash"', "engine must be a device that computes"),
        ("both_ways = true", "engine = 3", "engine must be text, got 3"),
        ("both_ways = true", "speed = 3", "unknown keys ['speed']"),
        ('target = "llvm -mcpu=native"', "", "at least one device must have a target"),
        ('name = "flash"', 'name = "cpu"', "device names must be unique"),
        ("[[link]]", "[[link", "not valid TOML"),
        (
            'name = "flash"',
            'name = "flash"\nkind = "ssd"',
            "a device that computes has a target and no",
        ),
        ('name = "flash"', 'name = "flash"\nkind = 3', "kind must be text, got 3"),
        ('name = "cpu"', 'name = "cpu"\nkind = "host"', "only stores; leave out its target"),
        ('name = "flash"', 'name = "flash"\nkind = "file"', "needs the folder in which its file"),
        ('name = "flash"', 'name = "flash"\nkind = "host"\nfolder = "."', 'write kind = "file"'),
        ('name = "cpu"', 'name = "cpu"\nhost = "a"\nrank = 1', "got host 'a' and rank 1"),
        ('name = "cpu"', 'name = "cpu"\nhost = ""', "host must be the name or address"),
        ('name = "cpu"', 'name = "cpu"\nhost = "a"', "device flash has no host"),
    ],
)
def test_a_wrong_platform_file_is_refused_with_its_reason(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in TWO_DEVICES
    with pytest.raises(InvalidPlatformError) as caught:
        read_platform(write(tmp_path, TWO_DEVICES.replace(old, new, 1)))
    assert said in str(caught.value)


def test_a_missing_platform_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlatformError, match=r"absent\.toml"):
        read_platform(tmp_path / "absent.toml")


def test_new_budgets_leave_the_other_devices_alone() -> None:
    platform = Platform((Device("a", "llvm", 10), Device("b", None, 20)))
    assert [d.budget_bytes for d in platform.with_budgets({"b": 7}).devices] == [10, 7]
    with pytest.raises(ValueError, match="expected one of the devices"):
        platform.with_budgets({"c": 7})


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("192KiB", 192 * 1024),
        ("1.5 MB", 1_500_000),
        ("2gib", 2**31),
        ("1TiB", 2**40),
        (7, 7),
    ],
)
def test_sizes_are_read_with_their_units(text: str | int, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["-1", "", "MiB", "2 parsecs", "1e3", "0x10", "1.5", "0.5B", "\uff11MiB"]
)
def test_a_size_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        parse_bytes(text)


def test_sizes_are_printed_with_binary_units() -> None:
    assert [format_bytes(n) for n in (64, 1536, 2**20, 3 * 2**30)] == [
        "64 B",
        "1.5 KiB",
        "1 MiB",
        "3 GiB",
    ]


@pytest.mark.parametrize("rank", [2, 10**30])
def test_ranks_with_a_gap_are_refused_at_once(rank: int) -> None:
    with pytest.raises(ValueError, match="no device is on rank 1"):
        Platform((Device("a", "llvm"), Device("b", "llvm", rank=rank)))


def test_more_devices_than_are_planned_for_are_refused() -> None:
    def of(count: int) -> Platform:
        return Platform(tuple(Device(f"d{k}", "llvm", 1 << 20) for k in range(count)))

    assert len(of(MOST_DEVICES).devices) == MOST_DEVICES
    with pytest.raises(ValueError, match=r"at most 256 devices, got 257; .* \[replicas\]"):
        of(MOST_DEVICES + 1)
