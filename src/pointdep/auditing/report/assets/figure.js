// Drawing: a figure is an SVG with two axes. Colours are in the style sheet, by class.
function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Round numbers from low to high, about `count` of them and at least `least` apart, as texts too.
function ticks([low, high], count, least) {
  const rough = Math.max((high - low) / count, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= 0.999 * rough);
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const first = Math.ceil(low / step - 1e-9);
  const many = Math.floor(high / step + 1e-9) - first + 1;
  const digits = { minimumFractionDigits: places, maximumFractionDigits: places };
  return Array.from({ length: many }, (_, i) => (first + i) * step).map((value) => ({
    value, text: value.toLocaleString("en", digits),
  }));
}

// Axes {ends, title, least} as large as the place: the SVG, x(value) and y(value) in pixels, and
// valueAt(x), the other way. What is drawn into `inner` lies over the grid.
function frame(place, xAxis, yAxis) {
  const width = Math.max(place.clientWidth, 160);
  const height = Math.max(place.clientHeight, 120);
  const rows = ticks(yAxis.ends, 5, yAxis.least ?? 0);
  const left = 34 + 7 * Math.max(...rows.map((tick) => tick.text.length));
  const [right, top, bottom] = [width - 12, 8, height - 42];
  const columns = ticks(xAxis.ends, (right - left) / 70, xAxis.least ?? 0);
  const scale = ([low, high], from, to) => (value) => from + ((value - low) / (high - low)) * (to - from);
  const [x, y] = [scale(xAxis.ends, left, right), scale(yAxis.ends, bottom, top)];
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}` });
  for (const { value, text } of columns) {
    svg.append(drawn("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: bottom }));
    svg.append(drawn("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, text));
  }
  for (const { value, text } of rows) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, text));
  }
  const middle = (top + bottom) / 2;
  const turned = { x: 0, y: 0, "text-anchor": "middle", transform: `translate(13 ${middle}) rotate(-90)` };
  svg.append(drawn("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, xAxis.title));
  svg.append(drawn("text", turned, yAxis.title));
  const inner = drawn("g", {});
  svg.append(inner);
  place.replaceChildren(svg);
  return { inner, x, y, top, bottom, valueAt: scale([left, right], ...xAxis.ends) };
}

// Draw now, and again whenever the place has another size.
function keepDrawn(place, draw) {
  let size = "";
  const whenResized = () => {
    const now = `${place.clientWidth} ${place.clientHeight}`;
    if (now !== size) draw();
    size = now;
  };
  whenResized();
  new ResizeObserver(whenResized).observe(place);
}
