// Which lines are shown, in all panels alike, and everything set going.

const comparison = JSON.parse(document.getElementById("comparison").textContent);
const everything = comparison.panels.flatMap((panel) => panel.curves.map((curve) => curve.index));
const shown = new Set(everything);

const plots = comparison.panels.map((panel) => {
  const section = document.querySelector(`[data-panel="${panel.index}"]`);
  const stage = section.querySelector(".stage");
  return { panel, section, stage, reader: new Reader(stage), width: 0 };
});

// A curve that is cut is still told: where, and how far up it goes.
function tellCuts({ section }, { places }) {
  const cuts = new Map();
  for (const { curve, mark, beyond } of places) {
    const value = mark.failed ? "not finite" : mark.value;
    if (beyond) cuts.set(curve.label, [...(cuts.get(curve.label) ?? []), `${value} at ${mark.length}`]);
  }
  const caption = section.querySelector(".cut");
  caption.hidden = cuts.size === 0;
  const listed = (values) => (values.length > 4 ? `${values[0]} … ${values.at(-1)}` : values.join(", "));
  const parts = [...cuts].map(([label, values]) => `${label} (${listed(values)})`);
  caption.textContent = `Above the plot, marked ▲: ${parts.join("; ")}.`;
}

function drawOne(plot) {
  const drawing = draw(plot.panel, shown, plot.stage);
  plot.width = plot.stage.clientWidth;
  plot.reader.take(drawing);
  tellCuts(plot, drawing);
}

function update() {
  for (const key of document.querySelectorAll(".key")) {
    key.setAttribute("aria-pressed", shown.has(Number(key.dataset.curve)));
  }
  for (const row of document.querySelectorAll("tr[data-curve]")) {
    row.classList.toggle("off", !shown.has(Number(row.dataset.curve)));
  }
  for (const button of document.querySelectorAll(".all")) button.disabled = everything.every((one) => shown.has(one));
  plots.forEach(drawOne);
}

function show(indices) {
  shown.clear();
  indices.forEach((index) => shown.add(index));
  update();
}

function toggle(index) {
  if (!shown.delete(index)) shown.add(index);
  update();
}

function isolate(index) {
  show(shown.size === 1 && shown.has(index) ? everything : [index]);
}

for (const { section, reader } of plots) {
  for (const key of section.querySelectorAll(".key")) {
    const index = Number(key.dataset.curve);
    // The two clicks of a double click undo each other, so that it starts from what was shown before them.
    key.addEventListener("click", (event) => (event.shiftKey ? isolate(index) : toggle(index)));
    key.addEventListener("dblclick", (event) => event.shiftKey || isolate(index));
    for (const name of ["pointerenter", "focus"]) key.addEventListener(name, () => reader.light(index));
    for (const name of ["pointerleave", "blur"]) key.addEventListener(name, () => reader.light(null));
  }
  section.querySelector(".all").addEventListener("click", () => show(everything));
}

for (const button of document.querySelectorAll(".copy")) {
  const text = document.getElementById(button.dataset.copies);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // where a page may not write, the reader copies
    }
  });
}

const widths = new ResizeObserver(() => {
  for (const plot of plots) if (plot.stage.clientWidth !== plot.width) drawOne(plot);
});
for (const { stage } of plots) widths.observe(stage);
update();
