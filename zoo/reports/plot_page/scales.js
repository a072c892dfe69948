// Where a length (tokens) and a value lie in a plot, in pixels.

const MARGIN = { top: 38, right: 14, bottom: 44, left: 52 };

function present(values) {
  return values.filter((value) => value !== null);
}

// The values from the bottom to the top of the plot. A curve that failed is cut: beside it, the others
// would be one line.
function range(plot, curves) {
  if (plot.range) return { low: plot.range[0], high: plot.range[1], cut: false };
  const means = present(curves.flatMap((curve) => curve.marks.map((mark) => mark.mean)));
  if (!means.length) return { low: 0, high: 1, cut: false };
  if (plot.zero !== null) means.push(0);
  const best = plot.zero !== null ? 0 : Math.min(...means);
  const limit = plot.room === null ? Infinity : best + plot.room;
  const kept = present(
    curves.flatMap((curve) => [
      ...curve.marks.filter(({ mean }) => mean <= limit).flatMap((mark) => [mark.mean, mark.low, mark.high]),
      ...curve.seeds.map((seed) => seed.value),
    ]),
  ).filter((value) => value <= limit);
  if (plot.zero !== null) kept.push(0);
  const [low, high] = [Math.min(...kept), Math.max(...kept)];
  const cut = Math.max(...means) > limit;
  const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return { low: low - room, high: high + room * (cut ? 2.5 : 1), cut };
}

// About `count` round numbers between two values.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) {
    const value = n * step + 0; // no -0
    const text = value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    found.push({ value, text: text.replace("-", "−") });
  }
  return found;
}

// Of the lengths those whose labels fit beside each other: the trained one first, then both ends, the trained
// one times powers of four and of two, and others only where these are few.
function labelled(plot, x) {
  const lengths = [...new Set([...plot.lengths, ...plot.trained])].sort((a, b) => a - b);
  const rank = (length) => {
    if (plot.trained.includes(length)) return 0;
    if (length === lengths[0] || length === lengths.at(-1)) return 1;
    const octaves = Math.log2(length / plot.trained[0]);
    if (Number.isInteger(octaves / 2)) return 2;
    return Number.isInteger(octaves) ? 3 : 4;
  };
  const chosen = [];
  const half = (length) => String(length).length * 3.6 + 4;
  for (const length of [...lengths].sort((a, b) => rank(a) - rank(b) || a - b)) {
    if (rank(length) === 4 && chosen.length >= 5) break;
    if (chosen.every((other) => Math.abs(x(other) - x(length)) >= half(other) + half(length))) chosen.push(length);
  }
  return chosen;
}

function scales(plot, curves, width, height) {
  const area = {
    left: MARGIN.left,
    right: width - MARGIN.right,
    top: MARGIN.top,
    bottom: height - MARGIN.bottom,
  };
  const lengths = [...plot.lengths, ...plot.trained].map(Math.log2);
  const [first, last] = [Math.min(...lengths), Math.max(...lengths)];
  const inset = 14; // so that no mark lies on the frame
  const x = (length) => {
    if (first === last) return (area.left + area.right) / 2;
    const part = (Math.log2(length) - first) / (last - first);
    return area.left + inset + part * (area.right - area.left - 2 * inset);
  };
  const { low, high, cut } = range(plot, curves);
  const y = (value) => area.bottom - ((value - low) / (high - low)) * (area.bottom - area.top);
  return { area, x, y, low, high, cut, values: ticks(low, high, (area.bottom - area.top) / 42), lengths: labelled(plot, x) };
}
