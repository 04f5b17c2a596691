// Make elements of the page. Text is always set as text, never as markup.

export function element(tag, text = "", css = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (css) made.className = css;
  return made;
}

export function show(id, ...children) {
  document.getElementById(id).replaceChildren(...children);
}

// `columns`: [heading, row => text, {text: flush left, bad: row => in red}]
export function table(columns, rows, nothing) {
  if (!rows.length) return element("p", nothing, "empty");
  const made = element("table");
  const head = made.createTHead().insertRow();
  for (const [name, , how = {}] of columns) {
    const cell = element("th", name, how.text ? "text" : "");
    cell.scope = "col";
    head.append(cell);
  }
  const body = made.createTBody();
  for (const row of rows) body.append(tableRow(columns, row));
  return made;
}

function tableRow(columns, row) {
  const made = element("tr");
  for (const [, value, how = {}] of columns) {
    const css = [how.text ? "text" : "", how.bad?.(row) ? "bad" : ""].join(" ").trim();
    made.append(element("td", value(row), css));
  }
  return made;
}
