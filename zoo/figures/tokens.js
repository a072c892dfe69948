"use strict";
// All clouds are turned together: what differs between them is then the encoding and nothing else.
(() => {
  const { clouds, words, colors, tilt } = JSON.parse(document.getElementById("data").textContent);
  const stages = [...document.querySelectorAll(".cloud")];
  const share = document.getElementById("share");
  const turn = document.getElementById("turn");
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const SIZE = 100, SAME = 12;
  let angle = 0.5, lean = tilt, coming = null, before = null;

  const element = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const seen = ([x, y, z]) => {
    [x, z] = [x * Math.cos(angle) + z * Math.sin(angle), z * Math.cos(angle) - x * Math.sin(angle)];
    [y, z] = [y * Math.cos(lean) - z * Math.sin(lean), z * Math.cos(lean) + y * Math.sin(lean)];
    return [x * SIZE, -y * SIZE, z];
  };

  // Repeated words carry their positions; where they are close they have one label.
  const labels = (points) => {
    const groups = [];
    points.forEach((point, index) => {
      const same = groups.find(({ at, own }) =>
        words[own[0]] === words[index] && Math.hypot(at[0] - point[0], at[1] - point[1]) < SAME);
      if (same) same.own.push(index);
      else groups.push({ at: point, own: [index] });
    });
    return groups.map(({ at, own }) => {
      const word = words[own[0]], repeated = words.filter((one) => one === word).length > 1;
      return [at, repeated ? `${word} ${own.join(", ")}` : word];
    });
  };

  const draw = () => {
    const part = share.valueAsNumber / 100, eased = part * part * (3 - 2 * part);
    stages.forEach((stage, number) => {
      const { without, placed, weights } = clouds[number];
      const points = without.map((one, index) =>
        seen(one.map((value, axis) => (1 - eased) * value + eased * placed[index][axis])));
      const drawn = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map((axis) => {
        const [x2, y2] = seen(axis);
        return element("line", { class: "axis", x1: 0, y1: 0, x2, y2 });
      });
      drawn.push(element("polyline", {
        class: "path", points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "),
      }));
      const order = points.map((_, index) => index).sort((a, b) => points[a][2] - points[b][2]);
      for (const index of order) {
        const [cx, cy, z] = points[index];
        const area = weights ? (1 - eased) * 10 + eased * (3 + 70 * weights[index]) : 10;
        const r = (Math.sqrt(area) * (1 + 0.15 * z)).toFixed(2);
        drawn.push(element("circle", { cx, cy, r, fill: colors[index] }));
      }
      for (const [[x, y], text] of labels(points)) drawn.push(element("text", { x: x + 4, y: y - 4 }, text));
      stage.replaceChildren(...drawn);
    });
  };

  const step = (now) => {
    const passed = before === null ? 0 : (now - before) / 1000;
    before = now;
    const turning = turn.getAttribute("aria-pressed") === "true";
    if (turning) angle += 0.5 * passed;
    if (coming !== null) {
      coming = Math.min(1, coming + passed / 2.5);
      share.value = 100 * coming;
      if (coming === 1) coming = null;
    }
    draw();
    if (turning || coming !== null) requestAnimationFrame(step);
    else before = null;
  };
  const start = () => { if (before === null) requestAnimationFrame(step); };

  turn.addEventListener("click", () => {
    turn.setAttribute("aria-pressed", String(turn.getAttribute("aria-pressed") !== "true"));
    start();
  });
  document.getElementById("play").addEventListener("click", () => {
    if (still.matches) { share.value = share.value === "100" ? 0 : 100; draw(); return; }
    coming = 0;
    start();
  });
  share.addEventListener("input", () => { coming = null; draw(); });
  stages.forEach((stage) => {
    stage.addEventListener("pointerdown", (event) => {
      stage.setPointerCapture(event.pointerId);
      turn.setAttribute("aria-pressed", "false");
    });
    stage.addEventListener("pointermove", (event) => {
      if (!stage.hasPointerCapture(event.pointerId)) return;
      angle += event.movementX / 120;
      lean = Math.max(-1.5, Math.min(1.5, lean + event.movementY / 120));
      draw();
    });
    stage.addEventListener("keydown", (event) => {
      const [across, up] = {
        ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15],
      }[event.key] ?? [0, 0];
      if (!across && !up) return;
      event.preventDefault();
      angle += across;
      lean = Math.max(-1.5, Math.min(1.5, lean + up));
      draw();
    });
  });
  draw();
})();
