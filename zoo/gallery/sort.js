// Tables in `.sortable`: a click on a heading sorts by its column, a second one the other way round.
"use strict";
for (const table of document.querySelectorAll(".sortable table")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (row) => row.cells[column].textContent.trim();
      const number = (text) => (/^[\d.,]+/.test(text) ? parseFloat(text.replaceAll(",", "")) : NaN);
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        const [m, n] = [number(x), number(y)];
        if (isNaN(m) !== isNaN(n)) return isNaN(m) ? 1 : -1; // what is not known comes last
        return (up ? 1 : -1) * (isNaN(m) ? x.localeCompare(y) : m - n);
      });
      body.append(...rows);
    });
  });
}
