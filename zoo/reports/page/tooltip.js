// What a curve gave at a length, told where the pointer is or where the arrow keys went.

const REACH = { mouse: 44, touch: 90, pen: 60 }; // pixels from a mark at which it still is meant

function nearest(places, left, top, reach) {
  let found = null;
  let least = reach;
  for (const place of places) {
    const distance = Math.hypot(place.left - left, place.top - top);
    if (distance < least) [found, least] = [place, distance];
  }
  return found;
}

function tell(tip, { curve, mark, left, top }, width) {
  const head = document.createElement("b");
  head.textContent = curve.label;
  const rows = mark.told.map(([name, value]) => {
    const row = document.createElement("div");
    for (const text of [name, value]) row.append(Object.assign(document.createElement("span"), { textContent: text }));
    return row;
  });
  tip.replaceChildren(head, ...rows);
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

class Reader {
  constructor(stage) {
    this.stage = stage;
    this.tip = stage.querySelector(".tip");
    this.now = null;
    stage.addEventListener("pointermove", (event) => this.point(event));
    stage.addEventListener("pointerdown", (event) => this.point(event));
    stage.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.show(null));
    stage.addEventListener("blur", () => this.show(null));
    stage.addEventListener("keydown", (event) => this.press(event));
  }

  // After the plot was drawn anew.
  take(drawing) {
    this.drawing = drawing;
    this.show(null);
  }

  point(event) {
    const box = this.drawing.svg.getBoundingClientRect();
    const reach = REACH[event.pointerType] ?? REACH.mouse;
    this.show(nearest(this.drawing.places, event.clientX - box.left, event.clientY - box.top, reach));
  }

  press(event) {
    if (event.key === "Escape") this.show(null);
    else if (event.key.startsWith("Arrow")) this.show(next(this.drawing.places, this.now, event.key));
    else return;
    event.preventDefault();
  }

  show(place) {
    this.now = place;
    const { svg, lines, width } = this.drawing;
    svg.querySelector(".ring")?.remove();
    this.light(place?.curve.index ?? null);
    this.tip.hidden = !place;
    if (!place) return;
    lines.append(element("circle", { class: "ring", cx: place.left, cy: place.top, r: 8 }));
    tell(this.tip, place, width);
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
