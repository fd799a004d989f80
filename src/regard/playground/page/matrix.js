// A matrix of numbers as a table, with names of rows and columns.
//
//   const view = matrix(parent, { name: "S" });  view.update({ values, rows, columns, row, format, hidden });

import { make } from "./shared/dom.js";
import { short } from "./draw.js";

export function matrix(parent, { name, caption = "" }) {
  const table = make("table", make("div", parent, { name: "matrix", tabindex: 0, role: "group", "aria-label": caption || name }));
  return {
    element: table.parentElement,
    update({ values, rows = null, columns = null, row = null, format = (value) => short(value), hidden = null, kind = "" }) {
      table.className = kind;
      const lines = [];
      const head = make("tr", null);
      make("th", head, { text: name, name: "name", scope: "col" });
      if (columns) for (const column of columns) make("th", head, { text: column, scope: "col" });
      else if (values.length) make("td", head, { colspan: values[0].length });
      lines.push(head);
      values.forEach((numbers, i) => {
        const line = make("tr", null, i === row ? { name: "current" } : {});
        make("th", line, { text: rows ? rows[i] : "", scope: "row" });
        numbers.forEach((value, j) => {
          const off = hidden && hidden(i, j);
          make("td", line, { text: off ? "–" : format(value), ...(off ? { name: "off" } : {}) });
        });
        lines.push(line);
      });
      table.replaceChildren(...lines);
    },
  };
}
