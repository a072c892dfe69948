// Which lines are shown, in all panels alike, and everything set going.

const report = JSON.parse(document.getElementById("report").textContent);
const everything = [...new Set(report.plots.flatMap((plot) => plot?.curves.map((curve) => curve.index) ?? []))];
const shown = new Set(everything);

const plots = [...document.querySelectorAll("[data-plot]")].map((figure) => {
  const stage = figure.querySelector(".stage");
  return { plot: report.plots[figure.dataset.plot], figure, stage, tooltip: new Tooltip(stage), width: 0 };
});

// A curve that is cut is named in the caption: where, and how far up it goes.
function captionCuts({ figure }, { places }) {
  const cuts = new Map();
  for (const { curve, mark, beyond } of places) {
    const value = mark.failed ? "not finite" : mark.value;
    if (beyond) cuts.set(curve.label, [...(cuts.get(curve.label) ?? []), `${value} at ${mark.length}`]);
  }
  const caption = figure.querySelector(".cut");
  caption.hidden = cuts.size === 0;
  const listed = (values) => (values.length > 4 ? `${values[0]} … ${values.at(-1)}` : values.join(", "));
  const parts = [...cuts].map(([label, values]) => `${label} (${listed(values)})`);
  caption.textContent = `Above the plot, marked ▲: ${parts.join("; ")}.`;
}

function drawOne(one) {
  const drawing = draw(one.plot, shown, one.stage);
  one.width = one.stage.clientWidth;
  one.tooltip.take(drawing);
  captionCuts(one, drawing);
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

for (const { figure, tooltip } of plots) {
  for (const key of figure.querySelectorAll(".key")) {
    const index = Number(key.dataset.curve);
    // The two clicks of a double click undo each other, so that it starts from what was shown before them.
    key.addEventListener("click", (event) => (event.shiftKey ? isolate(index) : toggle(index)));
    key.addEventListener("dblclick", (event) => event.shiftKey || isolate(index));
    for (const name of ["pointerenter", "focus"]) key.addEventListener(name, () => tooltip.light(index));
    for (const name of ["pointerleave", "blur"]) key.addEventListener(name, () => tooltip.light(null));
  }
  figure.querySelector(".all")?.addEventListener("click", () => show(everything));
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

// On paper nothing can be switched on or opened: all is shown, and afterwards again what was shown before.
let before = null;
addEventListener("beforeprint", () => {
  before = { shown: [...shown], closed: [...document.querySelectorAll("details:not([open])")] };
  for (const part of before.closed) part.open = true;
  show(everything);
});
addEventListener("afterprint", () => {
  for (const part of before?.closed ?? []) part.open = false;
  if (before) show(before.shown);
  before = null;
});

const widths = new ResizeObserver(() => {
  for (const one of plots) if (one.stage.clientWidth !== one.width) drawOne(one);
});
for (const { stage } of plots) widths.observe(stage);
update();
