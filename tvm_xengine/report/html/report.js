"use strict";
(() => {
  const MOST_NAMED = 6; // lines that fit under a picture without moving what follows
  const story = JSON.parse(document.getElementById("story").textContent);
  const WIDTH = 1000;

  const bytes = (size) => {
    for (const unit of ["B", "KiB", "MiB"]) {
      if (size < 1024) return `${Number(size.toPrecision(4))} ${unit}`;
      size /= 1024;
    }
    return `${Number(size.toPrecision(4))} GiB`;
  };

  const show = (svg, by, step) => {
    const edges = story.edges[by];
    const at = (edges[step] + edges[step + 1]) / 2;
    const cursor = svg.querySelector(".cursor");
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    svg.dataset.step = step;
    svg.setAttribute("aria-valuenow", step);
    const live = story.blocks
      .filter((b) => b[0] === svg.dataset.device && b[4] <= step && step <= b[5])
      .sort((a, b) => b[3] - a[3]);
    const total = live.reduce((sum, b) => sum + b[3], 0);
    const lines = live.slice(0, MOST_NAMED).map((b) => `${bytes(b[3])} ${b[1]} (${b[6] ? `${b[2]}, ${b[6]}` : b[2]})`);
    const out = svg.nextElementSibling;
    out.textContent = `${bytes(total)} live at ${story.steps[step]}: ${lines.join("; ")}`;
    svg.setAttribute("aria-valuetext", out.textContent);
  };

  const stepAt = (by, x) => {
    const edges = story.edges[by];
    let low = 0, high = story.steps.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (edges[middle] <= x) low = middle; else high = middle - 1;
    }
    return low;
  };

  const peakOf = (device) => {
    const change = new Array(story.steps.length + 1).fill(0);
    for (const b of story.blocks) {
      if (b[0] !== device) continue;
      change[b[4]] += b[3];
      change[b[5] + 1] -= b[3];
    }
    let live = 0, most = -1, peak = 0;
    change.slice(0, -1).forEach((by, step) => {
      live += by;
      if (live > most) [most, peak] = [live, step];
    });
    return peak;
  };

  for (const svg of document.querySelectorAll("svg.memory")) {
    const by = svg.closest("figure").className.slice("by-".length);
    const point = (event) => {
      const box = svg.getBoundingClientRect();
      show(svg, by, stepAt(by, ((event.clientX - box.left) / box.width) * WIDTH));
    };
    show(svg, by, peakOf(svg.dataset.device));
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("keydown", (event) => {
      const last = story.steps.length - 1, now = Number(svg.dataset.step), page = Math.ceil(last / 10);
      const next = {
        ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1,
        PageDown: now - page, PageUp: now + page, Home: 0, End: last,
      }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      show(svg, by, Math.max(0, Math.min(last, next)));
    });
  }

  const search = document.getElementById("search");
  const rows = [...document.querySelectorAll("#tensors tbody tr")];
  const filter = () => {
    const wanted = search.value.toLowerCase().trim();
    const shown = new Set();
    let count = 0;
    for (const row of rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      count += !row.hidden;
      if (!row.hidden) shown.add(row.dataset.name);
    }
    for (const one of document.querySelectorAll(".block")) {
      one.classList.toggle("chosen", wanted !== "" && shown.has(story.blocks[one.dataset.b][1]));
    }
    document.getElementById("count").textContent = `${count} of ${rows.length} tensors`;
  };
  search.addEventListener("input", filter);
  filter();

  for (const block of document.querySelectorAll(".block")) {
    block.addEventListener("click", () => {
      search.value = story.blocks[block.dataset.b][1];
      filter();
    });
  }
})();
