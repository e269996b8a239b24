function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: of("ink"), soft: of("soft"), grid: of("grid"), accent: of("accent"), bad: of("bad") };
}

function layoutOf(xTitle, yTitle) {
  const { ink, grid, soft } = colours();
  const axis = (text) => ({
    title: { text }, color: ink, gridcolor: grid, linecolor: soft, zeroline: false, fixedrange: true,
  });
  return {
    xaxis: axis(xTitle), yaxis: axis(yTitle), margin: { l: 56, r: 12, t: 8, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, family: "system-ui, sans-serif", size: 12 }, showlegend: false,
  };
}

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false };

// PMI as bars, those below zero in another colour; setRange is told what was brushed.
function makeHistogram(data, range, setRange) {
  const place = document.getElementById("histogram");
  const { edges, counts } = data.histogram;
  if (!counts.length) return { draw() {} };
  const ends = [edges[0], edges[edges.length - 1]];
  const say = (value) => value.toFixed(2);
  const names = counts.map((count, i) => {
    const from = i ? `from ${say(edges[i])} ` : "";
    const to = i < counts.length - 1 || !i ? `to ${say(edges[i + 1])}` : "and above";
    return `PMI ${from}${to}: ${count.toLocaleString("en")} rows`;
  });

  function band() {
    const { low, high } = range();
    if (low === -Infinity && high === Infinity) return [];
    const inside = (value) => Math.min(Math.max(value, ends[0]), ends[1]);
    const box = { type: "rect", xref: "x", yref: "paper", y0: 0, y1: 1, x0: inside(low), x1: inside(high) };
    return [{ ...box, fillcolor: colours().accent, opacity: 0.22, line: { width: 0 }, layer: "below" }];
  }

  function draw() {
    const { accent, bad, soft } = colours();
    const bars = {
      type: "bar",
      x: counts.map((_, i) => (edges[i] + edges[i + 1]) / 2),
      y: counts,
      width: counts.map((_, i) => edges[i + 1] - edges[i]),
      marker: { color: counts.map((_, i) => (edges[i + 1] <= 1e-9 ? bad : accent)), line: { width: 0 } },
      hovertext: names, hoverinfo: "text", selectedpoints: null,
      unselected: { marker: { opacity: 1 } },
    };
    const zero = { type: "line", xref: "x", yref: "paper", x0: 0, x1: 0, y0: 0, y1: 1, line: { color: soft, width: 2, dash: "dot" } };
    const layout = {
      ...layoutOf("PMI (nats)", "rows"), bargap: 0, dragmode: "select", selectdirection: "h",
      shapes: [...band(), zero], selections: [],
    };
    layout.xaxis.range = [Math.min(ends[0], 0), Math.max(ends[1], 0)];
    return Plotly.react(place, [bars], layout, CONFIG);
  }

  draw();
  place.on("plotly_selected", (event) => {
    if (!event?.range) return;
    const [one, other] = event.range.x;
    const low = Math.min(one, other);
    const high = Math.max(one, other);
    // A brush that reaches the end of the bars means all that lies beyond, too.
    setRange(low <= ends[0] ? -Infinity : low, high >= ends[1] ? Infinity : high);
  });
  place.on("plotly_doubleclick", () => setRange(-Infinity, Infinity));
  return { draw };
}

function makeReliability(data) {
  const place = document.getElementById("reliability");
  if (!place) return { draw() {} };
  const points = data.reliability;
  const reach = points.map((point) => 1.96 * point.stderr);
  const all = points.flatMap((p, i) => [p.predicted, p.observed - reach[i], p.observed + reach[i]]);
  const ends = [Math.min(...all) - 0.2, Math.max(...all) + 0.2];

  function draw() {
    const { accent, soft } = colours();
    const line = { x: ends, y: ends, mode: "lines", line: { color: soft, width: 1 }, hoverinfo: "skip" };
    const curve = {
      x: points.map((point) => point.predicted),
      y: points.map((point) => point.observed),
      error_y: { type: "data", array: reach, color: accent, thickness: 1.5, width: 3 },
      mode: "markers", marker: { color: accent, size: 8 },
      hovertemplate: "estimated %{x:.2f}, observed %{y:.2f}<extra></extra>",
    };
    const layout = layoutOf("log r, as estimated", "log r, as observed");
    layout.dragmode = false;
    return Plotly.react(place, [line, curve], layout, CONFIG);
  }

  draw();
  return { draw };
}
