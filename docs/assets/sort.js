// A click on the head of a column sorts its table: numbers by size, dashes last, a second click turns the order.
document.querySelectorAll("article table").forEach(table => table.querySelectorAll("th").forEach((head, column) => {
  head.style.cursor = "pointer"
  let sign = -1
  head.addEventListener("click", () => {
    const body = table.tBodies[0], rows = [...body.rows], text = row => row.cells[column].textContent.trim()
    const compare = (a, b) => {
      const [x, y] = [parseFloat(a), parseFloat(b)]
      return isNaN(x) || isNaN(y) ? isNaN(x) - isNaN(y) || a.localeCompare(b) : sign * (x - y)
    }
    rows.sort((a, b) => compare(text(a), text(b))).forEach(row => body.append(row))
    sign = -sign
  })
}))
