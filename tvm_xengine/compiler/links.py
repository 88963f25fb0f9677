"""Measured links of a platform."""

from __future__ import annotations

from dataclasses import replace

from tvm_xengine.cost_models.measure.measure_link import measure_link
from tvm_xengine.cost_models.measure.measurements import MeasurementCache
from tvm_xengine.runtime.storage import runtime_device
from tvm_xengine.scheduling.platform import Platform


def with_measured_links(platform: Platform, cache: MeasurementCache) -> Platform:
    """The platform with latency and bandwidth of every link, measured where they are not given."""
    links = []
    for link in platform.links:
        if not link.is_measured:
            src, dst = (
                runtime_device(platform.device(name).target) for name in (link.src, link.dst)
            )
            measured = measure_link(src, dst, cache)
            link = replace(
                link, latency_us=measured.latency_us, bandwidth_gb_s=measured.bandwidth_gb_s
            )
        links.append(link)
    return replace(platform, links=tuple(links))
