// The shown rows as a file, made in the browser.
function csvOf(data, rows) {
  // A spreadsheet would run a text that begins like a formula.
  const harmless = (text) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const number = (value) => (value === undefined || Number.isNaN(value) ? "" : String(value));
  const gaps = Object.keys(data.gaps);
  const numbers = ["rank", "pmi", "stderr", "posterior", "q_value"];
  const sides = ["x", "y"].filter((side) => data[side]);
  const labels = data.better_label.size ? ["better_label"] : [];
  const lines = [["row", ...sides, ...numbers, "suspect", ...gaps, ...labels].join(",")];
  for (const row of rows) {
    lines.push(
      [
        row,
        ...sides.map((side) => quoted(harmless(data[side][row]))),
        ...numbers.map((name) => number(data[name][row])),
        data.suspect[row] ? "True" : "False",
        ...gaps.map((name) => number(data.gaps[name].get(row))),
        ...labels.map(() => quoted(harmless(data.better_label.get(String(row)) ?? ""))),
      ].join(","),
    );
  }
  return `${lines.join("\n")}\n`;
}

function download(data, rows) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([csvOf(data, rows)], { type: "text/csv" }));
  link.download = "rows.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
