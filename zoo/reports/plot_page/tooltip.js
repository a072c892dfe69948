// What all curves gave at a length, shown where the pointer is or where the arrow keys went.

// The place meant by a point of the screen: the nearest length, and of the curves there the nearest one.
function nearest(places, left, top) {
  const across = Math.min(...places.map((place) => Math.abs(place.left - left)));
  const here = places.filter((place) => Math.abs(place.left - left) <= across + 0.5);
  return here.sort((a, b) => Math.abs(a.top - top) - Math.abs(b.top - top))[0] ?? null;
}

function row(kind, ...parts) {
  const made = Object.assign(document.createElement("div"), { className: kind });
  for (const part of parts) {
    made.append(part instanceof Node ? part : Object.assign(document.createElement("span"), { textContent: part }));
  }
  return made;
}

function swatch(curve) {
  const made = element("svg", { class: `swatch ${curve.classes}`, viewBox: "0 0 20 14", width: 20, height: 14 });
  made.append(
    element("line", { class: "line", x1: 1, x2: 19, y1: 7, y2: 7 }),
    element("use", { class: "mark", href: `#${curve.mark}`, x: 10, y: 7 }),
  );
  return made;
}

// The length of a mark with its axis, and how many times the trained one it is.
function where({ mark }, plot) {
  const ratio = mark.length / plot.trained[0];
  const times = ratio === 1 ? "trained" : `${Number(ratio.toPrecision(3))}× trained`;
  return `${plot.axis} ${mark.length}${plot.trained.length > 1 ? "" : ` (${times})`}`;
}

function value({ mark }) {
  return (mark.failed ? "not finite" : mark.value) + (mark.spread ? ` (${mark.spread})` : "");
}

// All curves that are shown at the length, from top to bottom, and of the one that is meant the details.
function fill(tip, { curve, mark, left, top }, { plot, places, width }) {
  const head = document.createElement("b");
  head.textContent = where({ mark }, plot);
  const here = places.filter((place) => place.mark.length === mark.length);
  const values = here.sort((a, b) => a.top - b.top || b.mark.mean - a.mark.mean).map((place) => {
    return row(place.curve === curve ? "value now" : "value", swatch(place.curve), place.curve.label, value(place));
  });
  const note = mark.note ? [["note", mark.note]] : [];
  const details = [...mark.details, ...note].map(([name, text]) => row("detail", name, text));
  tip.replaceChildren(head, ...values, ...details);
  tip.hidden = false;
  const beside = left + 14 + tip.offsetWidth <= width ? left + 14 : left - 14 - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(beside, width - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, top - tip.offsetHeight - 12)}px`;
}

// The next place by an arrow key: along the lengths on the same curve, or to another curve at the same length.
function next(places, now, key) {
  if (!now) return places[0] ?? null;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const own = places.filter((place) => place.curve === now.curve);
    return own[own.indexOf(now) + (key === "ArrowRight" ? 1 : -1)] ?? now;
  }
  const here = places.filter((place) => place.mark.length === now.mark.length).sort((a, b) => a.top - b.top);
  return here[here.indexOf(now) + (key === "ArrowDown" ? 1 : -1)] ?? now;
}

class Tooltip {
  constructor(stage) {
    this.stage = stage;
    this.tip = stage.querySelector(".tip");
    this.said = stage.querySelector(".said");
    this.now = null;
    stage.setAttribute("role", "application"); // a screen reader leaves the arrow keys to the plot
    stage.addEventListener("pointermove", (event) => this.point(event));
    stage.addEventListener("pointerdown", (event) => this.point(event));
    stage.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.show(null));
    stage.addEventListener("blur", () => this.show(null));
    stage.addEventListener("keydown", (event) => this.press(event));
    addEventListener("keydown", (event) => event.key === "Escape" && this.show(null)); // wherever the focus is
  }

  // After the plot was drawn anew.
  take(drawing) {
    this.drawing = drawing;
    this.show(null);
  }

  point(event) {
    const box = this.drawing.svg.getBoundingClientRect();
    this.show(nearest(this.drawing.places, event.clientX - box.left, event.clientY - box.top));
  }

  press(event) {
    if (!event.key.startsWith("Arrow")) return;
    this.show(next(this.drawing.places, this.now, event.key));
    this.say();
    event.preventDefault();
  }

  // One value, read aloud: the list of all lines at the length, read at each key, would be a flood.
  say() {
    const { now, drawing: { plot } } = this;
    const note = now?.mark.note ? `; ${now.mark.note}` : "";
    this.said.textContent = now ? `${now.curve.label}, ${where(now, plot)}: ${value(now)}${note}` : "";
  }

  show(place) {
    this.now = place;
    const { svg, lines } = this.drawing;
    svg.querySelector(".ring")?.remove();
    this.light(place?.curve.index ?? null);
    this.tip.hidden = !place;
    if (!place) return;
    lines.append(element("circle", { class: "ring", cx: place.left, cy: place.top, r: 8 }));
    fill(this.tip, place, this.drawing);
  }

  // One curve stands out of the others.
  light(index) {
    const { lines } = this.drawing;
    const own = index === null ? null : lines.querySelector(`.curve[data-curve="${index}"]`);
    lines.querySelector(".active")?.classList.remove("active");
    lines.classList.toggle("some-active", own !== null);
    own?.classList.add("active");
  }
}
