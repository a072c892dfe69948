// The curves of one plot as SVG, drawn for the width that there is, so that text keeps its size on a phone.

function element(name, attributes = {}, text = null) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function frame(svg, plot, scale) {
  const { area, x, y } = scale;
  for (const { value, text } of scale.values) {
    svg.append(
      element("line", { class: "grid", x1: area.left, x2: area.right, y1: y(value), y2: y(value) }),
      element("text", { class: "value", "data-value": value, x: area.left - 8, y: y(value) + 4, "text-anchor": "end" }, text),
    );
  }
  for (const length of plot.lengths) {
    svg.append(element("line", { class: "axis", x1: x(length), x2: x(length), y1: area.bottom, y2: area.bottom + 4 }));
  }
  for (const length of scale.lengths) {
    const at = { class: "length", "data-length": length, x: x(length), y: area.bottom + 18, "text-anchor": "middle" };
    svg.append(element("text", at, String(length)));
  }
  svg.append(
    element("line", { class: "axis", x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom }),
    element("text", { class: "title", x: (area.left + area.right) / 2, y: area.bottom + 37, "text-anchor": "middle" }, `${plot.axis} (tokens)`),
    element("text", { class: "title", x: 4, y: 12 }, plot.measure),
  );
  if (plot.zero !== null) {
    svg.append(element("line", { class: `zero ${plot.zero}`, x1: area.left, x2: area.right, y1: y(0), y2: y(0) }));
  }
  for (const length of plot.trained) {
    const trained = x(length);
    const side = trained > (area.left + area.right) / 2 ? "end" : "start";
    svg.append(
      element("line", { class: "trained", "data-length": length, x1: trained, x2: trained, y1: area.top - 18, y2: area.bottom }),
      element("text", { x: trained + (side === "start" ? 5 : -5), y: area.top - 12, "text-anchor": side }, "trained"),
    );
  }
  if (plot.refused) {
    svg.append(element("text", { class: "refused", x: area.right, y: 12, "text-anchor": "end" }, "not comparable"));
  }
}

// Pieces of a curve without a gap: where nothing was measured, no line pretends that something was.
function pieces(marks, measured) {
  const found = [[]];
  for (const mark of marks) {
    if (measured(mark)) found.at(-1).push(mark);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter((piece) => piece.length);
}

function path(points) {
  return points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");
}

// A curve that leaves the plot goes on until little above it, and then along there, out of sight: one that went
// on for thousands of pixels would lie over the whole page for all that asks what is where.
function upTo(top, points) {
  return points.flatMap(([x, y], index) => {
    const [before, from] = points[index - 1] ?? [x, y];
    const crossed = from < top !== y < top ? [[before + ((x - before) * (top - from)) / (y - from), top]] : [];
    return [...crossed, [x, Math.max(y, top)]];
  });
}

// Pixels so far away mean nothing to arithmetic.
function bounded(value) {
  return Math.min(Math.max(value, -1e6), 1e6);
}

const MANY = 10; // marks on a line, from which on they are smaller

function drawCurve(curve, { x, y, high, area }, clip) {
  const size = curve.marks.length > MANY ? 0.65 : 1;
  const group = element("g", { class: `curve ${curve.classes}`, "data-curve": curve.index });
  const clipped = element("g", { "clip-path": `url(#${clip})` });
  const top = area.top - 20; // the clip begins below it
  const at = (mark, key) => [x(mark.length), bounded(y(mark[key]))];
  for (const piece of pieces(curve.marks, (mark) => mark.low !== null && mark.high !== null)) {
    const there = upTo(top, piece.map((mark) => at(mark, "high")));
    const back = upTo(top, piece.map((mark) => at(mark, "low")).reverse());
    clipped.append(element("path", { class: "band", d: `${path([...there, ...back])}Z` }));
    for (const end of [there, back]) clipped.append(element("path", { class: "edge", d: path(end) }));
  }
  for (const piece of pieces(curve.marks, (mark) => mark.mean !== null)) {
    clipped.append(element("path", { class: "line", d: path(upTo(top, piece.map((mark) => at(mark, "mean")))) }));
  }
  group.append(clipped);
  for (const { length, value } of curve.seeds) {
    if (value <= high) group.append(element("circle", { class: "seed", cx: x(length), cy: y(value), r: 2.5 * size }));
  }
  const placed = [];
  for (const mark of curve.marks.filter((one) => one.mean !== null || one.failed)) {
    const beyond = mark.failed || mark.mean > high;
    const [left, height] = [x(mark.length), beyond ? area.top - 5 : y(mark.mean)];
    const place = `translate(${left.toFixed(2)} ${height.toFixed(2)})`;
    const where = { "data-length": mark.length, transform: size === 1 ? place : `${place} scale(${size})` };
    if (beyond) group.append(element("path", { class: "beyond", d: "M-5 4L0 -5L5 4Z", ...where }));
    else group.append(element("use", { class: "mark", href: `#${curve.mark}`, ...where }));
    placed.push({ curve, mark, left, top: height, beyond });
  }
  return { group, placed };
}

// Draws the curves that are shown; gives where each value lies, for the pointer and the keyboard.
function draw(plot, shown, stage) {
  const width = Math.max(stage.clientWidth, 240);
  const small = plot.zero !== null;
  const height = small ? 240 : Math.round(Math.min(Math.max(width * 0.62, 300), 460));
  const curves = plot.curves.filter((curve) => shown.has(curve.index));
  const scale = scales(plot, curves.length ? curves : plot.curves, width, height);
  const { area } = scale;
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": plot.label });
  const clip = `clip-${stage.parentElement.dataset.plot}`;
  const box = element("clipPath", { id: clip });
  box.append(element("rect", {
    x: area.left, y: area.top - (scale.cut ? 0 : 6), width: area.right - area.left, height: area.bottom - area.top + (scale.cut ? 6 : 12),
  }));
  const defs = element("defs");
  defs.append(box);
  svg.append(defs);
  frame(svg, plot, scale);
  const lines = element("g");
  const places = [];
  for (const curve of curves) {
    const { group, placed } = drawCurve(curve, scale, clip);
    lines.append(group);
    places.push(...placed);
  }
  svg.append(lines);
  stage.querySelector(":scope > svg")?.remove();
  stage.prepend(svg);
  return { svg, lines, plot, places, width };
}
