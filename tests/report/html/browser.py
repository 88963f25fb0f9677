"""Looks at a page in headless Chromium: at two widths, in light and in dark."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

WIDTHS = (390, 1280)
"""Pixels of a phone and of a desktop."""
_LOOK = """<script>
const channels = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (rgb) => {
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = rgb.slice(0, 3).map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = (one) => {
  for (; one; one = one.parentElement) {
    const found = channels(getComputedStyle(one).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
const contrast = (one) => {
  const style = getComputedStyle(one);
  const [a, b] = [light(channels(one instanceof SVGElement ? style.fill : style.color)), light(paper(one))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("load", () => {
  const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
    && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) && !one.closest("svg"));
  const memory = document.querySelector("svg.memory");
  const said = () => memory.nextElementSibling.textContent;
  const before = said();
  memory.focus();
  memory.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  memory.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  const moved = said() !== before;
  const ends = ["Home", "End"].map((key) => {
    memory.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    return Number(memory.getAttribute("aria-valuenow"));
  });
  const clipped = [...document.querySelectorAll(".tables, li, p")].filter((one) => one.checkVisibility()
    && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent.slice(0, 60));
  const search = document.getElementById("search");
  search.value = document.querySelector("#tensors tbody tr").dataset.name;
  search.dispatchEvent(new Event("input"));
  const framed = document.querySelectorAll(".block.chosen").length;
  search.value = "no such tensor";
  search.dispatchEvent(new Event("input"));
  parent.postMessage({
    errors, moved, ends, clipped, framed, last: Number(memory.getAttribute("aria-valuemax")),
    focused: document.activeElement === memory,
    contrast: Math.min(...texts.map(contrast)), texts: texts.length,
    overflow: document.documentElement.scrollWidth - innerWidth,
    unnamed: document.querySelectorAll("svg:not([aria-label])").length,
    found: document.getElementById("count").textContent,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    sections: [...document.querySelectorAll("h2")].map((one) => one.textContent),
  }, "*");
});
</script>"""


@dataclass(frozen=True)
class Look:
    """What the browser said: on its console, and of the page at each of `WIDTHS`."""

    console: str
    found: tuple[dict[str, Any], ...]


def look(page: str, folder: Path, *, is_dark: bool) -> Look:
    """Load a page in frames of all widths; a script added to it reports to the frame around it."""
    (folder / "report.html").write_text(page.replace("<head>", f"<head>{_LOOK}"), encoding="utf-8")
    frames = "".join(
        f'<iframe src="report.html" style="width:{w}px;height:900px"></iframe>' for w in WIDTHS
    )
    around = folder / "around.html"
    around.write_text(
        f"<!DOCTYPE html><pre id=said></pre>{frames}<script>const all = [];"
        "addEventListener('message', (event) => { all.push(event.data);"
        " document.getElementById('said').textContent = JSON.stringify(all); });</script>",
        encoding="utf-8",
    )
    command = [
        *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
        *("--enable-logging=stderr", "--virtual-time-budget=10000", "--window-size=1400,2000"),
        f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
        f"--user-data-dir={folder / 'profile'}",
        around.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    said = re.search(r'<pre id="said">(.*?)</pre>', done.stdout, re.DOTALL)
    assert said is not None, done.stdout[:2000]
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return Look(console, tuple(json.loads(unescape(said.group(1)) or "[]")))
